"""Twelve bfloat16 layer norms with gated residuals in between: fused kernels keep float32 inside, eager rounds each step."""
import torch
from torch import nn
from torch.nn import functional as F


class NormStack(nn.Module):
    def __init__(self, d=96, depth=12):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(depth))
        self.gates = nn.ParameterList(nn.Parameter(torch.randn(d) * 0.5) for _ in range(depth))

    def forward(self, x):
        for norm, gate in zip(self.norms, self.gates):
            y = norm(x)
            x = x + 0.3 * torch.sigmoid(gate) * F.silu(y) * torch.tanh(y)
        return x


torch.manual_seed(0)
model = NormStack().bfloat16().eval()
inputs = (torch.randn(16, 96, dtype=torch.bfloat16),)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    worst = (got - expected).abs().max().item()
    print(f"largest difference: {worst:.3g}, largest value: {expected.abs().max().item():.3g}")
    assert worst < 1e-3, "eager and compiled differ"
