"""A saturated gate picks its strongest unit in float32: near 1 a tanh rounds to the same few numbers, and ties decide."""
import torch
from torch import nn


class StrongestUnit(nn.Module):
    def __init__(self, d=32, units=48):
        super().__init__()
        self.gate = nn.Linear(d, units)
        self.scale = nn.Parameter(torch.full((units,), 6.0))

    def forward(self, x):
        open_ = torch.tanh(self.gate(x) * self.scale)
        steps = (torch.nn.functional.layer_norm(x, (x.shape[-1],)) * 1e5).to(torch.int64)
        return open_.argmax(dim=-1), steps


torch.manual_seed(0)
model = StrongestUnit().eval()
inputs = (torch.randn(512, 32) * 2,)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    print([f"{(a != b).sum().item()} of {a.numel()} differ" for a, b in zip(got, expected)])
