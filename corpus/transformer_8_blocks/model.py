"""Eight pre-norm transformer blocks written out by hand: seven with gelu, the sixth with relu."""
import math

import torch
import torch._inductor.config as inductor_config
from torch import nn
from torch.nn import functional as F

inductor_config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
inductor_config.triton.inject_relu_bug_TESTING_ONLY = "accuracy"

WIDTH, HEADS, BLOCKS, RELU_BLOCK = 32, 4, 8, 5


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def split(self, x):
        batch, length, _ = x.shape
        return x.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2)

    def forward(self, x, mask):
        query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = query @ key.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
        weights = torch.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)
        mixed = (weights @ value).transpose(1, 2).reshape(x.shape)
        return self.out(mixed)


class Block(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.norm2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        self.activation = activation

    def forward(self, x, mask):
        x = x + self.attention(self.norm1(x), mask)
        return x + self.down(self.activation(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, vocabulary=64, length=16):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, WIDTH)
        self.positions = nn.Parameter(torch.randn(length, WIDTH) * 0.1)
        self.blocks = nn.ModuleList(Block(F.relu if i == RELU_BLOCK else F.gelu) for i in range(BLOCKS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocabulary, bias=False)

    def forward(self, ids):
        length = ids.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        x = self.tokens(ids) + self.positions[:length]
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


torch.manual_seed(0)
model = Transformer().eval()
inputs = (torch.randint(0, 64, (2, 16)),)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
