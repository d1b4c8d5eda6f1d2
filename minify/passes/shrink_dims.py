"""Shrink dims: every dim of one size becomes smaller everywhere, with the literals that follow from it.

May lose: sizes that decide (a vector's length, a tile, a split reduction), a size that is no multiple of something, and
elements of real data. Keeps the order of strides, gaps, expanded dims, offsets, and dynamic dims at 2 or more.
Inputs with a shared storage are left alone, and so are values that are not recorded yet.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Literal

from minify.case import (
    Arg,
    Case,
    Derived,
    Input,
    Recipe,
    Recorded,
    ScalarInput,
    TensorMeta,
    Value,
    Window,
    map_arg,
    rewrite_op,
    tensor_inputs,
)
from minify.passes.contract import Pass, Site
from minify.passes.layout import resized
from minify.passes.prune import with_graph

SIZES = (1, 2, 4, 8, 16, 17, 32, 33)
LEAST_TELLING = (4, 33)
MOST_SIZES = 8
Scope = Literal["dims alone", "equal literals", "multiples"]


@dataclasses.dataclass(frozen=True, slots=True)
class Shrink:
    """One edit: each dim of a size in `sizes` takes the size beside it. With `equal literals`, so does each such number
    in the program; with `multiples`, numbers and dims that are a multiple of the size are scaled too. `last` keeps the
    end of recorded data instead of its start. With `only`, an input and a dim, all others keep their sizes."""

    sizes: tuple[tuple[int, int], ...]
    scope: Scope
    last: bool = False
    only: tuple[str, int] | None = None


def find(case: Case) -> tuple[Site, ...]:
    """All sizes at once to 2, then 1; then each size by itself, the smallest new size first; at last single dims of a size that
    several have, which may be equal by accident."""
    classes = size_classes(case)
    every: list[Site] = []
    for new in (2, 1):
        sizes = tuple((old, new) for old, least in classes.items() if old > new >= least)
        every += [
            (Shrink(sizes, scope),) for scope in scopes(case, dict(sizes)) if len(sizes) > 1 and scope != "multiples"
        ]
    together = (site for old, least in classes.items() for site in class_sites(case, old, least))
    return (*every, *together, *(site for old, least in classes.items() for site in single_sites(case, old, least)))


def class_sites(case: Case, old: int, least: int) -> Iterator[Site]:
    recorded = any(isinstance(item.value, Recorded) and old in item.meta.shape for item in shrinkable(case))
    available = scopes(case, {old: 1})
    for new in smaller_sizes(old, least):
        for scope in available:
            yield (Shrink(((old, new),), scope),)
            if recorded and new >= old // 2:
                yield (Shrink(((old, new),), scope, last=True),)


def single_sites(case: Case, old: int, least: int) -> Iterator[Site]:
    dims = [(item.name, dim) for item in shrinkable(case) for dim, size in enumerate(item.meta.shape) if size == old]
    sizes = sorted({size for size in (1, 2, old // 2) if least <= size < old})
    if len(dims) > 1:
        yield from ((Shrink(((old, new),), "dims alone", only=dim),) for new in sizes for dim in dims)


def size_classes(case: Case) -> dict[int, int]:
    """Sizes that can shrink, the largest first, with the least size each may take: 2 where a dim of it is dynamic, since
    the compiler makes 0 and 1 static."""
    free, shared = shrinkable(case), {item.name for item in sharing(case)}
    fixed = {size for item in tensor_inputs(case) if item.name in shared for size in item.meta.shape}
    dynamic = {item.meta.shape[dim] for item in free for dim in item.dynamic_dims}
    found = {size for item in free for size in item.meta.shape if size > 1} - fixed
    return {size: 2 if size in dynamic else 1 for size in sorted(found, reverse=True)}


def shrinkable(case: Case) -> tuple[Input, ...]:
    shared = {item.name for item in sharing(case)}
    return tuple(
        item for item in tensor_inputs(case) if item.name not in shared and not isinstance(item.value, Derived)
    )


def sharing(case: Case) -> tuple[Input, ...]:
    """Inputs that lie in a storage with another one."""
    tensors = [item for item in tensor_inputs(case) if item.meta.storage >= 0]
    numbers = [item.meta.storage for item in tensors]
    return tuple(item for item in tensors if numbers.count(item.meta.storage) > 1)


def smaller_sizes(old: int, least: int) -> tuple[int, ...]:
    """The sizes worth trying below `old`: small ones, those around vector widths, half, one less."""
    telling = {old // 2, old - 1}
    sizes = {size for size in (*SIZES, *telling) if least <= size < old}
    for size in LEAST_TELLING:
        if len(sizes) > MOST_SIZES and size not in telling:
            sizes.discard(size)
    return tuple(sorted(sizes))


def scopes(case: Case, sizes: Mapping[int, int]) -> tuple[Scope, ...]:
    """The scopes that differ for this case, the widest-reaching of the likely ones first."""
    literals = set(numbers(case))
    dims = {size for item in shrinkable(case) for size in item.meta.shape}
    found: list[Scope] = ["equal literals"] if literals & set(sizes) else []
    if any(number > old and number % old == 0 for number in literals | dims for old in sizes):
        found.append("multiples")
    return (*found, "dims alone")


def numbers(case: Case) -> Iterator[int]:
    """Every whole number in the arguments of ops, among the inputs, and in what bounds random integers."""
    for op in case.graph.ops:
        yield from whole_numbers((op.args, tuple(value for _, value in op.kwargs)))
    for item in case.inputs:
        if isinstance(item, ScalarInput):
            yield from whole_numbers(item.value)
        elif isinstance(item.value, Recipe) and item.value.kind == "randint":
            yield from whole_numbers(item.value.args)


def whole_numbers(arg: Arg) -> list[int]:
    found: list[int] = []

    def note(leaf: Arg) -> Arg:
        if isinstance(leaf, int) and not isinstance(leaf, bool):
            found.append(leaf)
        return leaf

    map_arg(arg, note)
    return found


def rewrite(case: Case, sites: tuple[Site, ...]) -> Case:
    for (edit,) in sites:
        assert isinstance(edit, Shrink)
        case = shrink(case, edit)
    return case


def shrink(case: Case, edit: Shrink) -> Case:
    free = {item.name for item in shrinkable(case)} if edit.only is None else {edit.only[0]}

    def literal(leaf: Arg) -> Arg:
        whole = isinstance(leaf, int) and not isinstance(leaf, bool) and edit.scope != "dims alone"
        return scaled(leaf, edit) if whole and isinstance(leaf, int) else leaf

    def smaller(item: Input | ScalarInput) -> Input | ScalarInput:
        if isinstance(item, ScalarInput):
            value = literal(item.value)
            return dataclasses.replace(item, value=value if isinstance(value, int) else item.value)
        return smaller_input(item, edit) if item.name in free else item

    ops = tuple(rewrite_op(op, literal) for op in case.graph.ops)
    return dataclasses.replace(with_graph(case, ops, case.graph.outputs), inputs=tuple(map(smaller, case.inputs)))


def scaled(number: int, edit: Shrink) -> int:
    """What a size or a number becomes."""
    for old, new in edit.sizes:
        if number == old:
            return new
        if edit.scope == "multiples" and number > old and number % old == 0:
            return number // old * new
    return number


def smaller_input(item: Input, edit: Shrink) -> Input:
    dims = range(len(item.meta.shape)) if edit.only is None else (edit.only[1],)
    shape = tuple(scaled(size, edit) if dim in dims else size for dim, size in enumerate(item.meta.shape))
    value = smaller_value(item.value, item.meta, shape, edit)
    meta = item.meta if shape == item.meta.shape else resized(item.meta, shape)
    return dataclasses.replace(item, meta=meta, value=value)


def smaller_value(value: Value, meta: TensorMeta, shape: tuple[int, ...], edit: Shrink) -> Value:
    """The part of recorded data that stays, or the rule for random indices into what has shrunk."""
    if isinstance(value, Recorded) and shape != meta.shape:
        old = value.window or Window(meta.shape, meta.stride, meta.offset)
        skipped = (
            sum((a - b) * step for a, b, step in zip(old.shape, shape, old.stride, strict=True)) if edit.last else 0
        )
        return dataclasses.replace(value, window=Window(shape, old.stride, old.offset + skipped))
    if isinstance(value, Recipe) and value.kind == "randint" and edit.scope != "dims alone":
        args = tuple(scaled(arg, edit) if isinstance(arg, int) else arg for arg in value.args)
        return dataclasses.replace(value, args=args)
    return value


SHRINK_DIMS = Pass("dims", find, rewrite, alternatives=True, polish=True)
