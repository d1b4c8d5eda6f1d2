"""A backend that keeps 64 MB for ever at each compilation and, besides, approximates erf by tanh."""
import torch
from torch import nn
from torch.nn import functional as F

ARENA = []


def approximating(gm, example_inputs):
    """Stands for a backend with a leaking arena allocator and a fast-math table that is far too coarse."""
    ARENA.append(torch.ones(16 * 2**20, device="cpu"))
    for node in gm.graph.nodes:
        if node.op == "call_function" and "erf" in getattr(node.target, "__name__", "").split("."):
            node.target = torch.tanh
    gm.recompile()
    return gm.forward


class ErrorFunctionGate(nn.Module):
    def __init__(self, d=10):
        super().__init__()
        self.fc1 = nn.Linear(d, d)
        self.fc2 = nn.Linear(d, d)
        self.norm = nn.LayerNorm(d)

    def forward(self, x):
        h = self.fc1(self.norm(x))
        gate = 0.5 * (1 + torch.erf(h))
        h = h * gate + torch.sin(x)
        h = self.fc2(F.silu(h))
        return F.log_softmax(h - h.mean(dim=-1, keepdim=True), dim=-1)


torch.manual_seed(0)
model = ErrorFunctionGate().eval()
inputs = (torch.randn(4, 10),)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model, backend=approximating)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
