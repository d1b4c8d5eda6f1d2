"""Three AdamW steps on a small residual MLP: the compiled model's losses and weights drift away from eager's."""
import copy

import torch
import torch._inductor.config as inductor_config
from torch import nn
from torch.nn import functional as F

inductor_config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
inductor_config.triton.inject_relu_bug_TESTING_ONLY = "accuracy"


class Regressor(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.inp = nn.Linear(6, d)
        self.norm = nn.LayerNorm(d)
        self.up = nn.Linear(d, 2 * d)
        self.down = nn.Linear(2 * d, d)
        self.out = nn.Linear(d, 1)

    def forward(self, x):
        h = torch.tanh(self.inp(x))
        h = h + self.down(torch.relu(self.up(self.norm(h))))
        return self.out(F.silu(h)).squeeze(-1)


def train(net, forward, x, y, steps=3):
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.smooth_l1_loss(forward(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


torch.manual_seed(0)
net = Regressor()
twin = copy.deepcopy(net)
x, y = torch.randn(32, 6), torch.randn(32)

expected = train(net, net, x, y)
got = train(twin, torch.compile(twin), x, y)
print("eager losses   :", expected)
print("compiled losses:", got)
torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4)
for (name, a), b in zip(net.named_parameters(), twin.parameters()):
    torch.testing.assert_close(b, a, rtol=1e-2, atol=1e-3, msg=f"weights of {name} differ")
print("eager and compiled agree")
