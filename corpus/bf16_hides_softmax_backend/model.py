"""Attention pooling in bfloat16. The backend's softmax leaves part of the first weight out, which bfloat16's own rounding covers up."""
import torch
from torch import nn
from torch.nn import functional as F


def leaky_softmax(x, dim=-1, _stacklevel=3, dtype=None):
    weights = F.softmax(x, dim=dim, dtype=dtype)
    first = torch.zeros_like(weights).narrow(dim, 0, 1) + 0.98
    rest = torch.ones_like(weights).narrow(dim, 1, weights.shape[dim] - 1)
    return weights * torch.cat([first, rest], dim=dim)


def first_weight_is_short(gm, example_inputs):
    """Stands for a backend whose vectorised exponential is 2 % off in the first lane."""
    for node in gm.graph.nodes:
        if node.target is F.softmax:
            node.target = leaky_softmax
    gm.recompile()
    return gm.forward


class Pooling(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.query = nn.Linear(d, d)
        self.key = nn.Linear(d, d)
        self.value = nn.Linear(d, d)
        self.out = nn.Linear(d, 4)

    def forward(self, x):
        h = self.norm(x)
        scores = self.query(h) @ self.key(h).transpose(-1, -2) / 4.0
        weights = F.softmax(scores, dim=-1)
        pooled = F.gelu(weights @ self.value(h)) + x
        return self.out(pooled).tanh()


torch.manual_seed(0)
model = Pooling().eval().to(torch.bfloat16)
inputs = (torch.randn(3, 12, 16, dtype=torch.bfloat16),)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model, backend=first_weight_is_short)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
