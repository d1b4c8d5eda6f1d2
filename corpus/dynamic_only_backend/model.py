"""Sequence scorer with a dynamic length: the backend gets flip wrong, but only where a size is symbolic."""
import torch
from torch import nn
from torch.nn import functional as F


def shape_specialising(gm, example_inputs):
    """Stands for a backend that takes a symbolic size for zero: flip then does nothing."""
    dynamic = any(
        isinstance(x, torch.SymInt)
        or isinstance(x, torch.Tensor) and any(isinstance(size, torch.SymInt) for size in x.shape)
        for x in example_inputs
    )
    for node in gm.graph.nodes:
        if dynamic and "flip" in getattr(node.target, "__name__", str(node.target)).split("."):
            node.replace_all_uses_with(node.args[0])
    gm.recompile()
    return gm.forward


class BothWays(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.fc = nn.Linear(2 * d, d)
        self.decay = nn.Parameter(torch.rand(d))

    def forward(self, x):
        weighted = x * torch.sigmoid(self.decay)
        forward = weighted.cumsum(dim=1)
        backward = torch.flip(weighted, (1,)).cumsum(dim=1)
        h = torch.cat([forward, backward], dim=-1)
        h = F.silu(self.fc(h)) / (1 + h.abs().mean())
        return h.amax(dim=1)


torch.manual_seed(0)
scorer = BothWays().eval()
x = torch.randn(3, 11, 6)
torch._dynamo.mark_dynamic(x, 1)
with torch.no_grad():
    expected = scorer(x)
    got = torch.compile(scorer, backend=shape_specialising)(x)
torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
print("eager and compiled agree")
