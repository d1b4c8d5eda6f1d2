"""Functorch's levels: whether one is active, and leaving those that were entered."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def functorch_levels_kept() -> Iterator[None]:
    """Functorch levels that are entered meanwhile and not left are left afterwards."""
    depth = _functorch_depth()
    try:
        yield
    finally:
        while _functorch_depth() > depth:
            torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)


def _functorch_depth() -> int:
    return len(torch._C._functorch.get_interpreter_stack() or ())


def functional_guard() -> bool:
    """Whether a functorch transform (vmap, grad) is active, in which case results must not be touched from outside."""
    return torch._C._functorch.peek_interpreter_stack() is not None
