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
    "fabs": "abs",
    "isinfd": "isinf",
    "isnand": "isnan",
    "rint": "round",
    "nearbyint": "round",
    "erfcinv": "",
    "tgamma": "",
    "fmax": "fmax",
    "cyl_bessel_i0": "special.i0",
    "cyl_bessel_i1": "special.i1",
    "j0": "special.bessel_j0",
    "j1": "special.bessel_j1",
    "y0": "special.bessel_y0",
    "y1": "special.bessel_y1",
    "erfcx": "special.erfcx",
    "normcdf": "special.ndtr",
    "normcdfinv": "special.ndtri",
}
_ANSWERS_INTEGERS = ("isnan", "isinf", "isfinited", "finitef", "signbit", "isnand", "isinfd")
_ROUND_TO_INTEGER: dict[str, Callable[..., Any]] = {
    "llrint": torch.round,
    "llround": lambda x: torch.trunc(x + torch.sign(x) * 0.5),
}


class _Library:
    """Has a function for each name that torch knows. Raises AttributeError for others."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in _ROUND_TO_INTEGER:
            return _called(_ROUND_TO_INTEGER[name], tl.int64)
        found: Any = torch
        for part in _NAMES.get(name, name).split("."):
            found = getattr(found, part, None)
        if not callable(found):
            raise AttributeError(f"no stand-in for libdevice.{name}")
        return _called(found, tl.int32 if name in _ANSWERS_INTEGERS else None)


libdevice = _Library()


def _called(function: Callable[..., Any], dtype: Any) -> Callable[..., Any]:
    """`function` on the interpreter's tensors; the result has the dtype of the first, or `dtype`."""

    def call(*args: Any, **_: Any) -> Any:
        first = next(arg for arg in args if isinstance(arg, tl.tensor))
        values = [
            torch.from_numpy(np.array(arg.handle.data)) if isinstance(arg, tl.tensor) else torch.tensor(arg)
            for arg in args
        ]
        scalar = first.dtype if dtype is None else dtype
        result = function(*values).numpy()
        kind = _NUMPY.get(scalar.name)
        shape = list(first.shape)
        handle = TensorHandle(result if kind is None else result.astype(kind), scalar)
        return tl.tensor(handle, tl.block_type(scalar, shape) if shape else scalar)

    return call


_NUMPY = {"int32": np.int32, "int64": np.int64, "fp32": np.float32, "fp64": np.float64, "fp16": np.float16}
