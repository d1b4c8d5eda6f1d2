"""Point-cloud features with a custom neighbour-distance op; the culprit is the relu beside it, not the custom op."""
import torch
import torch._inductor.config as inductor_config
from torch import nn
from torch.nn import functional as F

inductor_config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
inductor_config.triton.inject_relu_bug_TESTING_ONLY = "accuracy"


@torch.library.custom_op("points::nearest_distance", mutates_args=())
def nearest_distance(points: torch.Tensor) -> torch.Tensor:
    """Distance of each point to its nearest neighbour."""
    distances = (points[:, None] - points[None, :]).norm(dim=-1)
    distances.fill_diagonal_(float("inf"))
    return distances.amin(dim=1)


@nearest_distance.register_fake
def _(points):
    return points.new_empty(points.shape[0])


class PointNet(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.embed = nn.Linear(3, d)
        self.head = nn.Linear(d + 1, 2)

    def forward(self, points):
        centred = points - points.mean(dim=0)
        density = torch.exp(-nearest_distance(centred)).unsqueeze(-1)
        features = F.relu(self.embed(centred))
        features = F.layer_norm(features, (8,))
        return self.head(torch.cat([features, density], dim=-1)).mean(dim=0)


torch.manual_seed(0)
model = PointNet().eval()
inputs = (torch.randn(12, 3),)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
