"""Peak finder over readings of which one is missing (NaN): eager's argmax takes the NaN, the backend's skips it."""
import torch
from torch import nn
from torch.nn import functional as F


def argmax_of_numbers(x, dim):
    return torch.argmax(torch.nan_to_num(x, nan=float("-inf")), dim)


def comparing_by_less(gm, example_inputs):
    """Stands for a backend whose argmax is a chain of `best < x`, which is false where x is NaN."""
    for node in gm.graph.nodes:
        if node.op == "call_method" and node.target == "argmax":
            node.op, node.target = "call_function", argmax_of_numbers
    gm.recompile()
    return gm.forward


class PeakFinder(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.place = nn.Embedding(d, 4)
        self.fc1 = nn.Linear(4, 8)
        self.fc2 = nn.Linear(8, 2)

    def forward(self, readings):
        peak = readings.argmax(dim=-1)
        h = self.place(peak)
        h = h + torch.tanh(h.flip(-1))
        known = torch.nan_to_num(readings) * 0.5
        level = known.mean(dim=-1, keepdim=True)
        h = F.gelu(self.fc1(h)) * torch.sigmoid(level)
        return F.log_softmax(self.fc2(h), dim=-1), known.amax(dim=-1)


torch.manual_seed(0)
model = PeakFinder().eval()
readings = torch.randn(6, 8)
readings[4, 5] = float("nan")
inputs = (readings,)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model, backend=comparing_by_less)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
