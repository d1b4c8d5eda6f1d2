"""A backend that has no kernel for a flip, and once there is none refuses to see a cumprod and an erfinv in one graph: crash after crash."""
import torch
from torch import nn
from torch.nn import functional as F


def unfinished(gm, example_inputs):
    """Stands for a backend whose checks come one after another: who mends the first meets the second."""
    names = [getattr(node.target, "__name__", str(node.target)) for node in gm.graph.nodes]
    if "flip" in names:
        raise NotImplementedError("no kernel for flip")
    if "cumprod" in names and "erfinv" in names:
        raise RuntimeError("cumprod and erfinv want the same lookup table")
    return gm.forward


class Survival(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.fc1 = nn.Linear(d, d)
        self.fc2 = nn.Linear(d, 2)

    def forward(self, x):
        hazard = torch.sigmoid(self.fc1(x)) * 0.5
        alive = (1 - hazard).cumprod(dim=-1)
        quantile = torch.erfinv(2 * alive - 1).clamp(-3, 3)
        h = F.layer_norm(quantile + x, x.shape[-1:])
        backwards = h.flip(-1)
        h = F.gelu(h * torch.tanh(backwards)) + 0.1 * x
        return self.fc2(h), alive.mean(dim=-1)


torch.manual_seed(0)
model = Survival().eval()
inputs = (torch.randn(5, 6),)

if __name__ == "__main__":
    with torch.no_grad():
        print("eager   :", model(*inputs))
        print("compiled:", torch.compile(model, backend=unfinished)(*inputs))
