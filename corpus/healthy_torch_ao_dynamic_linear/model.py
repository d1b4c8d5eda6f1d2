"""Linear layers quantised by torch.ao to dynamic int8, which Dynamo leaves to eager: what is compiled lies between and after."""
import warnings

import torch
from torch import nn
from torch.nn import functional as F

warnings.filterwarnings("ignore", category=DeprecationWarning)


class Ranker(nn.Module):
    def __init__(self, d=32, hidden=64, classes=5):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up = nn.Linear(d, hidden)
        self.down = nn.Linear(hidden, d)
        self.classes = nn.Parameter(torch.randn(classes, d))

    def forward(self, x):
        h = self.norm(x)
        h = F.gelu(self.up(h)) * 0.5
        h = x + self.down(h)
        scores = F.cosine_similarity(h[:, None], self.classes, dim=-1)
        return torch.log_softmax(scores * 10, dim=-1)


torch.manual_seed(0)
model = torch.ao.quantization.quantize_dynamic(Ranker().eval(), {nn.Linear}, dtype=torch.qint8)
x = torch.randn(128, 32)
with torch.no_grad():
    expected = model(x)
    got = torch.compile(model)(x)
print(f"largest difference: {(got - expected).abs().max().item():.2e}")
print(f"other answers: {(got.argmax(-1) != expected.argmax(-1)).sum().item()} of {len(x)}")
