"""Training with dropout: the compiled run draws other random masks than eager does, so the losses differ. No bug."""
import copy

import torch
from torch import nn
from torch.nn import functional as F


class Tagger(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.embed = nn.Embedding(60, d)
        self.mix = nn.Linear(d, d)
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, 7)

    def forward(self, ids, tags):
        h = F.dropout(self.embed(ids), 0.2, self.training)
        h = self.norm(h + F.dropout(F.gelu(self.mix(h)), 0.3, self.training))
        return F.cross_entropy(self.head(h).flatten(0, 1), tags.flatten())


def losses(net, forward, ids, tags):
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    found = []
    for _ in range(3):
        loss = forward(ids, tags)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


torch.manual_seed(0)
net = Tagger()
twin = copy.deepcopy(net)
ids, tags = torch.randint(0, 60, (8, 10)), torch.randint(0, 7, (8, 10))
expected = losses(net, net, ids, tags)
got = losses(twin, torch.compile(twin), ids, tags)
print("eager   :", expected)
print("compiled:", got)
assert abs(expected[-1] - got[-1]) < 1e-4, "the compiled model trains differently"
