"""Image-text contrastive loss with a pairwise sigmoid (as in SigLIP): loss and gradients are off."""
import torch
import torch._inductor.config as inductor_config
from torch import nn
from torch.nn import functional as F

inductor_config.cpp.inject_log1p_bug_TESTING_ONLY = "accuracy"


class PairLoss(nn.Module):
    def __init__(self, d=12):
        super().__init__()
        self.image = nn.Linear(20, d)
        self.text = nn.Linear(10, d)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.bias = nn.Parameter(torch.tensor(-2.0))

    def forward(self, images, texts):
        a = F.normalize(self.image(images), dim=-1)
        b = F.normalize(self.text(texts), dim=-1)
        logits = a @ b.t() * self.scale.exp() + self.bias
        sign = 2 * torch.eye(logits.shape[0]) - 1
        return -F.logsigmoid(sign * logits).sum(dim=-1).mean()


torch.manual_seed(0)
pair_loss = PairLoss()
images, texts = torch.randn(8, 20), torch.randn(8, 10)

expected = pair_loss(images, texts)
got = torch.compile(pair_loss)(images, texts)
print(f"eager {expected.item():.6f}, compiled {got.item():.6f}")
raise SystemExit(abs(expected.item() - got.item()) > 1e-3)
