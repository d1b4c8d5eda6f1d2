"""Block dequantisation, then a grid quantiser after a graph break: the first gives another dtype, the second other values."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Requantise(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.exp_bias = nn.Parameter(torch.randn(d))
        self.step = nn.Parameter(torch.full((d,), 0.25))
        self.fc = nn.Linear(d, d)
        self.out = nn.Linear(d, 2)

    def forward(self, mantissa, x):
        exponent = torch.tanh(self.fc(x)) + self.exp_bias
        value = torch.ldexp(mantissa, exponent)
        gate = torch.sigmoid(F.gelu(x).mean(dim=-1, keepdim=True))
        torch._dynamo.graph_break()
        cell = torch.div(value.float(), self.step, rounding_mode="floor")
        lost = torch.isnan(cell)
        centre = torch.where(lost, torch.zeros_like(cell), (cell + 0.5) * self.step).clamp(-50, 50)
        return value, self.out(F.layer_norm(centre, (6,)) * gate)


model = Requantise().eval()
mantissa = torch.randn(4, 6).half()
mantissa[2, 1] = float("inf")
inputs = (mantissa, torch.randn(4, 6))

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    print(f"dtype: eager {expected[0].dtype}, compiled {got[0].dtype}")
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3, equal_nan=True)
