"""Self-attention whose softmax sits on an exp of the backend's own: a cubic that is good near 0 and nowhere else."""
import torch
from torch import nn
from torch.nn import functional as F


def cubic_exp(x):
    return 1 + x + x**2 / 2 + x**3 / 6


def softmax(x, dim):
    return cubic_exp(x) / cubic_exp(x).sum(dim=dim, keepdim=True)


def attention(q, k, v):
    return softmax(q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5, -1) @ v


def expanding(gm, example_inputs):
    """Stands for a polynomial whose range reduction is missing: it is the exp of all that is made of one."""
    lowered = {torch.exp: cubic_exp, torch.softmax: softmax, F.scaled_dot_product_attention: attention}
    for node in gm.graph.nodes:
        node.target = lowered.get(node.target, node.target)
    gm.recompile()
    return gm.forward


class Attention(nn.Module):
    def __init__(self, d=8, heads=2):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)

    def forward(self, x):
        batch, length, d = x.shape
        qkv = self.qkv(self.norm(x) * 3.0)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in qkv.chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v)
        y = self.out(y.transpose(1, 2).reshape(batch, length, d))
        return F.relu(x + y), torch.tanh(y).sum(dim=-1)


torch.manual_seed(0)
model = Attention().eval()
inputs = (torch.randn(2, 6, 8),)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model, backend=expanding)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
