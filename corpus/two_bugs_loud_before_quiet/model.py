"""Two stages with a graph break between them: the backend's erf is off by a factor, its sigmoid by a thousandth. The second is asked for."""
import torch
from torch import nn
from torch.nn import functional as F


def loud_erf(x):
    return torch.erf(x) * 40


def quiet_sigmoid(x):
    return torch.sigmoid(x) + 1e-3 * (x > 0)


def twice_wrong(gm, example_inputs):
    swaps = {torch.erf: loud_erf, torch.sigmoid: quiet_sigmoid}
    for node in gm.graph.nodes:
        if node.op == "call_function":
            node.target = swaps.get(node.target, node.target)
    gm.recompile()
    return gm.forward


class TwoStages(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.fc1 = nn.Linear(d, d)
        self.fc2 = nn.Linear(d, d)
        self.fc3 = nn.Linear(d, 3)

    def forward(self, x):
        h = x * torch.erf(self.fc1(x) / 2**0.5)
        h = F.layer_norm(h, h.shape[-1:])
        print("stage 1 done")
        gate = torch.sigmoid(self.fc2(h))
        h = F.relu(h * gate + 0.1 * x)
        return F.log_softmax(self.fc3(h), dim=-1), gate.mean(dim=-1)


torch.manual_seed(0)
model = TwoStages().eval()
inputs = (torch.randn(5, 8),)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model, backend=twice_wrong)(*inputs)
    for name, e, g in zip(("classes", "gate"), expected, got):
        print(f"{name:8s} largest difference {(g - e).abs().max().item():.2e}")
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
