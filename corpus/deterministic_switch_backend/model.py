"""Histogram features with deterministic algorithms asked for: the backend's ordered scatter keeps the last of equal indices."""
import torch
from torch import nn
from torch.nn import functional as F


def ordered_scatter(x, dim, index, source):
    if torch.are_deterministic_algorithms_enabled():
        return x.index_copy(dim, index, x.index_select(dim, index) + source)
    return torch.index_add(x, dim, index, source)


def ordered(gm, example_inputs):
    """Stands for a backend that swaps the atomic scatter for an ordered one where the switch asks, and adds only once."""
    for node in gm.graph.nodes:
        if node.op == "call_method" and node.target == "index_add":
            node.op, node.target = "call_function", ordered_scatter
    gm.recompile()
    return gm.forward


class Histogram(nn.Module):
    def __init__(self, bins=5, d=4):
        super().__init__()
        self.start = nn.Parameter(torch.rand(bins, d))
        self.fc1 = nn.Linear(d, d)
        self.fc2 = nn.Linear(d, 2)

    def forward(self, x, bucket):
        weight = torch.sigmoid(self.fc1(x))
        table = (self.start * 0.1).index_add(0, bucket, x * weight)
        level = table.abs().mean(dim=-1, keepdim=True)
        h = F.silu(table / (1 + level))
        h = h - h.amax(dim=0)
        return F.log_softmax(self.fc2(h), dim=-1)


torch.manual_seed(0)
torch.use_deterministic_algorithms(True)
model = Histogram().eval()
inputs = (torch.randn(12, 4), torch.randint(0, 5, (12,)))

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model, backend=ordered)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
