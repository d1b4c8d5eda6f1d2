"""A backend that raises only when a graph has both an exp and a sqrt, far apart from each other."""
import torch
from torch import nn
from torch.nn import functional as F


def picky(gm, example_inputs):
    """Stands for two kernels that claim the same scratch register."""
    names = [getattr(node.target, "__name__", str(node.target)).split(".")[0] for node in gm.graph.nodes]
    if "exp" in names and "sqrt" in names:
        raise RuntimeError("scratch register 3 is claimed twice")
    return gm.forward


class RadialNet(nn.Module):
    def __init__(self, centres=6, d=3):
        super().__init__()
        self.centres = nn.Parameter(torch.randn(centres, d))
        self.width = nn.Parameter(torch.rand(centres) + 0.5)
        self.fc = nn.Linear(centres, 4)

    def forward(self, x):
        distance = (x[:, None] - self.centres).square().sum(dim=-1)
        radial = torch.exp(-distance * self.width)
        radial = radial / (radial.sum(dim=-1, keepdim=True) + 1e-6)
        h = torch.tanh(self.fc(radial))
        h = F.layer_norm(h, (4,)) + 0.1 * h
        power = F.softplus(h).square().mean(dim=-1)
        return torch.sqrt(power) * torch.sigmoid(h[:, 0])


torch.manual_seed(0)
model = RadialNet().eval()
inputs = (torch.randn(7, 3),)

if __name__ == "__main__":
    with torch.no_grad():
        print("eager   :", model(*inputs))
        print("compiled:", torch.compile(model, backend=picky)(*inputs))
