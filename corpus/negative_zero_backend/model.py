"""Signed magnitudes with a single -0.0 among them: the backend's copysign asks whether the sign's source is below zero."""
import torch
from torch import nn
from torch.nn import functional as F


def copysign_by_compare(magnitude, sign):
    return torch.where(sign < 0, -magnitude.abs(), magnitude.abs())


def comparing_to_zero(gm, example_inputs):
    """Stands for a backend that has no copysign and builds it of a comparison, where -0.0 is not below zero."""
    for node in gm.graph.nodes:
        if node.target is torch.copysign:
            node.target = copysign_by_compare
    gm.recompile()
    return gm.forward


class SignedScale(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(d) + 0.5)
        self.fc = nn.Linear(d, d)

    def forward(self, x, direction):
        size = F.softplus(self.fc(x)) + self.scale
        moved = torch.copysign(size, direction)
        h = x + 0.3 * moved
        h = F.layer_norm(h, (6,)) * torch.sigmoid(moved)
        energy = h.square().mean(dim=-1).sqrt()
        return torch.tanh(h.sum(dim=-1)) / (1 + energy), h.amax(dim=0)


torch.manual_seed(0)
model = SignedScale().eval()
direction = torch.randn(5, 6)
direction[3, 2] = -0.0
inputs = (torch.randn(5, 6), direction)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model, backend=comparing_to_zero)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
