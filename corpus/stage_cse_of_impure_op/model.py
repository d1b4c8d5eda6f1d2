"""An op that counts up the tensor it is given and does not say so: two equal calls of it are merged into one."""
import torch


@torch.library.custom_op("counters::tick", mutates_args=())
def tick(state: torch.Tensor) -> torch.Tensor:
    state.add_(1)
    return state.clone()


@tick.register_fake
def _(state):
    return torch.empty_like(state)


def model(x, w):
    state = w.detach() * 0
    first = tick(state)
    second = tick(state)
    return (x @ w) * first + (w @ x) * second


torch.manual_seed(0)
inputs = (torch.randn(8, 8, requires_grad=True), torch.randn(8, 8))

if __name__ == "__main__":
    expected = model(*inputs)
    got = torch.compile(model)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
