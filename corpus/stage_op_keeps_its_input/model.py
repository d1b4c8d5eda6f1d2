"""A custom op that keeps its input by reference and reads it later, when Inductor has put other data into the same memory."""
import torch

KEPT = []


@torch.library.custom_op("stash::push", mutates_args=())
def push(x: torch.Tensor) -> torch.Tensor:
    KEPT[:] = [x.view(x.shape)]
    return x.sum()


@push.register_fake
def _(x):
    return x.new_empty(())


@torch.library.custom_op("stash::pop", mutates_args=())
def pop(token: torch.Tensor) -> torch.Tensor:
    return KEPT.pop().clone() + 0 * token


@pop.register_fake
def _(token):
    return token.new_empty(8, 8)


def model(x, w):
    hidden = torch.exp(x)
    token = push(hidden)
    mixed = (hidden @ w) @ w
    return pop(token + mixed.sum()) @ mixed


torch.manual_seed(0)
inputs = (torch.randn(8, 8), torch.randn(8, 8))

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
