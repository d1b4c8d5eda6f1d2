"""Energy of a million samples in float32: the order of the additions differs, so do the last digits."""
import torch

torch.manual_seed(0)
samples = torch.randn(1_000_000) * 3
window = torch.hann_window(1_000_000)


def model(samples):
    centred = samples * window - 0.01
    energy = (centred * centred).sum()
    balance = centred.sum()
    loudness = torch.log10(energy) * 10
    return energy, balance, loudness, centred.cumsum(0)[-1]


inputs = (samples,)

if __name__ == "__main__":
    expected = model(*inputs)
    got = torch.compile(model)(*inputs)
    for name, e, g in zip(("energy", "balance", "loudness", "last cumsum"), expected, got):
        print(f"{name:12s} eager {e.item():.7g} compiled {g.item():.7g}")
    assert all(torch.equal(e, g) for e, g in zip(expected, got)), "not bitwise equal"
