"""One graph, one backend, two wrong functions: expm1 is off by half its value, and log1p by one part in ten thousand."""
import torch
from torch import nn
from torch.nn import functional as F


def loud_expm1(x):
    return torch.expm1(x) * 1.5


def quiet_log1p(x):
    return torch.log1p(x) * (1 + 1e-4)


def twice_wrong(gm, example_inputs):
    swaps = {torch.expm1: loud_expm1, torch.log1p: quiet_log1p}
    for node in gm.graph.nodes:
        if node.op == "call_function":
            node.target = swaps.get(node.target, node.target)
    gm.recompile()
    return gm.forward


class Rates(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.fc1 = nn.Linear(d, d)
        self.fc2 = nn.Linear(d, d)

    def forward(self, x):
        counts = F.softplus(self.fc1(x))
        flow = torch.log1p(counts)
        h = F.layer_norm(flow, flow.shape[-1:]) + 0.2 * x
        growth = torch.expm1(torch.tanh(self.fc2(h)))
        return growth.cumsum(dim=-1), flow.mean(dim=-1), F.softmax(growth, dim=-1)


torch.manual_seed(0)
model = Rates().eval()
inputs = (torch.randn(5, 8),)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model, backend=twice_wrong)(*inputs)
    for name, e, g in zip(("growth", "flow", "shares"), expected, got):
        print(f"{name:8s} largest difference {(g - e).abs().max().item():.2e}")
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
