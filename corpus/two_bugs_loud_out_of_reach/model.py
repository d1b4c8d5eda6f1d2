"""Seismometer: an atan far off in a term too small to be seen, and a softplus a little off in the result itself."""
import torch
from torch import nn
from torch.nn import functional as F


def doubled_atan(x):
    return 2 * torch.atan(x)


def early_linear(x, *args, **kwargs):
    return torch.where(x > 5, x, F.softplus(x))


def careless(gm, example_inputs):
    """Stands for a backend with two wrong kernels: atan is twice what it should be, softplus turns linear at 5 and not at 20."""
    for node in gm.graph.nodes:
        name = getattr(node.target, "__name__", "")
        if name == "atan":
            node.target = doubled_atan
        elif name == "softplus":
            node.target = early_linear
    gm.recompile()
    return gm.forward


class Seismometer(nn.Module):
    def __init__(self, d=12):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(d) + 0.5)
        self.fc = nn.Linear(d, d)

    def forward(self, trace, clock):
        trace = trace * self.gain
        skew = torch.atan(clock * 3.0 + trace.mean(dim=-1, keepdim=True))
        level = F.softplus(trace * 2.5)
        h = torch.tanh(self.fc(trace)) * 0.1 + level
        return h + skew * 1e-9


torch.manual_seed(0)
model = Seismometer().eval()
inputs = (torch.randn(16, 12) * 1.5, torch.rand(16, 1))

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model, backend=careless)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    print("eager and compiled agree")
