"""Shrink dims: what is one size becomes smaller everywhere, with the dims and numbers that follow from it.

May lose: sizes that decide (a vector's length, a tile, a split reduction), a size that is no multiple of something, and
elements of real data. Inputs with a shared storage are left alone, and so are values that are not recorded yet.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from minify.case import Case
from minify.passes.contract import Pass, Site
from minify.passes.resize import shrink
from minify.passes.size_classes import Scope, Shrink, SizeClass, size_classes, unlikely_classes

TELLING = (1, 2, 8, 32)  # what is enough for most, and widths of vectors
BOLD = (1, 2)
LEAST_WIDTH = 8


def find(case: Case) -> tuple[Site, ...]:
    """All classes at once to 1, then 2; then each class to 1, each to 2, and each to the larger sizes that tell most; the ends of
    recorded data; at last what shrinks together or alone against expectation."""
    classes = size_classes(case)
    sites = [*_together(classes)]
    sites += [one.at(new, scope) for new in BOLD for one in classes if new in sizes_below(one) for scope in one.scopes]
    sites += [
        one.at(new, scope) for one in classes for new in sizes_below(one) if new not in BOLD for scope in one.scopes
    ]
    sites += [
        one.at(new, scope, last=True)
        for one in classes
        if one.recorded
        for new in sizes_below(one, ())
        for scope in one.scopes
    ]
    for one in unlikely_classes(case, classes):
        sites += [one.at(new, scope) for new in sizes_below(one, (one.least,)) for scope in one.scopes]
    return tuple((site,) for site in dict.fromkeys(sites))


def _together(classes: Sequence[SizeClass]) -> Iterator[Shrink]:
    scopes: list[Scope] = ["alone"]
    if any("numbers" in one.scopes for one in classes):
        scopes.insert(0, "numbers")
    for new in BOLD:
        sizes = tuple(
            (key, max(new, one.least)) for one in classes if one.size > max(new, one.least) for key in one.keys
        )
        if len(sizes) > 1:
            yield from (Shrink(sizes, scope) for scope in scopes)


def sizes_below(one: SizeClass, telling: tuple[int, ...] = TELLING) -> tuple[int, ...]:
    """The sizes worth trying: some that tell most, half, one less. What lies between, `between` finds."""
    sizes = {*telling, one.size // 2, one.size - 1}
    return tuple(sorted(size for size in sizes if one.least <= size < one.size))


def between(turned_down: Sequence[Site], accepted: Site) -> Site | None:
    """The site half-way between the one that was accepted and the next smaller one of its kind: at the size it was turned down
    for, a smaller one is taken to be turned down as well."""
    (edit,) = accepted
    assert isinstance(edit, Shrink)
    lower = [_uniform(other) for (other,) in turned_down if isinstance(other, Shrink) and _kind(other) == _kind(edit)]
    high = _uniform(edit)
    low = max((size for size in lower if size < high), default=1)
    middle = _middle(low, high)
    return (dataclasses.replace(edit, sizes=tuple((key, middle) for key, _ in edit.sizes)),) if middle else None


def _kind(edit: Shrink) -> tuple[object, ...]:
    return tuple(key for key, _ in edit.sizes), edit.scope, edit.last


def _uniform(edit: Shrink) -> int:
    """The size that all keys take; 0 where they take several."""
    sizes = {new for _, new in edit.sizes}
    return sizes.pop() if len(sizes) == 1 else 0


def _middle(low: int, high: int) -> int:
    """A size between two, 0 where there is none: near the middle one just above the width of a vector, since what goes wrong
    most likely does so there, and then that width itself."""
    if high - low < 2:
        return 0
    quarter = (high - low) // 4
    middle, width = (low + high) // 2, LEAST_WIDTH
    while width < high:
        if low < width == high - 1:
            return width
        if low < width + 1 < high and (width == low or low + quarter <= width + 1 <= high - quarter):
            middle = width + 1
        width *= 2
    return middle


def rewrite(case: Case, sites: tuple[Site, ...]) -> Case:
    for (edit,) in sites:
        assert isinstance(edit, Shrink)
        case = shrink(case, edit)
    return case


SHRINK_DIMS = Pass("dims", find, rewrite, alternatives=True, polish=True, sized=True, between=between)
