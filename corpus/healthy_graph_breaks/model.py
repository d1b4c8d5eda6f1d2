"""A tree search full of Python: prints, .item(), data-dependent branches. It breaks the graph often, but never fails."""
import torch
from torch import nn


class Search(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.value = nn.Linear(d, 1)
        self.move = nn.Linear(d, d)

    def advance(self, state):
        state = torch.tanh(self.move(state)) + 0.1 * state
        return state, torch.sigmoid(self.value(state)).mean()

    def forward(self, state):
        best = float("-inf")
        for depth in range(3):
            state, value = self.advance(state)
            if value.item() > best:
                best = value.item()
                print(f"depth {depth}: better")
            if value > 2:
                break
        return state, best


torch.manual_seed(0)
model = Search().eval()
inputs = (torch.randn(4, 8),)

if __name__ == "__main__":
    with torch.no_grad():
        expected, best = model(*inputs)
        got, compiled_best = torch.compile(model)(*inputs)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(compiled_best, best)
    print("eager and compiled agree")
