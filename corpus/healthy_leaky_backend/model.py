"""A backend that leaks every intermediate value, but computes each of them rightly: no wrong result, no crash."""
import torch
from torch import fx, nn
from torch.nn import functional as F

KEPT = []


def tracing(gm, example_inputs):
    """Runs node by node and keeps every value, as a debugging backend may."""

    class Keeper(fx.Interpreter):
        def run_node(self, n):
            value = super().run_node(n)
            KEPT.append(value)
            return value

    return Keeper(gm).run


class Encoder(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.fc1 = nn.Linear(d, d)
        self.fc2 = nn.Linear(d, d)

    def forward(self, x):
        h = F.gelu(self.fc1(x))
        h = x + torch.sigmoid(h) * self.fc2(h)
        return F.normalize(h, dim=-1).cumsum(dim=0)


torch.manual_seed(0)
model = Encoder().eval()
inputs = (torch.randn(4096, 64),)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model, backend=tracing)(*inputs)
    torch.testing.assert_close(got, expected)
    print(f"eager and compiled agree; {len(KEPT)} values leaked")
