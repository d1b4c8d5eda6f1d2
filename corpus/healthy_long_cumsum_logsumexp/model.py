"""Forward pass of a long likelihood: running sums over 30,000 steps, differences of log-sum-exps, and the gradient of it all."""
import torch
from torch import nn


class Likelihood(nn.Module):
    def __init__(self):
        super().__init__()
        self.drift = nn.Parameter(torch.tensor(0.003))
        self.rate = nn.Parameter(torch.tensor(1.7))

    def forward(self, steps):
        path = (steps + self.drift).cumsum(dim=-1)
        back = path - path.flip(-1)
        peak = torch.logcumsumexp(path * 0.1, dim=-1)[:, ::1000]
        evidence = torch.logsumexp(path, dim=-1) - torch.logsumexp(path * self.rate, dim=-1) / self.rate
        return (back.mean(dim=-1) + evidence).sum() + peak.mean(), path[:, -1]


torch.manual_seed(0)
net = Likelihood()
steps = (torch.randn(2, 30_000) * 0.5).requires_grad_()


def run(forward):
    net.zero_grad()
    steps.grad = None
    loss, last = forward(steps)
    loss.backward()
    return loss.detach(), last.detach(), steps.grad.clone(), net.drift.grad.clone(), net.rate.grad.clone()


expected = run(net)
got = run(torch.compile(net))
for name, e, g in zip(("loss", "last", "steps", "drift", "rate"), expected, got):
    print(f"{name:6s} largest difference {(g - e).abs().max().item():.2e} of {e.abs().max().item():.2e}")
assert all(torch.equal(e, g) for e, g in zip(expected, got)), "not bitwise equal"
