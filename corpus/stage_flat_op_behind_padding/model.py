"""A custom op that reads its input's memory front to back, with Inductor's padding of long rows turned on for the CPU as well."""
import torch
import torch._inductor.config as inductor_config

inductor_config.disable_padding_cpu = False
inductor_config.pad_outputs = True


@torch.library.custom_op("flat::alternating_sum", mutates_args=(), tags=(torch.Tag.flexible_layout,))
def alternating_sum(x: torch.Tensor) -> torch.Tensor:
    memory = x.as_strided((x.numel(),), (1,))
    return memory[::2].sum() - memory[1::2].sum()


@alternating_sum.register_fake
def _(x):
    return x.new_empty(())


def model(x, y):
    return alternating_sum(torch.exp(x) + y) / 10


torch.manual_seed(0)
inputs = (torch.randn(4, 1043), torch.randn(4, 1043))

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
