"""Greedy decoding in bfloat16: near-equal logits tie after rounding, so eager and compiled pick other words."""
import torch
from torch import nn
from torch.nn import functional as F


class GreedyHead(nn.Module):
    def __init__(self, d=48, words=4000):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.words = nn.Linear(d, words)
        self.prior = nn.Parameter(torch.randn(words) * 0.1)

    def forward(self, hidden):
        logits = self.words(F.gelu(self.norm(hidden)))
        logits = torch.tanh(logits / 6) * 6 + self.prior * 0.37 - 0.11
        return logits.argmax(dim=-1)


torch.manual_seed(0)
model = GreedyHead().bfloat16().eval()
inputs = (torch.randn(200, 48, dtype=torch.bfloat16),)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    print(f"{(got != expected).sum().item()} of {expected.numel()} words differ")
    assert torch.equal(got, expected), "eager and compiled decode different words"
