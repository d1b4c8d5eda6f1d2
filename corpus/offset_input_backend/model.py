"""Scoring the second half of a packed buffer: the backend's log1p starts to read at the start of the storage."""
import torch
from torch import nn
from torch.nn import functional as F


def log1p_from_start(x):
    return torch.log1p(x.as_strided(x.shape, x.stride(), storage_offset=0))


def storage_pointer(gm, example_inputs):
    """Stands for a backend whose kernel is handed the pointer of the storage where that of the tensor is meant."""
    for node in gm.graph.nodes:
        if node.target in (torch.log1p, "log1p"):
            node.op, node.target = "call_function", log1p_from_start
    gm.recompile()
    return gm.forward


class CountHead(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.fc1 = nn.Linear(d, d)
        self.fc2 = nn.Linear(d, 3)

    def forward(self, counts, x):
        squashed = torch.log1p(counts)
        h = self.norm(x) * squashed
        h = h + F.elu(self.fc1(h))
        level = squashed.mean(dim=-1, keepdim=True)
        h = torch.tanh(h / (1 + level)) - level.sqrt()
        return F.softmax(self.fc2(h), dim=-1), level.amax()


torch.manual_seed(0)
model = CountHead().eval()
packed = torch.rand(10, 6) * 20
inputs = (packed[5:], torch.randn(5, 6))

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model, backend=storage_pointer)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
