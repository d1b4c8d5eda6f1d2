"""Beam search over saturated float32 scores: top-k and sort meet pairs that differ in the last digit, or not at all."""
import torch
from torch import nn
from torch.nn import functional as F


class Beam(nn.Module):
    def __init__(self, d=24, words=600):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.words = nn.Linear(d, words)

    def forward(self, hidden, scores):
        logits = torch.tanh(self.words(self.norm(hidden)) * 5)
        total = scores[:, None] + F.log_softmax(logits, dim=-1)
        best, words = total.topk(20, dim=-1)
        ranked, order = torch.sort(torch.sigmoid(logits * 4), dim=-1, descending=True)
        margin = ranked[:, 0] - ranked[:, 199]
        return best, words, order[:, :200], margin, total.flatten().argmax()


torch.manual_seed(0)
model = Beam().eval()
inputs = (torch.randn(48, 24), -20 * torch.rand(48))

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    for name, e, g in zip(("best", "words", "order", "margin", "winner"), expected, got):
        print(f"{name:7s} {(g != e).sum().item()} of {e.numel()} differ")
    assert torch.equal(got[1], expected[1]), "eager and compiled keep different words"
