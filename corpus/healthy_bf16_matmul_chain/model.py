"""Powers of a bfloat16 transition matrix, sixteen products deep, with a little noise added on the way and a projection at the end."""
import torch
from torch import nn
from torch.nn import functional as F


class Walk(nn.Module):
    def __init__(self, d=48, steps=16):
        super().__init__()
        self.steps = steps
        self.rates = nn.Parameter(torch.randn(d, d))
        self.read = nn.Linear(d, 5)

    def forward(self, state):
        move = F.softmax(self.rates, dim=-1) * 0.6 + torch.eye(state.shape[-1], dtype=state.dtype) * 0.4
        path = []
        for step in range(self.steps):
            state = state @ move
            state = state * (1.0 + 0.1 * torch.sin(state * (step + 1)))
            state = state / state.norm(dim=-1, keepdim=True)
            path.append(state)
        return self.read(torch.stack(path).mean(dim=0)), path[-1]


torch.manual_seed(0)
model = Walk().bfloat16().eval()
inputs = (torch.randn(24, 48, dtype=torch.bfloat16),)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    for name, e, g in zip(("read", "state"), expected, got):
        print(f"{name:6s} largest difference {(g - e).abs().max().item():.3g}, largest value {e.abs().max().item():.3g}")
    assert all(torch.equal(e, g) for e, g in zip(expected, got)), "not bitwise equal"
