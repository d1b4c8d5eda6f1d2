"""Records of kernels for tests: made by hand, or made wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from minify.interpret import dtype_name
from minify.kernels.record import Argument, Kernel, Memory
from minify.kernels.tensors import content, due_of

# What Inductor writes ahead of each Triton kernel.
HEAD = """
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties
triton_helpers.set_driver_to_gpu()

"""
DECORATOR = """@triton_heuristics.pointwise(
    size_hints={'x': 256},
    filename=__file__,
    triton_meta={'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'xnumel': 'i32', 'XBLOCK': 'constexpr'}},
    inductor_meta={'grid_type': 'Grid1D', 'kernel_name': 'triton_poi_fused_log1p_0', 'mutated_arg_names': []},
    min_elem_per_thread=0
)
@triton.jit
"""
POINTWISE = f"""{HEAD}{DECORATOR}def triton_poi_fused_log1p_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xnumel = 143
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    tmp1 = tl_math.abs(tmp0)
    tmp2 = libdevice.log1p(tmp1)
    tl.store(out_ptr0 + (x0), tmp2, xmask)
"""


def one_kernel(
    language: str,
    source: str,
    inputs: Mapping[str, torch.Tensor],
    output: tuple[str, torch.Tensor, torch.Tensor],
    numbers: Mapping[str, tuple[str, int]],
    **launch: Any,
) -> Kernel:
    """A record of one call: its output's name, what was seen in it and what is due, and its numbers with their C++ types."""
    name, seen, due = output
    tensors = {**inputs, name: seen}
    arguments = [
        Argument(
            each,
            type="const float*" if each in inputs else "float*",
            memory=place,
            dtype=dtype_name(tensor.dtype),
            shape=tuple(tensor.shape),
            stride=tensor.stride(),
            writes=each == name,
            buffer=f"buf{place}",
            due=due_of(due, due.double()) if each == name else None,
        )
        for place, (each, tensor) in enumerate(tensors.items())
    ]
    arguments += [Argument(each, type=declared, value=value) for each, (declared, value) in numbers.items()]
    memories = [Memory(content(tensor), content(tensor)) for tensor in inputs.values()]
    memories.append(Memory(content(torch.zeros_like(seen)), content(seen)))
    wrong = () if torch.equal(seen, due) else (name,)
    return Kernel(language, f"{language}_fused_0", source, tuple(arguments), tuple(memories), wrong, **launch)


def misread(kernel: Kernel) -> Kernel:
    """As if a compiler had lost a lane of every 32: what the kernel left there is another value."""
    argument = next(argument for argument in reversed(kernel.arguments) if argument.due)
    held = kernel.memories[argument.memory]
    after = torch.frombuffer(bytearray(held.after), dtype=getattr(torch, argument.dtype))
    after[::32] = -after[::32] - 1
    memories = list(kernel.memories)
    memories[argument.memory] = Memory(held.before, after.numpy().tobytes())
    return dataclasses.replace(kernel, memories=tuple(memories), wrong=(argument.name,))
