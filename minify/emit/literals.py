"""Recorded values small enough to be read, written out as numbers.

Owns which elements a literal lists and how few digits they need. Reads the store of recorded values, writes nothing.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from minify import inputs as input_text
from minify import store
from minify.case import Case, Input, Recipe, Recorded, ScalarInput, TensorMeta, canonical, is_contiguous, numel

if TYPE_CHECKING:  # where nothing recorded is left, no torch is needed
    import torch

Number: TypeAlias = "bool | int | float | complex"
EXACT = ""
SPECIAL_ONLY = "special only"
WAYS = (SPECIAL_ONLY, ".1g", ".2g")
_MOST_DIGITS = 17  # enough for any double


def inline_values(case: Case, root: Path, limit: int = 64) -> Case:
    """`case` with each recorded value of at most `limit` storage elements turned into a literal of the same bits
    (a NaN's payload apart); larger ones stay recorded. `root` is the store they are in."""
    shared = {number for number, members in input_text.groups(case).items() if len(members) > 1}

    def inlined(item: Input | ScalarInput) -> Input | ScalarInput:
        if not isinstance(item, Input) or not isinstance(item.value, Recorded):
            return item
        from minify.replay import elements, lay_out

        storage = elements(store.load_storage(root, item.value.digest), item)
        if item.meta.storage not in shared:
            storage = store.storage_of(lay_out(storage, item))
        listed = _listed(storage, item.meta, shared=item.meta.storage in shared)
        if listed.numel() > limit:
            return item
        return dataclasses.replace(item, value=Recipe("literal", numbers(listed)))

    return dataclasses.replace(case, inputs=tuple(inlined(item) for item in case.inputs))


def plainer_literals(case: Case) -> tuple[str, ...]:
    """The ways in which the floats of its literals can be plainer, the boldest first: what is special among zeros, few
    digits, more. Each comes to a case of its own."""
    found = {EXACT: case}
    for way in WAYS if _special(case) else WAYS[1:]:
        changed = with_plainer_literals(case, way)
        if all(canonical(changed) != canonical(other) for other in found.values()):
            found[way] = changed
    return tuple(way for way in found if way != EXACT)


def with_plainer_literals(case: Case, way: str) -> Case:
    """`case` with each ordinary float of its literals as `way` has it."""

    def number(value: Number) -> Number:
        if way == EXACT or not isinstance(value, float) or not _ordinary(value):
            return value
        return 0.0 if way == SPECIAL_ONLY else float(f"{value:{way}}")

    def item(one: Input | ScalarInput) -> Input | ScalarInput:
        held = _literal(one)
        if held is None or not isinstance(one.value, Recipe):
            return one
        return dataclasses.replace(one, value=dataclasses.replace(one.value, args=tuple(map(number, held))))

    return dataclasses.replace(case, inputs=tuple(map(item, case.inputs)))


def _special(case: Case) -> bool:
    held = [number for item in case.inputs for number in _literal(item) or ()]
    return any(isinstance(number, float) and not _ordinary(number) for number in held)


def _literal(item: Input | ScalarInput) -> tuple[Number, ...] | None:
    """The numbers of an input that are written out."""
    value = item.value
    return value.args if isinstance(value, Recipe) and value.kind in ("literal", "full") else None


def _ordinary(number: float) -> bool:
    """Neither inf nor NaN nor -0.0."""
    return math.isfinite(number) and (number != 0 or math.copysign(1, number) > 0)


def _listed(storage: torch.Tensor, meta: TensorMeta, *, shared: bool) -> torch.Tensor:
    """The elements that the text of an input lists: of a row-major tensor its own, of any other the whole storage."""
    import torch

    wanted = numel(meta.shape) if is_contiguous(meta) and not shared else meta.storage_size
    missing = wanted - storage.numel()
    return torch.cat([storage, storage.new_zeros(missing)]) if missing > 0 else storage[:wanted]


def numbers(flat: torch.Tensor) -> tuple[Number, ...]:
    """Python numbers that give the elements of a 1-D tensor back exactly, with as few digits as that takes."""
    import torch

    if flat.is_complex():
        parts = torch.view_as_real(flat.resolve_conj()).reshape(-1)
        reals = [float(part) for part in numbers(parts)]  # type: ignore[arg-type]
        return tuple(complex(real, imag) for real, imag in zip(reals[::2], reals[1::2], strict=True))
    if not flat.is_floating_point():
        return tuple(flat.tolist())
    return tuple(_shortest(flat))


def _shortest(flat: torch.Tensor) -> list[float]:
    import torch

    exact: list[float] = flat.tolist()
    short = list(exact)
    open_ = {position for position, value in enumerate(exact) if math.isfinite(value)}
    for digits in range(1, _MOST_DIGITS):
        guesses = {position: float(f"{exact[position]:.{digits}g}") for position in sorted(open_)}
        back = torch.tensor(list(guesses.values()), dtype=torch.float64).to(flat.dtype).tolist()
        for position, guess, value in zip(guesses, guesses.values(), back, strict=True):
            if value == exact[position]:
                short[position] = guess
                open_.discard(position)
    return short
