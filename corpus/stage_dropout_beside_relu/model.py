"""A regressor with dropout in training mode; the relu of the generated C++ is wrong, the dropout merely random."""
import torch
import torch._inductor.config as inductor_config
from torch.nn import functional as F

inductor_config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"


def model(x, w):
    h = F.dropout(x @ w, 0.25, training=True)
    return torch.relu(h) @ w


torch.manual_seed(0)
inputs = (torch.randn(6, 8), torch.randn(8, 8))

if __name__ == "__main__":
    with torch.no_grad(), inductor_config.patch(fallback_random=True):
        torch.manual_seed(1)
        expected = model(*inputs)
        torch.manual_seed(1)
        got = torch.compile(model)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
