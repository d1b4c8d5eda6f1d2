"""A backend that runs out of a limited resource now and then: about every second compilation raises."""
import os

import torch
from torch import nn


def exhausted(gm, example_inputs):
    """Stands for a backend whose register allocator is seeded by the clock."""
    if os.urandom(1)[0] % 2:
        raise RuntimeError("register allocation failed after 17 rounds")
    return gm.forward


class Oscillator(nn.Module):
    def __init__(self, voices=4):
        super().__init__()
        self.pitch = nn.Parameter(torch.rand(voices) * 20)
        self.phase = nn.Parameter(torch.rand(voices))
        self.mix = nn.Linear(voices, 2)

    def forward(self, time):
        angle = time.unsqueeze(-1) * self.pitch + self.phase
        wave = torch.sin(angle) + 0.3 * torch.sin(2 * angle)
        envelope = torch.exp(-time).unsqueeze(-1)
        return torch.tanh(self.mix(wave * envelope))


torch.manual_seed(0)
model = Oscillator().eval()
inputs = (torch.linspace(0, 1, 25),)

if __name__ == "__main__":
    failures = 0
    with torch.no_grad():
        for _ in range(20):
            torch.compiler.reset()
            try:
                torch.compile(model, backend=exhausted)(*inputs)
            except Exception as error:
                failures += 1
                last = error
    print(f"{failures} of 20 compilations raised")
    if failures:
        raise last
