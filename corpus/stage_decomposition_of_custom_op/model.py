"""A custom soft-clipping op; the decomposition registered for the compiler divides where it should multiply."""
import torch
from torch._inductor.decomposition import register_decomposition


@torch.library.custom_op("audio::soft_clip", mutates_args=())
def soft_clip(wave: torch.Tensor, drive: float) -> torch.Tensor:
    return torch.tanh(wave * drive)


@soft_clip.register_fake
def _(wave, drive):
    return torch.empty_like(wave)


@register_decomposition(torch.ops.audio.soft_clip.default)
def decomposed(wave, drive):
    return torch.tanh(wave / drive)


def model(wave, mix):
    loud = soft_clip(wave @ mix, 2.5)
    return torch.softmax(loud, dim=-1) @ mix


torch.manual_seed(0)
inputs = (torch.randn(6, 8), torch.randn(8, 8))

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
