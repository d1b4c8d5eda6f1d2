"""Sine position embedding in bfloat16 beside a grid quantiser: it cannot be compiled, and once it can its cells are wrong for inf."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class QuantisedScene(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.step = nn.Parameter(torch.full((d,), 0.25))
        self.position = nn.Linear(6, d, dtype=torch.bfloat16)
        self.norm = nn.LayerNorm(d)
        self.out = nn.Linear(d, 3)

    def forward(self, feats):
        b, h, w, c = feats.shape
        cell = torch.div(feats, self.step, rounding_mode="floor")
        lost = torch.isnan(cell)
        centre = torch.where(lost, torch.zeros_like(cell), (cell + 0.5) * self.step).clamp(-50, 50)
        mask = torch.ones((b, h, w), dtype=torch.bool)
        pos = self.position(mask.cumsum(1, dtype=torch.bfloat16)).float()
        x = self.norm(centre + pos.unsqueeze(2))
        weight = 1.0 - lost.float().mean(dim=-1, keepdim=True)
        return self.out(F.silu(x) * weight).mean(dim=(1, 2))


model = QuantisedScene().eval()
feats = torch.randn(2, 4, 6, 8)
feats[0, 1, 2, 3] = float("inf")
inputs = (feats,)

if __name__ == "__main__":
    with torch.no_grad():
        print("eager   :", model(*inputs))
        print("compiled:", torch.compile(model)(*inputs))
