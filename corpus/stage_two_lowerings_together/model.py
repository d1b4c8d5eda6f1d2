"""Quantise and dequantise with lowerings of their own: the second takes over the scale that the first left, which is for its tensor."""
import torch
from torch._inductor import lowering
from torch._inductor.virtualized import V

aten = torch.ops.aten


@torch.library.custom_op("grid::encode", mutates_args=())
def encode(x: torch.Tensor, scale: float) -> torch.Tensor:
    return x / scale


@encode.register_fake
def _(x, scale):
    return torch.empty_like(x)


@torch.library.custom_op("grid::decode", mutates_args=())
def decode(x: torch.Tensor, scale: float) -> torch.Tensor:
    return x * scale


@decode.register_fake
def _(x, scale):
    return torch.empty_like(x)


@lowering.register_lowering(torch.ops.grid.encode.default)
def lowered_encode(x, scale):
    V.graph.grid_scale = scale
    return lowering.lowerings[aten.mul.Tensor](x, 1 / scale)


@lowering.register_lowering(torch.ops.grid.decode.default)
def lowered_decode(x, scale):
    return lowering.lowerings[aten.mul.Tensor](x, getattr(V.graph, "grid_scale", scale))


def model(x, w):
    coarse = encode(x @ w, 0.25)
    return decode(coarse @ w, 2.0) @ w


torch.manual_seed(0)
inputs = (torch.randn(6, 8), torch.randn(8, 8))

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
