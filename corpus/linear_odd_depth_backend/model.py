"""Two-tower scorer: the backend's product walks the inner dim in steps of two, and drops what is left over; a bias hides which call it is."""
import torch
from torch import nn
from torch.nn import functional as F


def product_by_twos(x, y):
    even = x.shape[-1] // 2 * 2
    return torch.einsum("...k,kn->...n", x[..., :even], y[:even])


def linear_by_twos(x, weight, bias=None):
    y = product_by_twos(x, weight.t())
    return y if bias is None else y + bias


def stepping(gm, example_inputs):
    """Stands for an unrolled kernel without the code for the rest. Bias and activation are fused behind it, and right."""
    lowered = {F.linear: linear_by_twos, torch.matmul: product_by_twos}
    for node in gm.graph.nodes:
        if node.op == "call_function":
            node.target = lowered.get(node.target, node.target)
    gm.recompile()
    return gm.forward


class Scorer(nn.Module):
    def __init__(self, d=7):
        super().__init__()
        self.user = nn.Linear(d, 6)
        self.item = nn.Linear(4, 6)
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, users, items):
        a = F.normalize(torch.tanh(self.user(users.sigmoid())), dim=-1)
        b = F.normalize(torch.tanh(self.item(items)), dim=-1)
        scores = (a[:, None] * b).sum(dim=-1) * self.scale.exp()
        return F.log_softmax(scores, dim=-1), scores.amax(dim=0) - scores.amin(dim=0)


torch.manual_seed(0)
model = Scorer().eval()
inputs = (torch.randn(5, 7), torch.randn(3, 4))

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model, backend=stepping)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
