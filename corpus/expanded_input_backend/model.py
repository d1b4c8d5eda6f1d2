"""Pooling with shared logits: one row of logits is expanded over the batch, and the backend's sum reads that row once only."""
import torch
from torch import nn
from torch.nn import functional as F


def sum_of_storage(x, dim):
    return x.select(dim, 0).clone() if x.stride(dim) == 0 else torch.sum(x, dim)


def walking_storage(gm, example_inputs):
    """Stands for a backend that reduces what lies in memory: an expanded dim has one element there, whatever its size."""
    for node in gm.graph.nodes:
        if node.op == "call_method" and node.target == "sum":
            node.op, node.target = "call_function", sum_of_storage
    gm.recompile()
    return gm.forward


class SharedPool(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.fc1 = nn.Linear(d, 2 * d)
        self.fc2 = nn.Linear(2 * d, d)
        self.gain = nn.Parameter(torch.rand(d) + 0.5)

    def forward(self, x, logits):
        h = x + self.fc2(F.gelu(self.fc1(x)))
        share = logits.sum(dim=0) / x.shape[0]
        centred = logits - share
        weight = torch.sigmoid(centred) * self.gain
        pooled = (h * weight).amax(dim=0)
        return torch.tanh(pooled), F.softplus(share) + h.mean(dim=0)


torch.manual_seed(0)
model = SharedPool().eval()
inputs = (torch.randn(9, 6), torch.randn(6).expand(9, 6))

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model, backend=walking_storage)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
