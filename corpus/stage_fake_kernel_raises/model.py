"""A custom op whose fake kernel reads a number of a tensor that has none yet: Dynamo cannot trace the call."""
import torch


@torch.library.custom_op("rows::keep_first", mutates_args=())
def keep_first(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    return x[: int(count)].clone()


@keep_first.register_fake
def _(x, count):
    return x.new_empty(min(int(count), len(x)), x.shape[1])


def model(x, count):
    return keep_first(x * 2, count).sum(0)


inputs = (torch.arange(12.0).reshape(4, 3), torch.tensor(2))

if __name__ == "__main__":
    print("eager   :", model(*inputs))
    print("compiled:", torch.compile(model, fullgraph=True)(*inputs))
