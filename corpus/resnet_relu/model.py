"""Small residual conv net: stem, two stages of basic blocks, silu everywhere but in one shortcut block that kept its relu."""
import torch
import torch._inductor.config as inductor_config
from torch import nn
from torch.nn import functional as F

inductor_config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
inductor_config.triton.inject_relu_bug_TESTING_ONLY = "accuracy"


class BasicBlock(nn.Module):
    def __init__(self, in_channels, channels, stride, activation=F.silu):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = None
        if stride != 1 or in_channels != channels:
            self.shortcut = nn.Sequential(nn.Conv2d(in_channels, channels, 1, stride), nn.BatchNorm2d(channels))
        self.activation = activation

    def forward(self, x):
        y = self.activation(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y = y + (x if self.shortcut is None else self.shortcut(x))
        return self.activation(y)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 7, 2, 3, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.stage1 = nn.Sequential(BasicBlock(8, 8, 1), BasicBlock(8, 8, 1))
        self.stage2 = nn.Sequential(BasicBlock(8, 16, 2, activation=F.relu), BasicBlock(16, 16, 1))
        self.head = nn.Linear(16, 10)

    def forward(self, images):
        x = F.max_pool2d(F.silu(self.bn(self.stem(images))), 3, 2, 1)
        x = self.stage2(self.stage1(x))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


torch.manual_seed(0)
model = ResNet().eval()
inputs = (torch.randn(2, 3, 32, 32),)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
