"""Phase-shifted features with dynamic=True: the shift becomes a symbolic number, and the backend rolls by one whatever it is."""
import torch
from torch import nn
from torch.nn import functional as F


def stepping(gm, example_inputs):
    """Stands for a backend that reads a symbolic shift as the unit it is counted in."""
    for node in gm.graph.nodes:
        if node.target in (torch.roll, "roll") and isinstance(node.args[1], torch.fx.Node):
            node.args = (node.args[0], 1, *node.args[2:])
    gm.recompile()
    return gm.forward


class Shifted(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.fc1 = nn.Linear(d, d)
        self.fc2 = nn.Linear(2 * d, 3)

    def forward(self, x, shift):
        h = x + torch.tanh(self.fc1(x))
        earlier = torch.roll(h, shift, 0)
        both = torch.cat([h, earlier], dim=-1)
        both = F.layer_norm(both, (12,)) * torch.sigmoid(both)
        level = both.abs().mean(dim=-1, keepdim=True) + 1 / shift
        return F.log_softmax(self.fc2(both / level), dim=-1)


torch.manual_seed(0)
model = Shifted().eval()
x = torch.randn(9, 6)
with torch.no_grad():
    expected = model(x, 4)
    got = torch.compile(model, backend=stepping, dynamic=True)(x, 4)
torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
print("eager and compiled agree")
