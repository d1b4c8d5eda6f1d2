"""AOTAutograd: what it breaks ops down into, and tracing where it takes fake examples as they are."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Sequence
from typing import Any


def inductor_decompositions() -> dict[Any, Callable[..., Any]]:
    """What Inductor has AOTAutograd break ops down into."""
    return importlib.import_module("torch._inductor.decomposition").select_decomp_table()  # type: ignore[no-any-return]


def tracing_like(examples: Sequence[Any]) -> contextlib.AbstractContextManager[Any]:
    """Where AOTAutograd takes fake `examples` as they are, symbolic sizes included."""
    from torch._guards import TracingContext, tracing
    from torch._subclasses import FakeTensor

    modes = [example.fake_mode for example in examples if isinstance(example, FakeTensor)]
    return tracing(TracingContext(modes[0]) if modes else None)
