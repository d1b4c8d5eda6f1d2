"""Quantisation-aware training: fake-quantised weights and activations, and gradients straight through them."""
import torch
from torch import nn
from torch.nn import functional as F


def fake_int8(x, step, zero_point=0):
    return torch.fake_quantize_per_tensor_affine(x, step, zero_point, -128, 127)


class Classifier(nn.Module):
    def __init__(self, d=32, hidden=48, classes=6):
        super().__init__()
        self.fc1 = nn.Linear(d, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.fc2 = nn.Linear(hidden, classes)

    def forward(self, x, labels):
        h = F.linear(fake_int8(x, 0.03), fake_int8(self.fc1.weight, 0.002), self.fc1.bias)
        h = fake_int8(F.silu(self.norm(h)), 0.025, -20)
        logits = F.linear(h, fake_int8(self.fc2.weight, 0.0015), self.fc2.bias)
        return F.cross_entropy(logits, labels)


torch.manual_seed(0)
net = Classifier()
x, labels = torch.randint(-100, 100, (96, 32)) * 0.015, torch.randint(0, 6, (96,))


def gradients(forward):
    net.zero_grad()
    loss = forward(x, labels)
    loss.backward()
    return [loss.detach()] + [p.grad.clone() for p in net.parameters()]


expected = gradients(net)
got = gradients(torch.compile(net))
worst = max((g - e).abs().max().item() for g, e in zip(got, expected))
print(f"largest difference: {worst:.2e}")
assert worst < 1e-7, "the compiled model has other gradients"
