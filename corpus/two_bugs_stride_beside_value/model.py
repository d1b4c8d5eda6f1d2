"""Nearest prototype of a transposed table, and a mask of a column: the compiled index is wrong, and so are the mask's strides."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class MaskedPrototype(nn.Module):
    def __init__(self, d=9):
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(0.7))
        self.labels = nn.Embedding(7 * 11, d)
        self.fc = nn.Linear(d, d)
        self.column = nn.Linear(1, 1)

    def forward(self, table, query, col):
        mask = torch.ones_like(col)
        dist = (table.t() - 0.25).abs() * 2.0
        nearest = dist.argmin()
        h = query + self.labels(nearest)
        h = h + self.fc(torch.tanh(F.layer_norm(h, h.shape[-1:])))
        w = F.softmax(-dist / self.temperature, dim=-1)
        level = torch.sigmoid(self.column(col)).mean() + w.amax(dim=1).mean()
        return h * level, nearest, mask


model = MaskedPrototype().eval()
inputs = (torch.randn(7, 11), torch.randn(5, 9), torch.randn(1, 5).t())

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    print(f"nearest: eager {expected[1].item()}, compiled {got[1].item()}")
    print(f"stride of the mask: eager {expected[2].stride()}, compiled {got[2].stride()}")
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
