"""Forgotten transpose: a (5, 8) by (5, 8) matrix product raises in eager, and so does the compiled model."""
import torch
from torch import nn
from torch.nn import functional as F


class Similarity(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.left = nn.Linear(d, d)
        self.right = nn.Linear(d, d)

    def forward(self, a, b):
        a = F.normalize(torch.tanh(self.left(a)), dim=-1)
        b = F.normalize(torch.tanh(self.right(b)), dim=-1)
        scores = a @ b
        return scores.softmax(dim=-1).amax(dim=-1)


torch.manual_seed(0)
model = Similarity().eval()
inputs = (torch.randn(5, 8), torch.randn(5, 8))

if __name__ == "__main__":
    with torch.no_grad():
        print("compiled:", torch.compile(model)(*inputs))
