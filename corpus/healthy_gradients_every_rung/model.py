"""A tanh layer with gradients: forward and backward are right at every stage. No bug."""
import torch


def model(x, w):
    return torch.tanh(x @ w) @ w


torch.manual_seed(0)
inputs = (torch.randn(8, 8, requires_grad=True), torch.randn(8, 8))

if __name__ == "__main__":
    (expected,) = torch.autograd.grad(model(*inputs).sum(), inputs[:1])
    (got,) = torch.autograd.grad(torch.compile(model)(*inputs).sum(), inputs[:1])
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
