"""A custom transposing op whose fake kernel promises a contiguous result: the compiled model's stride check raises."""
import torch
from torch import nn
from torch.nn import functional as F


@torch.library.custom_op("grids::swap_axes", mutates_args=())
def swap_axes(grid: torch.Tensor) -> torch.Tensor:
    """A copy of the grid with its axes swapped, in the memory order of the original."""
    return grid.clone().t()


@swap_axes.register_fake
def _(grid):
    return grid.new_empty(grid.shape[1], grid.shape[0])


class GridModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.Linear(6, 6)
        self.columns = nn.Linear(4, 3)

    def forward(self, grid):
        h = torch.tanh(self.rows(grid)) + 0.5 * grid
        turned = swap_axes(h * 2)
        scores = F.softmax(self.columns(turned), dim=-1)
        return scores.sum(dim=0), torch.sigmoid(turned).amax(dim=0)


torch.manual_seed(0)
model = GridModel().eval()
inputs = (torch.randn(4, 6),)

if __name__ == "__main__":
    with torch.no_grad():
        print("eager   :", model(*inputs)[0])
        print("compiled:", torch.compile(model)(*inputs)[0])
