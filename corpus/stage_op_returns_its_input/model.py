"""An op that says it makes a new tensor and returns its input: what is written to the result shows in the input, but in eager only."""
import torch

library = torch.library.Library("views", "DEF")
library.define("pass_through(Tensor x) -> Tensor")


@torch.library.impl(library, "pass_through", "CPU")
def pass_through(x):
    return x


@torch.library.impl(library, "pass_through", "Meta")
def pass_through_meta(x):
    return torch.empty_like(x)


def model(x, w):
    h = x @ w
    view = torch.ops.views.pass_through(h)
    view.mul_(0.5)
    return h @ w


torch.manual_seed(0)
inputs = (torch.randn(6, 8), torch.randn(8, 8))

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
