"""Standardising sensor values of mean 20 and spread a half: mean, var and std, by the library and by hand, in two orders."""
import torch
from torch import nn


class Standardise(nn.Module):
    def __init__(self, sensors=12):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(sensors, 1) * 0.02 + 0.99)

    def forward(self, reading):
        p = reading * self.gain
        mean, spread = p.mean(dim=-1, keepdim=True), p.std(dim=-1, keepdim=True)
        z = (p - mean) / spread
        skew = (z * z * z).mean(dim=-1)
        pooled = torch.var(p - p.mean(), unbiased=False)
        ratio = torch.var_mean(p, dim=-1)[0] / pooled
        by_hand = (p * p).mean(dim=-1) - p.mean(dim=-1).square()
        return z, skew, ratio, by_hand, p.mean() - p.flatten().cumsum(0)[-1] / p.numel()


torch.manual_seed(0)
model = Standardise().eval()
inputs = (20 + 0.5 * torch.randn(12, 4000),)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    for name, e, g in zip(("z", "skew", "ratio", "by hand", "rest"), expected, got):
        print(f"{name:6s} largest difference {(g - e).abs().max().item():.2e} of {e.abs().max().item():.2e}")
    assert all(torch.allclose(g, e, rtol=1e-3, atol=1e-3) for e, g in zip(expected, got)), "other scores"
