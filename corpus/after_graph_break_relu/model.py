"""Two-stage detector whose proposals go through numpy (a graph break); the second stage is wrong."""
import numpy as np
import torch
import torch._dynamo
import torch._inductor.config as inductor_config
from torch import nn
from torch.nn import functional as F

inductor_config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
inductor_config.triton.inject_relu_bug_TESTING_ONLY = "accuracy"


@torch._dynamo.disable
def keep_best(scores, k=4):
    """Indices of the k best proposals, picked on the host."""
    order = np.argsort(-scores.detach().cpu().numpy(), kind="stable")[:k]
    return torch.as_tensor(order.copy(), device=scores.device)


class TwoStage(nn.Module):
    def __init__(self, d=12):
        super().__init__()
        self.embed = nn.Linear(6, d)
        self.score = nn.Linear(d, 1)
        self.refine = nn.Linear(d, d)
        self.box = nn.Linear(d, 4)

    def forward(self, anchors):
        features = torch.tanh(self.embed(anchors))
        scores = torch.sigmoid(self.score(features)).squeeze(-1)
        best = keep_best(scores)
        chosen = F.layer_norm(features[best], (12,))
        refined = chosen + 0.5 * torch.relu(self.refine(chosen))
        boxes = self.box(refined).sigmoid()
        return boxes, scores[best]


torch.manual_seed(0)
detector = TwoStage().eval()
anchors = torch.randn(10, 6)

with torch.no_grad():
    expected = detector(anchors)
    got = torch.compile(detector)(anchors)
torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
print("eager and compiled agree")
