"""A sentence encoder called with a second length, which makes that dim dynamic: the backend then divides by the padded length."""
import torch
from torch import nn
from torch.nn import functional as F


def padded_mean(x, dim):
    return torch.sum(x, dim) / ((x.shape[dim] + 7) // 8 * 8)


def padding(gm, example_inputs):
    """Stands for a backend that pads a dynamic dim to a multiple of 8, and has mean divide by what it padded to."""
    for node in gm.graph.nodes:
        if node.op == "call_method" and node.target == "mean":
            sizes = node.args[0].meta["example_value"].shape
            if isinstance(sizes[node.kwargs["dim"]], torch.SymInt):
                node.op, node.target = "call_function", padded_mean
    gm.recompile()
    return gm.forward


class Encoder(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.fc1 = nn.Linear(d, d)
        self.fc2 = nn.Linear(d, 4)
        self.scale = nn.Parameter(torch.rand(d))

    def forward(self, x):
        h = x * torch.sigmoid(self.fc1(x)) + self.scale
        sentence = h.mean(dim=1)
        peak = torch.tanh(h).amax(dim=1)
        joined = F.silu(sentence) - peak.abs()
        return F.normalize(self.fc2(joined), dim=-1)


torch.manual_seed(0)
encoder = Encoder().eval()
compiled = torch.compile(encoder, backend=padding)
for length in (11, 7):
    x = torch.randn(3, length, 6)
    with torch.no_grad():
        expected, got = encoder(x), compiled(x)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3, msg=f"length {length} differs")
print("eager and compiled agree")
