"""A custom op whose lowering knows float16 only: it raises for what the model has."""
import torch
from torch._inductor import lowering


@torch.library.custom_op("sparse_grid::gather_rows", mutates_args=())
def gather_rows(x: torch.Tensor, step: int) -> torch.Tensor:
    return x.roll(step, 0)


@gather_rows.register_fake
def _(x, step):
    return torch.empty_like(x)


@lowering.register_lowering(torch.ops.sparse_grid.gather_rows.default)
def lowered(x, step):
    if x.get_dtype() != torch.float16:
        raise NotImplementedError("gather_rows: half precision only")
    return x


def model(x, w):
    return torch.mm(gather_rows(x @ w, 2), w)


torch.manual_seed(0)
inputs = (torch.randn(6, 8), torch.randn(8, 8))

if __name__ == "__main__":
    with torch.no_grad():
        print("eager   :", model(*inputs))
        print("compiled:", torch.compile(model)(*inputs))
