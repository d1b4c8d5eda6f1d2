"""A digit-like classifier on a backend that runs each linear layer in dynamic int8: logits move by percents, answers hardly do."""
import torch
from torch import nn
from torch.nn import functional as F


def int8_linear(x, weight, bias=None):
    """Activations get one scale a row at run time, weights one a row; products add up in int32, exactly."""
    step = x.abs().amax(dim=-1, keepdim=True).clamp_min(1e-8) / 127
    scale = weight.abs().amax(dim=1) / 127
    q = torch.round(x / step).to(torch.int32)
    w = torch.round(weight / scale[:, None]).to(torch.int32)
    y = (q.unsqueeze(-2) * w).sum(dim=-1) * (step * scale)
    return y if bias is None else y + bias


def int8_backend(gm, example_inputs):
    """Stands for a deployment backend that quantises as it compiles."""
    for node in gm.graph.nodes:
        if getattr(node.target, "__name__", "") == "linear":
            node.op, node.target = "call_function", int8_linear
    gm.recompile()
    return gm.forward


class Classifier(nn.Module):
    def __init__(self, centres, d=24, hidden=40):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.fc1 = nn.Linear(d, hidden)
        self.fc2 = nn.Linear(hidden, d)
        self.head = nn.Linear(d, len(centres), bias=False)
        with torch.no_grad():
            self.head.weight.copy_(centres)

    def forward(self, x):
        h = self.norm(x)
        h = h + 0.1 * self.fc2(F.gelu(self.fc1(h)))
        return self.head(h)


torch.manual_seed(0)
centres = F.normalize(torch.randn(6, 24), dim=-1)
labels = torch.arange(192) % 6
model = Classifier(centres).eval()
inputs = (centres[labels] * 4 + torch.randn(192, 24) * 0.8,)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model, backend=int8_backend)(*inputs)
    for name, logits in (("eager", expected), ("int8", got)):
        print(f"{name}: {(logits.argmax(-1) == labels).float().mean().item():.3f} of the answers are right")
    print(f"largest difference of a logit: {(got - expected).abs().max().item():.3f}")
