"""What stands for CUDA's math library under Triton's interpreter, which cannot call it: the same functions of torch on the CPU.

Imported only where a kernel is interpreted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

# What libdevice calls otherwise than torch.
_NAMES = {
    "cyl_bessel_i0": "special.i0",
    "cyl_bessel_i1": "special.i1",
    "erfcx": "special.erfcx",
    "fabs": "abs",
    "fast_tanhf": "tanh",
    "finitef": "isfinite",
    "isfinited": "isfinite",
    "isinfd": "isinf",
    "isnand": "isnan",
    "j0": "special.bessel_j0",
    "j1": "special.bessel_j1",
    "mul_rn": "mul",
    "nearbyint": "round",
    "normcdf": "special.ndtr",
    "normcdfinv": "special.ndtri",
    "rint": "round",
    "y0": "special.bessel_y0",
    "y1": "special.bessel_y1",
}
_OWN: dict[str, Callable[..., Any]] = {
    "fma": lambda x, y, z: (x.double() * y.double() + z.double()).to(x.dtype),
    "ilogb": lambda x: torch.frexp(x).exponent - 1,
    "llrint": torch.round,
}
_ANSWERS = {
    "finitef": tl.int32,
    "ilogb": tl.int32,
    "isfinited": tl.int32,
    "isinf": tl.int32,
    "isinfd": tl.int32,
    "isnan": tl.int32,
    "isnand": tl.int32,
    "llrint": tl.int64,
    "signbit": tl.int32,
}
_NUMPY = {"int32": np.int32, "int64": np.int64, "fp16": np.float16, "fp32": np.float32, "fp64": np.float64}


class _Library:
    """Has a function for each name that torch knows. Raises AttributeError for others."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        found: Any = _OWN.get(name, torch)
        if found is torch:
            for part in _NAMES.get(name, name).split("."):
                found = getattr(found, part, None)
        if not callable(found):
            raise AttributeError(f"no stand-in for libdevice.{name}")
        return _called(found, _ANSWERS.get(name))


libdevice = _Library()


def _called(function: Callable[..., Any], answers: Any) -> Callable[..., Any]:
    """`function` on the interpreter's tensors; the result has the dtype that it `answers` with, or that of the first of them."""

    def call(*args: Any, **_: Any) -> Any:
        first = next(arg for arg in args if isinstance(arg, tl.tensor))
        scalar = first.dtype if answers is None else answers
        result = function(*map(_plain, args)).numpy().astype(_NUMPY[scalar.name])
        block = any(isinstance(arg, tl.tensor) and arg.type.is_block() for arg in args)
        return tl.tensor(TensorHandle(result, scalar), tl.block_type(scalar, list(result.shape)) if block else scalar)

    return call


def _plain(arg: Any) -> torch.Tensor:
    if isinstance(arg, tl.tensor):
        return torch.from_numpy(np.array(arg.handle.data))
    return torch.tensor(getattr(arg, "value", arg))
