"""A classifier on a backend that runs linear layers in int8; the scale is taken of the first sixteen features alone."""
import torch
from torch import nn
from torch.nn import functional as F


def int8_linear(x, weight, bias=None):
    step = x[..., :16].abs().amax(dim=-1, keepdim=True).clamp_min(1e-8) / 127
    scale = weight.abs().amax(dim=1).clamp_min(1e-8) / 127
    y = F.linear(torch.round(x / step).clamp(-127, 127), torch.round(weight / scale[:, None])) * (step * scale)
    return y if bias is None else y + bias


def int8_backend(gm, example_inputs):
    """Stands for a deployment backend: int8 linear layers, each off by about a percent, and log-sum-exp by its largest term."""
    for node in gm.graph.nodes:
        name = getattr(node.target, "__name__", str(node.target))
        if name in ("linear", "logsumexp"):
            node.op, node.target = "call_function", int8_linear if name == "linear" else torch.amax
    gm.recompile()
    return gm.forward


class Classifier(nn.Module):
    """Returns its logits and, for the log file, an energy that nobody decides by."""

    def __init__(self, centres, d=16, hidden=48):
        super().__init__()
        self.lift = nn.Linear(d, hidden)
        self.mix = nn.Linear(hidden, d)
        self.head = nn.Linear(d, len(centres), bias=False)
        with torch.no_grad():
            self.head.weight.copy_(centres)
            self.lift.weight[40:45] = 24 * centres  # a few features are much larger than others, as they are in trained models
            self.mix.weight[:, 40:45] = centres.t()
            self.mix.weight[:, :40] *= 0.1

    def forward(self, x):
        h = F.silu(self.lift(x))
        h = F.layer_norm(self.mix(h), (16,))
        logits = self.head(h)
        return logits, torch.logsumexp(logits * 0.01, dim=-1) * 100


torch.manual_seed(0)
centres = F.normalize(torch.randn(5, 16), dim=-1)
labels = torch.arange(160) % 5
model = Classifier(centres).eval()
x = centres[labels] * 3 + torch.randn(160, 16) * 0.3

if __name__ == "__main__":
    with torch.no_grad():
        wanted = model(x)[0].argmax(-1)
        expected = model(x)
        got = torch.compile(model, backend=int8_backend)(x)
    print(f"answers that changed: {(got[0].argmax(-1) != wanted).sum().item()} of {len(x)}")
    print(f"largest difference: logits {(got[0] - expected[0]).abs().max():.3f}, energy {(got[1] - expected[1]).abs().max():.3f}")
