"""Gated image head on channels-last images: the backend swaps the halves of a gated linear unit, for that layout only."""
import torch
from torch import nn
from torch.nn import functional as F


def layout_glu(x, dim):
    if x.dim() == 4 and dim == 1 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous():
        x = x.roll(x.shape[1] // 2, 1)
    return torch.sigmoid(x.narrow(dim, x.shape[dim] // 2, x.shape[dim] // 2)) * x.narrow(dim, 0, x.shape[dim] // 2)


def nhwc_kernels(gm, example_inputs):
    """Stands for a backend with a channels-last kernel of its own for glu, which gates with the wrong half."""
    for node in gm.graph.nodes:
        if "glu" in getattr(node.target, "__name__", "").split("."):
            node.target, node.kwargs = layout_glu, {"dim": node.kwargs.get("dim", -1)}
    gm.recompile()
    return gm.forward


class GatedImage(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.mix = nn.Conv2d(4, 6, 1)
        self.fc = nn.Linear(6, 5)

    def forward(self, image):
        h = F.hardswish(self.stem(image - image.mean()))
        h = F.glu(h, dim=1)
        h = F.avg_pool2d(h, 2) + 0.1
        h = torch.tanh(self.mix(h))
        pooled = h.mean(dim=(2, 3)) * h.amax(dim=(2, 3))
        return F.log_softmax(self.fc(pooled), dim=-1)


torch.manual_seed(0)
model = GatedImage().eval()
inputs = (torch.randn(2, 3, 10, 10).to(memory_format=torch.channels_last),)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model, backend=nhwc_kernels)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
