"""Median filter over time: the backend refuses a sort of more than 12 elements, a bound near no power of two."""
import torch
from torch import nn
from torch.nn import functional as F


def network_sort(x, dim):
    if x.shape[dim] > 12:
        raise RuntimeError("no sorting network for so many lanes")
    return torch.sort(x, dim)


def sorting_networks(gm, example_inputs):
    """Stands for a backend that has optimal sorting networks for up to 12 elements and nothing for more."""
    for node in gm.graph.nodes:
        if node.target is torch.sort:
            node.target = network_sort
    gm.recompile()
    return gm.forward


class MedianNet(nn.Module):
    def __init__(self, d=5):
        super().__init__()
        self.fc1 = nn.Linear(d, d)
        self.fc2 = nn.Linear(d, 2)

    def forward(self, x):
        h = torch.tanh(self.fc1(x)) * 2
        ranked = torch.sort(h, dim=1).values
        middle = ranked[:, ranked.shape[1] // 2]
        spread = (ranked[:, -1] - ranked[:, 0]).clamp(min=0.1)
        z = F.elu((h.mean(dim=1) - middle) / spread)
        return F.softmax(self.fc2(z + middle), dim=-1)


torch.manual_seed(0)
model = MedianNet().eval()
inputs = (torch.randn(3, 40, 5),)

if __name__ == "__main__":
    with torch.no_grad():
        print("eager   :", model(*inputs))
        print("compiled:", torch.compile(model, backend=sorting_networks)(*inputs))
