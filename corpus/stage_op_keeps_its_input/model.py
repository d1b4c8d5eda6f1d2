"""A custom op that keeps its input by reference and reads it later, when Inductor has put other data into the same memory."""
import torch

KEPT = {}


@torch.library.custom_op("stash::push", mutates_args=())
def push(x: torch.Tensor) -> torch.Tensor:
    KEPT[len(KEPT)] = x.view(x.shape)
    return torch.tensor(len(KEPT) - 1)


@push.register_fake
def _(x):
    return x.new_empty((), dtype=torch.int64)


@torch.library.custom_op("stash::fetch", mutates_args=())
def fetch(token: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    return KEPT[int(token)] + 0 * after


@fetch.register_fake
def _(token, after):
    return torch.empty_like(after)


def model(x, w):
    hidden = torch.exp(x)
    token = push(hidden)
    mixed = (hidden @ w) @ w
    return fetch(token, mixed) @ mixed


torch.manual_seed(0)
inputs = (torch.randn(8, 8), torch.randn(8, 8))

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
