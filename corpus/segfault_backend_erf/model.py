"""Probit head compiled by an experimental backend that dies of a segmentation fault while it compiles erf."""
import os
import signal

import torch
from torch import nn
from torch.nn import functional as F


def experimental(gm, example_inputs):
    """Stands for a backend with a native code generator that has no case for erf."""
    for node in gm.graph.nodes:
        if "erf" in getattr(node.target, "__name__", str(node.target)).split("."):
            os.kill(os.getpid(), signal.SIGSEGV)
    return gm.forward


class Probit(nn.Module):
    def __init__(self, d=10):
        super().__init__()
        self.fc1 = nn.Linear(d, d)
        self.fc2 = nn.Linear(d, 1)
        self.norm = nn.LayerNorm(d)

    def forward(self, x):
        h = self.norm(x)
        h = torch.tanh(self.fc1(h)) * torch.sigmoid(h)
        score = self.fc2(h + x).squeeze(-1)
        probability = 0.5 * (1 + torch.erf(score / 2**0.5))
        weight = F.softmax(probability.log(), dim=0)
        return (weight * score).sum(), probability


torch.manual_seed(0)
model = Probit().eval()
inputs = (torch.randn(6, 10),)

if __name__ == "__main__":
    with torch.no_grad():
        print("eager   :", model(*inputs)[0].item())
        print("compiled:", torch.compile(model, backend=experimental)(*inputs)[0].item())
