"""Running log-probability of a sequence: the backend's scan works in blocks of 32 and forgets to carry over the sum."""
import torch
from torch import nn
from torch.nn import functional as F


def blocked_scan(x, dim):
    return torch.cat([torch.cumsum(block, dim) for block in x.split(32, dim)], dim)


def block_of_32(gm, example_inputs):
    """Stands for a backend whose scan lets each warp do 32 elements, and leaves out the pass that adds up the warps."""
    for node in gm.graph.nodes:
        if node.op == "call_method" and node.target == "cumsum":
            node.op, node.target = "call_function", blocked_scan
    gm.recompile()
    return gm.forward


class RunningScore(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.fc1 = nn.Linear(d, d)
        self.fc2 = nn.Linear(d, 4)
        self.decay = nn.Parameter(torch.rand(()) + 0.5)

    def forward(self, x):
        h = x + F.silu(self.fc1(x))
        best = torch.log_softmax(self.fc2(h), dim=-1).amax(dim=-1)
        running = best.cumsum(dim=1)
        length = torch.arange(1, x.shape[1] + 1, device=x.device)
        average = running / length ** self.decay
        return average.exp().mean(dim=1), running[:, -1].tanh()


torch.manual_seed(0)
model = RunningScore().eval()
inputs = (torch.randn(3, 50, 6),)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model, backend=block_of_32)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
