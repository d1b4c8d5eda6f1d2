"""Make the constants in calls plainer: leave out arguments that have a default, put a round number in place of an odd one.

May lose: a flag or a mode that decides, a scale or a bound that data must cross, the size of a window, a stride, a dim.
Numbers keep their type, complex ones apart. Left alone are values, devices, calls with subgraphs, calls whose result
cannot be passed in (an autocast context), and the sizes of inputs, which shrink with the dims.

No table says which call has which default: eager says whether the call without the argument runs at all.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from minify.case import (
    Arg,
    Case,
    Const,
    ListArg,
    Op,
    OpaqueMeta,
    Ref,
    Subgraph,
    bodies,
    free_ops,
    map_arg,
    size,
    tensor_inputs,
)
from minify.errors import InvalidCandidate
from minify.graph import leaves, literal_rank
from minify.passes.contract import Pass, Site
from minify.passes.idiomatic_calls import LAST
from minify.passes.prune import with_graph

Slot: TypeAlias = int | str  # where an argument stands: its position or its keyword
SYNTAX = ("operator.", "builtins.")  # written as operators and attributes, which have no defaults
LEAST_SIZE = 3  # 1 and 2 are what dims shrink to, and may just as well be a stride or a dim
MOST_CHOICES = 4  # for one constant


@dataclasses.dataclass(frozen=True, slots=True)
class Default:
    """Leave an argument out."""

    op: str
    slot: Slot


@dataclasses.dataclass(frozen=True, slots=True)
class Plainer:
    """Put `value` in place of some leaves of an argument."""

    op: str
    slot: Slot
    places: tuple[int, ...]
    value: Arg


def find(case: Case) -> tuple[Site, ...]:
    """Each argument that may be left out, then each constant that has a plainer value.

    All together come first, since most failures need no constant. The schedule then looks for the longest run from the start
    that still fails: so keywords come before positions, positions from the last, the boldest value for every constant before
    second choices. A site that does nothing beside those already applied costs no question."""
    free = free_ops(case.graph)
    known = [op for op in case.graph.ops if not isinstance(op.meta, OpaqueMeta) and not bodies(op)]
    ops = [op for op in known if op.name not in free]
    sizes = frozenset(dim for item in tensor_inputs(case) for dim in item.meta.shape if dim >= LEAST_SIZE)
    ladders = [ladder for op in ops for slot, arg in slots(op) for ladder in plainer_leaves(op, slot, arg, sizes)]
    return (
        *((Default(op.name, slot),) for op in ops for slot in optional(op)),
        *((ladder[turn],) for turn in range(MOST_CHOICES) for ladder in ladders if turn < len(ladder)),
    )


def slots(op: Op) -> Iterator[tuple[Slot, Arg]]:
    yield from enumerate(op.args)
    yield from op.kwargs


def optional(op: Op) -> Iterator[Slot]:
    """Keywords, then the positions behind the last value, from the end; not those that hold a device."""
    if op.target.startswith(SYNTAX):
        return
    yield from (key for key, value in op.kwargs if key != "device" and not is_bound(value))
    for position in reversed(range(1, len(op.args))):
        if is_bound(op.args[position]):
            return
        yield position


def is_bound(arg: Arg) -> bool:
    """Whether `arg` has a value, a subgraph or a device in it."""
    return any(
        isinstance(leaf, Ref | Subgraph) or (isinstance(leaf, Const) and leaf.text.startswith("torch.device"))
        for leaf in leaves(arg)
    )


def plainer_leaves(op: Op, slot: Slot, arg: Arg, sizes: frozenset[int]) -> Iterator[tuple[Plainer, ...]]:
    """For each constant in an argument, what makes it plainer, the boldest first. A list of numbers is one."""
    if isinstance(arg, bool):
        if arg and isinstance(slot, int) and not is_last(op, slot):
            yield (Plainer(op.name, slot, (0,), False),)
        return
    found = tuple(leaves(arg))
    whole = isinstance(arg, tuple | ListArg) and len({type(leaf) for leaf in found}) == 1
    for group in [tuple(range(len(found)))] if whole else [(place,) for place in range(len(found))]:
        values = [found[place] for place in group]
        if not any(isinstance(value, int) and (value in sizes or value == LAST) for value in values):
            rank = sum(map(literal_rank, values))
            better = [value for value in plainer(values) if literal_rank(value) * len(values) < rank]
            yield tuple(Plainer(op.name, slot, group, value) for value in better)


def is_last(op: Op, slot: Slot) -> bool:
    """A flag with nothing behind it is turned off by leaving it out, or on."""
    return op.target.startswith(SYNTAX) or slot == len(op.args) - 1


def plainer(values: list[Arg]) -> tuple[Arg, ...]:
    """At most `MOST_CHOICES` literals to try for all of `values`, the boldest first; not all need be plainer."""
    odd = max(values, key=literal_rank)
    if isinstance(odd, complex):
        return (1.0, 1j)
    if isinstance(odd, int) and not isinstance(odd, bool):
        return (1,) if odd == 2 else (1, 0, 2) if odd > 0 else (-1, 0)
    if not isinstance(odd, float):
        return ()
    if literal_rank(odd) == 1 or not math.isfinite(odd):
        return (1.0,)
    near = -1.0 if odd < 0 else 0.5 if odd < 1 else 2.0
    rounded = [float(f"{odd:.{digits}g}") for digits in (1, 3)]
    return tuple(dict.fromkeys((1.0, 0.0, *(rounded if literal_rank(odd) > 2 else [near]))))


def rewrite(case: Case, sites: tuple[Site, ...]) -> Case:
    chosen: dict[str, list[Default | Plainer]] = {}
    for (edit,) in sites:
        assert isinstance(edit, Default | Plainer)
        chosen.setdefault(edit.op, []).append(edit)
    ops = tuple(plainer_call(op, chosen[op.name]) if op.name in chosen else op for op in case.graph.ops)
    edited = with_graph(case, ops, case.graph.outputs)
    if size(edited) >= size(case):
        raise InvalidCandidate("what stands behind this argument stays")
    return edited


def plainer_call(op: Op, edits: list[Default | Plainer]) -> Op:
    """`op` without some arguments and with others changed. A position goes only with all behind it, and the first only by
    itself, since most calls must have it. Of several values for a leaf the first counts. A flag that has come to be the last
    is not turned off: it can be left out."""
    left_out = {edit.slot for edit in edits if isinstance(edit, Default)}
    if len(edits) > 1:
        left_out.discard(min((slot for slot in optional(op) if isinstance(slot, int)), default=0))
    end = len(op.args)
    while end - 1 in left_out:
        end -= 1
    shorter = dataclasses.replace(op, args=op.args[:end])
    changes: dict[Slot, dict[int, Arg]] = {slot: {} for slot, _ in slots(op)}
    for edit in edits:
        if isinstance(edit, Plainer) and not (edit.value is False and is_last(shorter, edit.slot)):
            for place in edit.places:
                changes[edit.slot].setdefault(place, edit.value)
    args = tuple(with_leaves(arg, changes[position]) for position, arg in enumerate(shorter.args))
    kwargs = tuple((key, with_leaves(value, changes[key])) for key, value in op.kwargs if key not in left_out)
    return dataclasses.replace(op, args=args, kwargs=kwargs)


def with_leaves(arg: Arg, changes: Mapping[int, Arg]) -> Arg:
    """`arg` with some of its leaves, by their number, exchanged."""
    places = itertools.count()
    return map_arg(arg, lambda leaf: changes.get(next(places), leaf))


SIMPLIFY_CONSTANTS = Pass("constants", find, rewrite, polish=True)
