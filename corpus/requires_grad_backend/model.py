"""Adversarial patch on a frozen classifier: only the image needs a gradient, and the backend trains with a cheaper erf."""
import torch
from torch import nn
from torch.nn import functional as F


def rational_erf(x):
    return x / (1 + x * x).sqrt()


def training_kernels(gm, example_inputs):
    """Stands for a backend that takes a crude erf, with an easy derivative, where an input asks for a gradient."""
    training = any(isinstance(x, torch.Tensor) and x.requires_grad for x in example_inputs)
    for node in gm.graph.nodes:
        if training and node.target is torch.erf:
            node.target = rational_erf
    gm.recompile()
    return gm.forward


class Frozen(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.fc1 = nn.Linear(d, d)
        self.fc2 = nn.Linear(d, 3)
        self.scale = nn.Parameter(torch.rand(d) + 0.5)

    def forward(self, image):
        h = self.fc1(image) * self.scale
        gate = 0.5 * (1 + torch.erf(h))
        h = F.layer_norm(h * gate, (8,)) + torch.sin(image)
        return F.log_softmax(self.fc2(torch.tanh(h)), dim=-1)


torch.manual_seed(0)
model = Frozen().eval().requires_grad_(False)
inputs = (torch.randn(4, 8, requires_grad=True),)

if __name__ == "__main__":
    expected = model(*inputs)
    got = torch.compile(model, backend=training_kernels)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
