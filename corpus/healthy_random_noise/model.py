"""Noise-conditioned sampler: the seed is set before each run, yet eager and compiled draw from different generators."""
import torch
from torch import nn


class Sampler(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.mean = nn.Linear(d, d)
        self.log_scale = nn.Linear(d, d)

    def forward(self, context):
        noise = torch.randn_like(context)
        sample = self.mean(context) + noise * self.log_scale(context).exp()
        keep = torch.rand(context.shape[0], 1, device=context.device) > 0.25
        return torch.where(keep, sample, torch.zeros_like(sample))


torch.manual_seed(0)
model = Sampler().eval()
inputs = (torch.randn(12, 16),)

if __name__ == "__main__":
    with torch.no_grad():
        torch.manual_seed(7)
        expected = model(*inputs)
        torch.manual_seed(7)
        got = torch.compile(model)(*inputs)
    torch.testing.assert_close(got, expected)
    print("eager and compiled agree")
