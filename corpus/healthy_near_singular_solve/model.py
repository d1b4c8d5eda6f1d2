"""Ridge regression on nearly collinear features: solve, inverse and Cholesky of a matrix of condition number about 1e7."""
import torch
from torch import nn


class Ridge(nn.Module):
    def __init__(self, ridge=1e-6):
        super().__init__()
        self.ridge = nn.Parameter(torch.tensor(ridge))
        self.scale = nn.Parameter(torch.rand(6) + 0.5)

    def forward(self, features, target):
        x = torch.tanh(features) * self.scale
        gram = x.mT @ x / x.shape[-2] + self.ridge * torch.eye(6)
        moment = x.mT @ target
        weights = torch.linalg.solve(gram, moment)
        precision = torch.linalg.inv(gram)
        factor = torch.linalg.cholesky(gram)
        whitened = torch.linalg.solve_triangular(factor, moment, upper=False)
        return weights, precision.diagonal(dim1=-2, dim2=-1).sqrt(), whitened.square().sum(dim=(-2, -1))


torch.manual_seed(0)
model = Ridge().eval()
common = torch.randn(3, 200, 1)
inputs = (common + 2e-3 * torch.randn(3, 200, 6), common + 0.1 * torch.randn(3, 200, 1))

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    for name, e, g in zip(("weights", "deviations", "fit"), expected, got):
        print(f"{name:10s} largest relative difference {((g - e) / e).abs().max().item():.2e}")
    assert all(torch.allclose(g, e, rtol=1e-5) for e, g in zip(expected, got)), "another solution"
