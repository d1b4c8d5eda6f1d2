"""Hand-written causal attention in float16 with a relative-position bias: ordinary half-precision rounding."""
import math

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, d=32, heads=4, length=48):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)
        self.bias = nn.Parameter(torch.randn(heads, length, length) * 0.2)

    def forward(self, x):
        batch, length, d = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * (1 / math.sqrt(d // self.heads)) + self.bias
        causal = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        scores = scores.masked_fill(~causal, float("-inf"))
        weights = scores.exp() / scores.exp().sum(dim=-1, keepdim=True)
        return x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, d))


torch.manual_seed(0)
model = Attention().half().eval()
inputs = (torch.randn(2, 48, 32).half(),)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    print(f"largest difference: {(got - expected).abs().max().item():.2e}")
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    print("eager and compiled agree")
