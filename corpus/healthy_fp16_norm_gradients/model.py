"""Gradients of a float16 encoder: RMS norm by hand, layer norm, group norm and vector norms, backward through all of them."""
import torch
from torch import nn
from torch.nn import functional as F


class Encoder(nn.Module):
    def __init__(self, d=64, depth=3):
        super().__init__()
        self.gains = nn.ParameterList(nn.Parameter(torch.rand(d) + 0.5) for _ in range(depth))
        self.fc = nn.ModuleList(nn.Linear(d, d) for _ in range(depth))
        self.norm = nn.LayerNorm(d)
        self.groups = nn.GroupNorm(8, d)

    def forward(self, x):
        for gain, fc in zip(self.gains, self.fc):
            rms = torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-5)
            x = x + F.silu(fc(x * rms * gain))
        x = self.groups(self.norm(x).transpose(1, 2)).transpose(1, 2)
        return x.norm(dim=-1).mean() + F.normalize(x, dim=-1).sum(dim=1).norm(p=3, dim=-1).mean()


torch.manual_seed(0)
net = Encoder().half()
x = torch.randn(4, 20, 64).half().requires_grad_()


def gradients(forward):
    net.zero_grad()
    x.grad = None
    loss = forward(x)
    loss.backward()
    return [loss.detach(), x.grad.clone()] + [p.grad.clone() for p in net.parameters()]


expected = gradients(net)
got = gradients(torch.compile(net))
for name, e, g in zip(("loss", "input", *(n for n, _ in net.named_parameters())), expected, got):
    print(f"{name:16s} largest difference {(g - e).abs().max().item():.2e} of {e.abs().max().item():.2e}")
assert all(torch.equal(e, g) for e, g in zip(expected, got)), "not bitwise equal"
