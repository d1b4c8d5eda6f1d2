"""A cache and a window into it, both passed in: the backend delays the write to the cache past the read through the window."""
import torch
from torch import nn
from torch.nn import functional as F


def sinking(gm, example_inputs):
    """Stands for a backend that moves an in-place write to the end where no later op reads that input; by that name, that is."""
    *_, output = gm.graph.nodes
    for node in list(gm.graph.nodes):
        written = node.args[0] if node.args else None
        in_place = node.op == "call_method" and node.target.endswith("_") and not node.users
        if in_place and written.op == "placeholder" and list(written.users)[-1] is node:
            output.prepend(node)
    gm.recompile()
    return gm.forward


class RollingCache(nn.Module):
    def __init__(self, d=4):
        super().__init__()
        self.fc1 = nn.Linear(d, d)
        self.fc2 = nn.Linear(d, 3)

    def forward(self, x, cache, window):
        key = torch.tanh(self.fc1(x))
        drift = (key - key.mean()).abs().amax(dim=0)
        cache.mul_(0.5)
        score = F.softmax(key @ window.t() / 2, dim=-1)
        h = score @ window + drift
        h = F.layer_norm(h, (4,)) * torch.sigmoid(x)
        return self.fc2(h + F.silu(h))


torch.manual_seed(0)
model = RollingCache().eval()
cache = torch.randn(6, 4)
inputs = (torch.randn(5, 4), cache, cache[2:5])

if __name__ == "__main__":
    results = []
    for forward in (model, torch.compile(model, backend=sinking)):
        x, cache = inputs[0], inputs[1].clone()
        with torch.no_grad():
            results.append(forward(x, cache, cache[2:5]))
    torch.testing.assert_close(results[1], results[0], rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
