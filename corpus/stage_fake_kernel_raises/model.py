"""A custom op whose fake kernel was not told of a parameter that the op got later: Dynamo cannot trace the call."""
import torch


@torch.library.custom_op("rows::keep_first", mutates_args=())
def keep_first(x: torch.Tensor, count: int, scale: float) -> torch.Tensor:
    return x[:count] * scale


@keep_first.register_fake
def _(x, count):
    return x.new_empty(count, x.shape[1])


def model(x, w):
    return keep_first(x @ w, 2, 0.5).sum(0)


torch.manual_seed(0)
inputs = (torch.randn(4, 3), torch.randn(3, 3))

if __name__ == "__main__":
    print("eager   :", model(*inputs))
    print("compiled:", torch.compile(model, fullgraph=True)(*inputs))
