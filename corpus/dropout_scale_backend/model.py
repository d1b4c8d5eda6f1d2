"""Training-mode encoder layer: the backend draws the dropout mask that eager draws, and forgets to scale up what is left."""
import torch
from torch import nn
from torch.nn import functional as F


def unscaled_dropout(x, p=0.5, training=True, inplace=False):
    return F.dropout(x, p, training) * (1 - p if training else 1)


def unscaled(gm, example_inputs):
    """Stands for a backend that takes dropout for a mask."""
    for node in gm.graph.nodes:
        if node.target is F.dropout:
            node.target = unscaled_dropout
    gm.recompile()
    return gm.forward


class EncoderLayer(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)
        self.norm = nn.LayerNorm(d)
        self.drop = nn.Dropout(0.25)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        attention = F.softmax(q @ k.transpose(-1, -2) / 8 ** 0.5, dim=-1)
        h = x + torch.tanh(self.out(attention @ v))
        h = self.drop(h)
        return F.gelu(h) + h.mean(dim=-1, keepdim=True)


torch.manual_seed(0)
model = EncoderLayer().train()
inputs = (torch.randn(2, 6, 8),)

if __name__ == "__main__":
    with torch.no_grad():
        torch.manual_seed(7)
        expected = model(*inputs)
        torch.manual_seed(7)
        got = torch.compile(model, backend=unscaled)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
