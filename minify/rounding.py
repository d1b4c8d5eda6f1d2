"""Eager as it might have been: inputs, or results in between, moved by a unit or two in the last place.

What that does to a result too is rounding's doing and no compiler's. Owns how values are moved, and which.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch

from minify import store, torch_internals
from minify.interpret import leaves

_MOST_COMPARED = 1 << 22  # elements; of more, each float counts as computed


HALF = (torch.float16, torch.bfloat16)


def shaken_values(values: tuple[Any, ...], seed: int, *, half: bool = True) -> tuple[Any, ...]:
    """`values`, each tensor moved in place; with `half` False not those of half precision."""
    coin = torch.Generator().manual_seed(seed + 1)
    for value in values:
        moves = isinstance(value, torch.Tensor) and (half or value.dtype not in HALF)
        if moves and not torch_internals.is_zerotensor(value):
            shake(value, coin)
    return values


def shake(value: torch.Tensor, coin: torch.Generator) -> None:
    """Move each element of the memory under `value` by one unit in the last place, up or down."""
    with torch.no_grad():
        flat = store.storage_of(value)
        flat = torch.view_as_real(flat) if flat.is_complex() else flat
        if not flat.is_floating_point():
            return
        up = torch.randint(0, 2, flat.shape, generator=coin, dtype=torch.int8).to(flat.device).bool()
        limit = torch.full_like(flat, float("inf"))
        with contextlib.suppress(RuntimeError, NotImplementedError):
            moved = torch.nextafter(flat, torch.where(up, limit, -limit))
            flat.copy_(torch.where(flat.isfinite() & (flat != 0) & moved.isfinite(), moved, flat))


def round_otherwise(value: Any, operands: Sequence[torch.Tensor], coin: torch.Generator) -> None:
    """Move each float that an op computed by two units in the last place, up or down, where it lies in memory of its own. A
    result that only picks among its operands (relu, a gather) is exact, and stays."""
    taken = {memory_of(tensor) for tensor in operands}
    for tensor in leaves(value):
        if tensor.is_floating_point() and tensor.numel() and memory_of(tensor) not in {None, *taken}:
            with torch.no_grad():
                bare = tensor.detach()
                if not _picked(bare, operands):
                    shake(bare, coin)
                    shake(bare, coin)


def _picked(value: torch.Tensor, operands: Sequence[torch.Tensor]) -> bool:
    known = [tensor.detach().double().reshape(-1) for tensor in operands if tensor.is_floating_point()]
    if not known or value.numel() + sum(part.numel() for part in known) > _MOST_COMPARED:
        return False
    return bool(torch.isin(value.double(), torch.cat([*known, value.new_zeros(1).double()])).all())


def memory_of(tensor: torch.Tensor) -> int | None:
    """Equal for tensors in the same memory; None where there is none to speak of."""
    if tensor.layout is not torch.strided or torch_internals.is_zerotensor(tensor):
        return None
    try:
        return torch_internals.storage_key(tensor)
    except (RuntimeError, NotImplementedError):
        return None


def same_draw(value: Any, eager: Any) -> bool:
    """Whether two results of a random op are the same draw, rounding apart."""
    for ours, theirs in zip(leaves(value), leaves(eager), strict=True):
        if not (theirs.is_floating_point() or theirs.is_complex()):
            if not torch.equal(ours, theirs):
                return False
            continue
        bound = 0.05 if theirs.dtype in (torch.float16, torch.bfloat16, torch.complex32) else 1e-3
        if not torch.allclose(ours.to(theirs.dtype), theirs, rtol=bound, atol=bound / 100, equal_nan=True):
            return False
    return True
