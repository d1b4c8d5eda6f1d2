"""Residual MLP under bfloat16 autocast: eager and compiled differ in the third digit, as bfloat16 does."""
import torch
from torch import nn
from torch.nn import functional as F


class ResidualMLP(nn.Module):
    def __init__(self, d=64, depth=4):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(depth))
        self.up = nn.ModuleList(nn.Linear(d, 2 * d) for _ in range(depth))
        self.gate = nn.ModuleList(nn.Linear(d, 2 * d) for _ in range(depth))
        self.down = nn.ModuleList(nn.Linear(2 * d, d) for _ in range(depth))
        self.head = nn.Linear(d, 10)

    def forward(self, x):
        for norm, up, gate, down in zip(self.norms, self.up, self.gate, self.down):
            y = norm(x)
            x = x + down(F.silu(gate(y)) * up(y) * 1.1)
        return self.head(F.silu(x))


torch.manual_seed(0)
mlp = ResidualMLP().eval()
x = torch.randn(32, 64)

with torch.no_grad(), torch.autocast(x.device.type, dtype=torch.bfloat16):
    expected = mlp(x)
    got = torch.compile(mlp)(x)
print(f"largest difference: {(got - expected).abs().max().item():.2e}")
torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
print("eager and compiled agree")
