"""Give some sizes of a program others: in its inputs, in the numbers of its calls, and in what bounds random integers.

May lose: elements of real data. Keeps the order of strides, gaps, expanded dims, offsets, and dynamic dims at 2 or more.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

from minify.case import (
    Arg,
    Case,
    Input,
    Op,
    Recipe,
    Recorded,
    ScalarInput,
    TensorMeta,
    Value,
    Window,
    digest,
    rewrite_op,
)
from minify.errors import InvalidCandidate
from minify.passes.layout import resized
from minify.passes.prune import with_graph
from minify.passes.size_classes import Shrink, is_whole, loose_numbers, numbers, shrinkable
from minify.sizes import Place


def shrink(case: Case, edit: Shrink) -> Case:
    """`case` with the sizes that `edit` names; they may be larger, too. Raises InvalidCandidate where what follows from them is
    no size."""
    changes, free = _changes(case, edit)
    bounds = _bounds(case, edit)
    ops = tuple(_with_numbers(op, changes) for op in case.graph.ops)
    inputs = tuple(_with_size(item, changes, bounds, last=edit.last) for item in case.inputs)
    smaller = dataclasses.replace(with_graph(case, ops, case.graph.outputs), inputs=inputs, sizes=None)
    if not free or case.sizes is None:
        return smaller
    known = tuple((name, free.get(name, size)) for name, size in case.sizes.free)
    return dataclasses.replace(smaller, sizes=dataclasses.replace(case.sizes, of=digest(smaller), free=known))


def _changes(case: Case, edit: Shrink) -> tuple[dict[Place, int], dict[str, int]]:
    """What places come to, and what the free sizes behind them do, where only such have changed."""
    free = {key: new for key, new in edit.sizes if isinstance(key, str)}
    places = {key: new for key, new in edit.sizes if isinstance(key, tuple)}
    if len(free) < len(edit.sizes):
        places = _everywhere(case, edit) | places
    if not free:
        return places, {}
    following, free = _following(case, free, edit)
    return places | following, free if not places else {}


def _everywhere(case: Case, edit: Shrink) -> dict[Place, int]:
    """All dims of the sizes that are keys, and the numbers that go with them."""
    dims = {(item.name, dim): size for item in shrinkable(case) for dim, size in enumerate(item.meta.shape)}
    held = dims if edit.scope == "alone" else dims | numbers(case)
    return {place: new for place, number in held.items() if (new := scaled(number, edit)) != number}


def scaled(number: int, edit: Shrink) -> int:
    """What a size or a number becomes."""
    for old, new in edit.sizes:
        if number == old:
            return new
        if edit.scope == "multiples" and isinstance(old, int) and number > old and number % old == 0:
            return number // old * new
    return number


def _following(case: Case, free: dict[str, int], edit: Shrink) -> tuple[dict[Place, int], dict[str, int]]:
    """What follows from free sizes. Numbers that nothing ties to them change in proportion where they change at all."""
    assert case.sizes is not None
    now, loose = dict(case.sizes.free), dict[Place, int]()
    if edit.scope != "alone":
        for name, new in free.items():
            for place, number in loose_numbers(case, name).items():
                loose.setdefault(place, max(1, number * new // now[name]))
    free = free | {case.sizes.name(place): new for place, new in loose.items() if case.sizes.name(place) in now}
    try:
        return loose | case.sizes.at(free), free
    except ValueError as error:
        raise InvalidCandidate(str(error)) from error


def _bounds(case: Case, edit: Shrink) -> Shrink:
    """The edit by the numbers that its keys are now, for what bounds random integers."""
    now = {} if case.sizes is None else dict(case.sizes.free)
    pairs = [(now[key] if isinstance(key, str) else key, new) for key, new in edit.sizes if not isinstance(key, tuple)]
    return dataclasses.replace(edit, sizes=tuple(pairs))


def _with_numbers(op: Op, changes: Mapping[Place, int]) -> Op:
    places = itertools.count()

    def number(leaf: Arg) -> Arg:
        new = changes.get((op.name, next(places)))
        return leaf if new is None or not is_whole(leaf) else new

    return rewrite_op(op, number)


def _with_size(
    item: Input | ScalarInput, changes: Mapping[Place, int], bounds: Shrink, *, last: bool
) -> Input | ScalarInput:
    if isinstance(item, ScalarInput):
        new = changes.get((item.name, 0))
        return item if new is None or not is_whole(item.value) else dataclasses.replace(item, value=new)
    shape = tuple(changes.get((item.name, dim), size) for dim, size in enumerate(item.meta.shape))
    for dim, size in enumerate(shape):
        least = min(item.meta.shape[dim], 2 if dim in item.dynamic_dims else 1)
        if size < least:
            raise InvalidCandidate(f"dim {dim} of {item.name} cannot be {size}")
    meta = item.meta if shape == item.meta.shape else resized(item.meta, shape)
    value = _window(item.value, item.meta, shape, last=last) if shape != item.meta.shape else item.value
    if isinstance(value, Recipe) and value.kind == "randint" and bounds.scope != "alone":
        args = tuple(scaled(arg, bounds) if isinstance(arg, int) else arg for arg in value.args)
        value = dataclasses.replace(value, args=args)
    return dataclasses.replace(item, meta=meta, value=value)


def _window(value: Value, meta: TensorMeta, shape: tuple[int, ...], *, last: bool) -> Value:
    """The part of recorded data that stays."""
    if not isinstance(value, Recorded):
        return value
    old = value.window or Window(meta.shape, meta.stride, meta.offset)
    skipped = sum((a - b) * step for a, b, step in zip(old.shape, shape, old.stride, strict=True)) if last else 0
    return dataclasses.replace(value, window=Window(shape, old.stride, old.offset + skipped))
