"""A custom leaky gate with a lowering of its own for Inductor, which takes the slope of the wrong side."""
import torch
from torch._inductor import lowering

aten = torch.ops.aten


@torch.library.custom_op("gates::leaky", mutates_args=())
def leaky(x: torch.Tensor, slope: float) -> torch.Tensor:
    return torch.where(x > 0, x, x * slope)


@leaky.register_fake
def _(x, slope):
    return torch.empty_like(x)


@lowering.register_lowering(torch.ops.gates.leaky.default)
def lowered(x, slope):
    positive = lowering.lowerings[aten.gt.Scalar](x, 0)
    scaled = lowering.lowerings[aten.mul.Tensor](x, slope)
    return lowering.lowerings[aten.where.self](positive, scaled, x)


def model(x, w):
    return leaky(x @ w, 0.1) @ w


torch.manual_seed(0)
inputs = (torch.randn(6, 8), torch.randn(8, 8))

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
