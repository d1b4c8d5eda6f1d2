"""Feature mixer: the backend builds layer_norm out of reductions of its own, and that for the mean forgets the odd element out."""
import torch
from torch import nn
from torch.nn import functional as F


def mean_of_pairs(x, dim=None, keepdim=False):
    x, dim = (x.flatten(), 0) if dim is None else (x, dim)
    pairs = x.narrow(dim, 0, x.shape[dim] // 2 * 2)
    return pairs.sum(dim=dim, keepdim=keepdim) / x.shape[dim]


def layer_norm(x, shape, weight=None, bias=None, eps=1e-5):
    y = (x - mean_of_pairs(x, -1, True)) * torch.rsqrt(x.var(dim=-1, correction=0, keepdim=True) + eps)
    return y * (1 if weight is None else weight) + (0 if bias is None else bias)


def pairing(gm, example_inputs):
    """Stands for a reduction in two lanes without code for what is left over. The variance has its own, which is right."""
    lowered = {F.layer_norm: layer_norm, torch.mean: mean_of_pairs}
    for node in gm.graph.nodes:
        node.target = lowered.get(node.target, node.target)
    gm.recompile()
    return gm.forward


class Mixer(nn.Module):
    def __init__(self, d=9):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up = nn.Linear(d, 2 * d)
        self.down = nn.Linear(2 * d, d)
        self.scale = nn.Parameter(torch.rand(d) + 0.5)

    def forward(self, x):
        h = torch.tanh(self.up(x) * 0.5)
        h = x + self.down(h) * self.scale
        y = self.norm(h + 1.0)
        gate = torch.sigmoid(y) - 0.5
        return F.relu(gate * y).cumsum(dim=0), (y * x).amax(dim=-1)


torch.manual_seed(0)
model = Mixer().eval()
inputs = (torch.randn(5, 9),)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model, backend=pairing)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
