"""Running statistics updated in place: the results agree, but the backend leaves the wrong number in the buffer passed in."""
import torch
from torch import nn
from torch.nn import functional as F


def write_combining(gm, example_inputs):
    """Stands for a backend that drops the scalar of an in-place lerp and always uses one half."""
    for node in gm.graph.nodes:
        if node.op == "call_method" and node.target == "lerp_":
            node.args = (node.args[0], node.args[1], 0.5)
    gm.recompile()
    return gm.forward


class RunningNorm(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(d) + 0.5)
        self.fc = nn.Linear(d, 2)

    def forward(self, x, running):
        mean = x.mean(dim=0)
        centred = (x - mean) * self.scale
        y = self.fc(F.hardswish(centred)) / (1 + centred.abs().amax())
        running.lerp_(mean, 0.1)
        return y.softmax(dim=-1)


torch.manual_seed(0)
model = RunningNorm().eval()
inputs = (torch.randn(9, 6), torch.randn(6))

if __name__ == "__main__":
    x, running = inputs
    expected_running, got_running = running.clone(), running.clone()
    with torch.no_grad():
        expected = model(x, expected_running)
        got = torch.compile(model, backend=write_combining)(x, got_running)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(got_running, expected_running, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
