"""Cumulative pooling compiled by a backend whose generated program reads address 0 when it runs a cumsum."""
import ctypes

import torch
from torch import nn
from torch.nn import functional as F


def accelerator(gm, example_inputs):
    """Stands for a backend that hands a null pointer to its cumsum kernel; compiling works, running doesn't."""
    broken = any("cumsum" in str(node.target) for node in gm.graph.nodes)

    def run(*args):
        if broken:
            ctypes.string_at(0)
        return gm.forward(*args)

    return run


class CumulativePool(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.gate = nn.Linear(d, d)
        self.out = nn.Linear(d, d)

    def forward(self, x):
        gate = torch.sigmoid(self.gate(x))
        kept = gate * x
        total = kept.cumsum(dim=1)
        count = torch.arange(1, x.shape[1] + 1, device=x.device).view(1, -1, 1)
        mean = total / count
        y = F.layer_norm(mean, (8,))
        return F.gelu(self.out(y)) + x


torch.manual_seed(0)
pool = CumulativePool().eval()
x = torch.randn(2, 7, 8)
with torch.no_grad():
    print("eager   :", pool(x).std().item())
    print("compiled:", torch.compile(pool, backend=accelerator)(x).std().item())
