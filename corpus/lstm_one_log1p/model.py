"""Forecast of count series: log-compressed counts, an LSTM cell unrolled over time, a linear head."""
import torch
import torch._inductor.config as inductor_config
from torch import nn

inductor_config.cpp.inject_log1p_bug_TESTING_ONLY = "accuracy"


class LSTMForecast(nn.Module):
    def __init__(self, features=3, hidden=16):
        super().__init__()
        self.hidden = hidden
        self.gates_in = nn.Linear(features, 4 * hidden)
        self.gates_hidden = nn.Linear(hidden, 4 * hidden, bias=False)
        self.head = nn.Linear(hidden, features)

    def step(self, x, h, c):
        i, f, g, o = (self.gates_in(x) + self.gates_hidden(h)).chunk(4, dim=-1)
        c = torch.sigmoid(f + 1.0) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

    def forward(self, counts):
        series = torch.log1p(counts)
        h = c = torch.zeros(counts.shape[0], self.hidden)
        forecasts = []
        for t in range(counts.shape[1]):
            h, c = self.step(series[:, t], h, c)
            forecasts.append(self.head(h))
        return torch.stack(forecasts, dim=1)


torch.manual_seed(0)
model = LSTMForecast().eval()
inputs = (torch.randint(0, 30, (4, 6, 3)).float(),)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
