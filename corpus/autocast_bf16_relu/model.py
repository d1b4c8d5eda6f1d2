"""Recommender tower under bfloat16 autocast: embeddings, crossed features, a relu hidden layer."""
import torch
import torch._inductor.config as inductor_config
from torch import nn
from torch.nn import functional as F

inductor_config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
inductor_config.triton.inject_relu_bug_TESTING_ONLY = "accuracy"


class Tower(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.items = nn.Embedding(50, d)
        self.users = nn.Embedding(20, d)
        self.fc1 = nn.Linear(3 * d, 2 * d)
        self.fc2 = nn.Linear(2 * d, 1)

    def forward(self, user, item):
        u, i = self.users(user), self.items(item)
        crossed = torch.cat([u, i, u * i], dim=-1)
        hidden = F.relu(self.fc1(crossed))
        return torch.sigmoid(self.fc2(hidden).float()).squeeze(-1)


torch.manual_seed(0)
tower = Tower().eval()
user, item = torch.randint(0, 20, (24,)), torch.randint(0, 50, (24,))
device_type = tower.items.weight.device.type

with torch.no_grad(), torch.autocast(device_type, dtype=torch.bfloat16):
    expected = tower(user, item)
    got = torch.compile(tower)(user, item)
worst = (expected - got).abs().max().item()
print(f"largest difference of the click probability: {worst:.4f}")
assert worst < 1e-2, "compiled model ranks differently"
