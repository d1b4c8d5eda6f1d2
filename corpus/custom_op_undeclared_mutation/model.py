"""A custom clipping op that writes to its argument without declaring it: eager reads the clipped buffer, compiled doesn't."""
import torch
from torch import nn
from torch.nn import functional as F


@torch.library.custom_op("signals::clip_and_count", mutates_args=())
def clip_and_count(signal: torch.Tensor) -> torch.Tensor:
    """Clips the signal in place (undeclared!) and returns how many samples were too loud in each row."""
    loud = (signal.abs() > 1).sum(dim=-1)
    signal.clamp_(-1, 1)
    return loud


@clip_and_count.register_fake
def _(signal):
    return signal.new_empty(signal.shape[:-1], dtype=torch.int64)


class Limiter(nn.Module):
    def __init__(self, d=10):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(d) * 3)
        self.fc = nn.Linear(d, 4)

    def forward(self, wave):
        boosted = wave * self.gain + 0.1
        loud = clip_and_count(boosted)
        level = boosted * 2
        h = F.layer_norm(self.fc(level), (4,))
        return torch.tanh(h).mean(dim=-1) * torch.exp(-loud / 10), level.amax(dim=-1)


torch.manual_seed(0)
model = Limiter().eval()
inputs = (torch.randn(5, 10),)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
