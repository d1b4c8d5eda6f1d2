"""Free-energy head: the softplus is read twice, and the backend keeps a rounded copy of it for whoever reads it second."""
import torch
from torch import nn
from torch.nn import functional as F


def spilled(value):
    return torch.round(value * 16) / 16


def spilling(gm, example_inputs):
    """Stands for a backend that fuses softplus into its first reader, and spills it with four binary digits for the others."""
    for node in list(gm.graph.nodes):
        if "softplus" in getattr(node.target, "__name__", "").split("."):
            for reader in list(node.users)[1:]:
                with gm.graph.inserting_before(reader):
                    reader.replace_input_with(node, gm.graph.call_function(spilled, (node,)))
    gm.recompile()
    return gm.forward


class FreeEnergy(nn.Module):
    def __init__(self, d=7):
        super().__init__()
        self.hidden = nn.Linear(d, 9)
        self.visible = nn.Parameter(torch.randn(d))
        self.temperature = nn.Parameter(torch.tensor(0.8))

    def forward(self, v):
        energy = F.softplus(self.hidden(v) / self.temperature)
        bias = torch.tanh(v) @ self.visible
        free = -energy.sum(dim=-1) - bias
        sharp = torch.exp(-free.abs() / 10) + free.sigmoid()
        spread = (energy - 0.5).square().mean(dim=-1)
        return F.softmax(free, dim=0) * sharp, torch.log1p(spread)


torch.manual_seed(0)
model = FreeEnergy().eval()
inputs = (torch.randn(6, 7),)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model, backend=spilling)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
