"""A backend with options of its own: with `fold` it gives up where a cross product meets its own folding, without it all is well."""
import torch
from torch import nn
from torch.nn import functional as F


def folding(gm, example_inputs, options=None):
    """Stands for a backend with an optional pass that knows no cross product."""
    for node in gm.graph.nodes:
        if (options or {}).get("fold") and "cross" in str(getattr(node.target, "__name__", node.target)):
            raise NotImplementedError("fold: no rule for a cross product")
    return gm.forward


class Frames(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(6, 6)
        self.fc2 = nn.Linear(9, 4)

    def forward(self, x):
        pair = x + torch.tanh(self.fc1(x))
        a, b = pair[:, :3], pair[:, 3:]
        a = F.normalize(a, dim=-1)
        b = b - a * (a * b).sum(dim=-1, keepdim=True)
        normal = torch.linalg.cross(a, b)
        frame = torch.cat([a, b, normal], dim=-1)
        return F.softmax(self.fc2(F.silu(frame)), dim=-1)


torch.manual_seed(0)
model = Frames().eval()
inputs = (torch.randn(5, 6),)

if __name__ == "__main__":
    with torch.no_grad():
        print("eager   :", model(*inputs))
        compiled = torch.compile(model, backend=folding, dynamic=False, options={"fold": True, "tile": 16, "unroll": 4})
        print("compiled:", compiled(*inputs))
