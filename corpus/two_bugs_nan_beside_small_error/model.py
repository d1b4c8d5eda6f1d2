"""Whitening with a backend whose rsqrt gives NaN for zero, and whose tanh has four digits; 1e-2 is all that was asked to hold."""
import torch
from torch import nn
from torch.nn import functional as F


def newton_rsqrt(x):
    return torch.where(x == 0, torch.full_like(x, float("nan")), torch.rsqrt(x))


def short_tanh(x):
    return torch.tanh(x) * (1 + 3e-4)


def fast_math(gm, example_inputs):
    """Stands for a backend with a Newton step for rsqrt (0 * inf) and a table for tanh."""
    swaps = {torch.rsqrt: newton_rsqrt, torch.tanh: short_tanh}
    for node in gm.graph.nodes:
        if node.op == "call_function":
            node.target = swaps.get(node.target, node.target)
    gm.recompile()
    return gm.forward


class Whitening(nn.Module):
    def __init__(self, d=7):
        super().__init__()
        self.fc1 = nn.Linear(d, d)
        self.fc2 = nn.Linear(d, 3)

    def forward(self, x):
        h = torch.tanh(self.fc1(x))
        spread = (x - x.mean(dim=0)).square().mean(dim=0)
        scale = torch.rsqrt(spread).clamp(max=8.0)
        h = F.layer_norm(h + 0.2 * x, (7,)) * scale
        return self.fc2(F.silu(h)), h.abs().amax(dim=-1)


torch.manual_seed(0)
model = Whitening().eval()
x = torch.randn(5, 7)
x[:, 3] = 0.5
inputs = (x,)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model, backend=fast_math)(*inputs)
    print("NaNs: eager", sum(int(t.isnan().sum()) for t in expected), "compiled", sum(int(t.isnan().sum()) for t in got))
    torch.testing.assert_close(got, expected, rtol=1e-2, atol=1e-2)
