"""Bottleneck residual block with squeeze-and-excite, channels-last, relu in the gate."""
import torch
import torch._inductor.config as inductor_config
from torch import nn
from torch.nn import functional as F

inductor_config.cpp.inject_relu_bug_TESTING_ONLY = "runtime_error"
inductor_config.triton.inject_relu_bug_TESTING_ONLY = "runtime_error"


class Bottleneck(nn.Module):
    def __init__(self, channels=16, inner=8):
        super().__init__()
        self.reduce = nn.Conv2d(channels, inner, 1)
        self.spatial = nn.Conv2d(inner, inner, 3, padding=1)
        self.expand = nn.Conv2d(inner, channels, 1)
        self.norm1 = nn.GroupNorm(2, inner)
        self.norm2 = nn.GroupNorm(4, channels)
        self.squeeze = nn.Linear(channels, 4)
        self.excite = nn.Linear(4, channels)

    def forward(self, x):
        y = F.silu(self.norm1(self.reduce(x)))
        y = F.silu(self.spatial(y))
        y = self.norm2(self.expand(y))
        gate = torch.relu(self.squeeze(y.mean(dim=(2, 3))))
        gate = torch.sigmoid(self.excite(gate))
        return F.silu(x + y * gate[:, :, None, None])


torch.manual_seed(0)
block = Bottleneck().to(memory_format=torch.channels_last).eval()
x = torch.randn(2, 16, 12, 12).to(memory_format=torch.channels_last)
with torch.no_grad():
    print("eager   :", block(x).std().item())
    print("compiled:", torch.compile(block)(x).std().item())
