"""Rank features compiled by a backend whose sort kernel never finishes: it compiles, then hangs at the first call."""
import time

import torch
from torch import nn
from torch.nn import functional as F


def sorting_backend(gm, example_inputs):
    """Stands for a generated sorting network with a wrong loop bound."""
    has_sort = any("sort" in str(node.target) for node in gm.graph.nodes)

    def run(*args):
        while has_sort:
            time.sleep(0.05)
        return gm.forward(*args)

    return run


class RankPool(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.key = nn.Linear(d, d)
        self.weights = nn.Parameter(torch.linspace(1, 0, 9))

    def forward(self, x):
        key = torch.tanh(self.key(x)) - x.mean(dim=1, keepdim=True)
        ranked = torch.sort(key, dim=1, descending=True).values
        pooled = (ranked * self.weights.view(1, -1, 1)).sum(dim=1)
        return F.normalize(pooled, dim=-1) * torch.exp(-key.var(dim=1))


torch.manual_seed(0)
model = RankPool().eval()
inputs = (torch.randn(3, 9, 6),)

if __name__ == "__main__":
    with torch.no_grad():
        print("eager   :", model(*inputs)[0])
        print("compiled:", torch.compile(model, backend=sorting_backend)(*inputs)[0])
