"""Calorimeter: a one-pass variance that drifts beyond any tolerance, and a softplus that Inductor is handed with a wrong threshold."""
import torch
from torch import nn
from torch.nn import functional as F


def early_linear(x, *args, **kwargs):
    return torch.where(x > 5, x, F.softplus(x))


def impatient_inductor(gm, example_inputs):
    """Stands for a lowering of softplus that turns linear at 5 and not at 20: at most 7e-3 too low. All else is Inductor's."""
    for node in gm.graph.nodes:
        if getattr(node.target, "__name__", "") == "softplus":
            node.target = early_linear
    gm.recompile()
    return torch._dynamo.lookup_backend("inductor")(gm, example_inputs)


class Calorimeter(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(d) + 0.5)
        self.fc = nn.Linear(d, d)

    def forward(self, counts, signal):
        n = counts.shape[0]
        mean = counts.mean(dim=-1, keepdim=True)
        variance = (counts * counts).mean(dim=-1, keepdim=True) - mean * mean
        signal = signal * self.gain
        level = F.softplus(signal * 3.0)
        h = torch.tanh(self.fc(level * 0.05)) + 0.1 * signal
        return variance, h.sum(dim=-1) / n, F.layer_norm(h, h.shape[-1:]).amax(dim=-1)


torch.manual_seed(0)
model = Calorimeter().eval()
inputs = (torch.randn(24, 16) + 3000, torch.randn(24, 16))

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model, backend=impatient_inductor)(*inputs)
    for name, e, g in zip(("variance", "sum", "peak"), expected, got):
        print(f"{name:9s} largest difference {(g - e).abs().max().item():.2e}")
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
