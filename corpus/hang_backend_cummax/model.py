"""Peak-hold meter compiled by a backend whose scheduler never terminates when there is a cummax."""
import time

import torch
from torch import nn


def scheduling_backend(gm, example_inputs):
    """Stands for a scheduler that waits for a dependency nobody will ever produce."""
    pending = [node for node in gm.graph.nodes if "cummax" in str(node.target)]
    while pending:
        time.sleep(0.05)
    return gm.forward


class PeakMeter(nn.Module):
    def __init__(self):
        super().__init__()
        self.smooth = nn.Conv1d(2, 2, 5, padding=2)
        self.gain = nn.Parameter(torch.tensor([0.9, 1.1]))

    def forward(self, wave):
        level = self.smooth(wave).abs() * self.gain.view(1, 2, 1)
        decibel = 20 * torch.log10(level + 1e-4)
        peak, _ = torch.cummax(decibel, dim=-1)
        headroom = torch.relu(6 - peak)
        return headroom.mean(dim=-1), (decibel - peak).clamp(min=-40)


torch.manual_seed(0)
model = PeakMeter().eval()
inputs = (torch.randn(1, 2, 32),)

if __name__ == "__main__":
    with torch.no_grad():
        print("eager   :", model(*inputs)[0])
        print("compiled:", torch.compile(model, backend=scheduling_backend)(*inputs)[0])
