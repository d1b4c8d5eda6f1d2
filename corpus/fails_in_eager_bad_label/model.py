"""A labelling mistake (class 7 of 5): eager raises for the same reason as the compiled model, so the compiler isn't to blame."""
import torch
from torch import nn
from torch.nn import functional as F


class Classifier(nn.Module):
    def __init__(self, d=10, classes=5):
        super().__init__()
        self.fc1 = nn.Linear(d, d)
        self.fc2 = nn.Linear(d, classes)

    def forward(self, x, labels):
        h = F.gelu(self.fc1(x))
        log_p = torch.log_softmax(self.fc2(F.layer_norm(h, (10,))), dim=-1)
        weight = torch.sigmoid(h.mean(dim=-1))
        picked = log_p.gather(1, labels.unsqueeze(1)).squeeze(1)
        return -(picked * weight).mean()


torch.manual_seed(0)
model = Classifier().eval()
inputs = (torch.randn(6, 10), torch.tensor([0, 1, 2, 3, 4, 7]))

if __name__ == "__main__":
    with torch.no_grad():
        print("compiled:", torch.compile(model)(*inputs))
