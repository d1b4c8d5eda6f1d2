"""A gated layer that picks one of two experts with torch.cond; the culprit is inside the branch taken."""
import torch
import torch._inductor.config as inductor_config
from torch import nn
from torch.nn import functional as F

inductor_config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
inductor_config.triton.inject_relu_bug_TESTING_ONLY = "accuracy"


class Gated(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.inp = nn.Linear(d, d)
        self.out = nn.Linear(d, 3)

    def forward(self, x, warm):
        h = torch.tanh(self.inp(x))
        h = torch.cond(warm.sum() > 0, lambda t: torch.relu(t) * 2, lambda t: torch.cos(t) - 0.5, (h,))
        h = F.layer_norm(h, (8,))
        return self.out(h).softmax(dim=-1)


torch.manual_seed(0)
model = Gated().eval()
inputs = (torch.randn(5, 8), torch.ones(3))

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
