"""Smoothed counts: whole numbers are held against a float floor, and the backend compares in the dtype of its first operand."""
import torch
from torch import nn
from torch.nn import functional as F


def maximum_unpromoted(a, b):
    return torch.maximum(a, b.to(a.dtype)).to(torch.promote_types(a.dtype, b.dtype))


def first_operand_decides(gm, example_inputs):
    """Stands for a backend that promotes the result of a mixed operation, but not its operands."""
    for node in gm.graph.nodes:
        if node.target is torch.maximum:
            node.target = maximum_unpromoted
    gm.recompile()
    return gm.forward


class CountModel(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.floor = nn.Parameter(torch.rand(d) * 3)
        self.fc1 = nn.Linear(d, 2 * d)
        self.fc2 = nn.Linear(2 * d, 3)

    def forward(self, counts, x):
        floor = 1 + F.softplus(self.floor + 0.1 * x)
        smoothed = torch.maximum(counts, floor)
        share = smoothed / smoothed.sum(dim=-1, keepdim=True)
        entropy = -(share * share.log()).sum(dim=-1)
        h = F.silu(self.fc1(share - x))
        h = h * torch.sigmoid(entropy).unsqueeze(-1)
        return F.log_softmax(self.fc2(h), dim=-1), entropy.mean()


torch.manual_seed(0)
model = CountModel().eval()
inputs = (torch.randint(0, 4, (5, 6)), torch.randn(5, 6))

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model, backend=first_operand_decides)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
