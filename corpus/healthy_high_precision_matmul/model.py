"""Feature projection with reduced-precision float32 matmuls asked for by the user ('high': TF32 where there is any)."""
import torch
from torch import nn
from torch.nn import functional as F

torch.set_float32_matmul_precision("high")


class Projection(nn.Module):
    def __init__(self, d=128):
        super().__init__()
        self.fc1 = nn.Linear(d, d)
        self.fc2 = nn.Linear(d, d)
        self.metric = nn.Parameter(torch.randn(d, d) / d**0.5)

    def forward(self, a, b):
        a = F.normalize(torch.tanh(self.fc1(a)) @ self.metric, dim=-1)
        b = F.normalize(torch.tanh(self.fc2(b)) @ self.metric, dim=-1)
        return a @ b.t()


torch.manual_seed(0)
model = Projection().eval()
inputs = (torch.randn(48, 128), torch.randn(64, 128))

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    print(f"largest difference: {(got - expected).abs().max().item():.2e}")
    assert torch.equal(got, expected), "not bitwise equal"
