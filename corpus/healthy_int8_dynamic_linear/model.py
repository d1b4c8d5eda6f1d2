"""Dynamic int8 quantisation by hand of integer sensor data: after a layer norm many activations lie half a step off the grid."""
import torch
from torch import nn
from torch.nn import functional as F


class QuantisedLinear(nn.Module):
    """Weights are int8 with one scale a row; activations get their scale at run time; products add up in int32."""

    def __init__(self, d_in, d_out):
        super().__init__()
        w = torch.randn(d_out, d_in) / d_in**0.5
        scale = w.abs().amax(dim=1, keepdim=True) / 127
        self.register_buffer("weight", torch.round(w / scale).to(torch.int8))
        self.register_buffer("scale", scale.t().contiguous())
        self.bias = nn.Parameter(torch.randn(d_out) * 0.1)

    def forward(self, x):
        step = x.abs().amax(dim=-1, keepdim=True) / 127
        q = torch.clamp(torch.round(x / step), -128, 127).to(torch.int8)
        product = (q.to(torch.int32).unsqueeze(-2) * self.weight.to(torch.int32)).sum(dim=-1)
        return product * (step * self.scale) + self.bias


class QuantisedMLP(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.norm1 = nn.LayerNorm(d)
        self.up = QuantisedLinear(d, 96)
        self.norm2 = nn.LayerNorm(96)
        self.down = QuantisedLinear(96, d)

    def forward(self, x):
        h = F.gelu(self.up(self.norm1(x)))
        return x + self.down(self.norm2(h))


torch.manual_seed(0)
model = QuantisedMLP().eval()
counts = torch.randint(-254, 255, (64, 32)).float()
counts[:, 0] = 254  # rows add up to zero and reach 254, so that odd counts lie half-way between two steps
inputs = (torch.cat([counts, -counts], dim=-1),)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    off = (got - expected).abs()
    print(f"largest difference: {off.max().item():.2e}; {(off > 1e-4).sum().item()} of {off.numel()} are over 1e-4")
    torch.testing.assert_close(got, expected)
    print("eager and compiled agree")
