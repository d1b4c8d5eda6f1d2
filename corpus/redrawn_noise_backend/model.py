"""Noisy gating: one draw of noise is read twice, and the backend draws anew for whoever reads it second."""
import torch
from torch import nn
from torch.nn import functional as F


def recomputing(gm, example_inputs):
    """Stands for a backend that recomputes a cheap value for each of its readers, a random one too."""
    for node in list(gm.graph.nodes):
        if node.target is torch.rand_like:
            for reader in list(node.users)[1:]:
                with gm.graph.inserting_before(reader):
                    reader.replace_input_with(node, gm.graph.node_copy(node, lambda argument: argument))
    gm.recompile()
    return gm.forward


class NoisyGate(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.fc1 = nn.Linear(d, d)
        self.fc2 = nn.Linear(d, 4)

    def forward(self, x):
        logits = self.fc1(F.layer_norm(x, (6,)))
        noise = torch.rand_like(logits)
        gumbel = -torch.log(-torch.log(noise * 0.9 + 0.05))
        choice = F.softmax(logits + gumbel, dim=-1)
        h = torch.tanh(choice * x)
        weight = (noise - 0.5).square().sum(dim=-1, keepdim=True)
        return self.fc2(h) / (1 + weight), weight.mean()


torch.manual_seed(0)
model = NoisyGate().eval()
inputs = (torch.randn(5, 6),)

if __name__ == "__main__":
    with torch.no_grad():
        torch.manual_seed(7)
        expected = model(*inputs)
        torch.manual_seed(7)
        got = torch.compile(model, backend=recomputing)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
