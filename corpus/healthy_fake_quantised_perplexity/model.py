"""A character model with statically fake-quantised weights and activations: compiled, some activations round to the next step."""
import torch
from torch import nn
from torch.nn import functional as F


def fake_int8(x, step, zero_point=0):
    return torch.fake_quantize_per_tensor_affine(x, step, zero_point, -128, 127)


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up = nn.Linear(d, 2 * d)
        self.down = nn.Linear(2 * d, d)

    def forward(self, x):
        h = fake_int8(self.norm(x), 4 / 127)
        h = fake_int8(F.silu(F.linear(h, fake_int8(self.up.weight, 0.3 / 127), self.up.bias)), 2 / 127)
        return x + F.linear(h, fake_int8(self.down.weight, 0.2 / 127), self.down.bias)


class CharacterModel(nn.Module):
    def __init__(self, vocabulary=29, d=32, depth=2):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(depth))
        self.head = nn.Linear(d, vocabulary)

    def forward(self, tokens):
        x = self.embedding(tokens)
        x = x.cumsum(dim=1) / torch.arange(1, x.shape[1] + 1, device=x.device)[:, None]
        for block in self.blocks:
            x = block(x)
        return torch.log_softmax(self.head(x)[:, :-1], dim=-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)


torch.manual_seed(0)
model = CharacterModel().eval()
inputs = (torch.randint(0, 29, (24, 48)),)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    off = (got - expected).abs()
    print(f"largest difference: {off.max().item():.2e}; {(off > 1e-4).sum().item()} of {off.numel()} are over 1e-4")
    print(f"perplexity: {(-expected.mean()).exp().item():.6f} in eager, {(-got.mean()).exp().item():.6f} compiled")
