"""A backend that gets sinh wrong, and raises something else altogether for programs it has never seen: a slippery slope."""
import torch
from torch import nn
from torch.nn import functional as F


def half_done(gm, example_inputs):
    """Wrong sinh. Also refuses a graph that has a linear layer but no tanh, and one with a softmax but no mean."""
    names = " ".join(str(node.target) for node in gm.graph.nodes)
    if "linear" in names and "tanh" not in names:
        raise NotImplementedError("linear without an activation")
    if "softmax" in names and "mean" not in names:
        raise IndexError("no reduction axis for softmax")
    for node in gm.graph.nodes:
        if node.op == "call_function" and "sinh" in getattr(node.target, "__name__", "").split("."):
            node.target = torch.sin
    gm.recompile()
    return gm.forward


class Hyperbolic(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.fc1 = nn.Linear(d, d)
        self.fc2 = nn.Linear(d, d)

    def forward(self, x):
        h = torch.tanh(self.fc1(x))
        wide = torch.sinh(h + 0.5 * x)
        h = wide - wide.mean(dim=-1, keepdim=True)
        attention = F.softmax(h @ h.t(), dim=-1)
        return F.relu(self.fc2(attention @ h)) + x


torch.manual_seed(0)
model = Hyperbolic().eval()
inputs = (torch.randn(5, 8),)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model, backend=half_done)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
