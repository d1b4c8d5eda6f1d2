"""A small block with a custom op, dropout and custom passes that change nothing, compiled with autotuning. No bug at any stage."""
import torch
import torch._inductor.config as inductor_config
from torch._inductor.decomposition import register_decomposition
from torch.nn import functional as F


def look(graph):
    return None


inductor_config.joint_custom_pre_pass = look
inductor_config.post_grad_custom_post_pass = look


@torch.library.custom_op("block::halve", mutates_args=())
def halve(x: torch.Tensor) -> torch.Tensor:
    return x / 2


@halve.register_fake
def _(x):
    return torch.empty_like(x)


@register_decomposition(torch.ops.block.halve.default)
def decomposed(x):
    return x * 0.5


def model(x, w):
    h = F.dropout(halve(x @ w), 0.25, training=True)
    return F.layer_norm(F.gelu(h), (8,)) @ w


torch.manual_seed(0)
inputs = (torch.randn(6, 8), torch.randn(8, 8))

if __name__ == "__main__":
    with torch.no_grad(), inductor_config.patch(fallback_random=True):
        torch.manual_seed(1)
        expected = model(*inputs)
        torch.manual_seed(1)
        got = torch.compile(model, mode="max-autotune-no-cudagraphs")(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
