"""What can shrink by itself: a free size with all that follows from it or, where nobody knows what follows, dims of one size.

How the sizes of a program hang together was found out by running it on fake tensors (`case.sizes`). Where torch has no shape
rule, or one that took a size for the number it is, all dims of one size shrink together, and numbers in calls that equal it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias, TypeGuard

from minify.case import Case, Derived, Input, Recipe, Recorded, ScalarInput, digest, tensor_inputs
from minify.graph import leaves
from minify.passes.simplify_constants import LEAST_SIZE
from minify.sizes import Place, Sizes, atom, names

Key: TypeAlias = "str | int | Place"  # a free size by its name, all dims of one size, one dim by itself
Scope = Literal["alone", "numbers", "multiples"]


@dataclasses.dataclass(frozen=True, slots=True)
class Shrink:
    """One edit: each key takes the size beside it, and so does what follows. With `numbers`, numbers that may have to follow
    change as well: those that equal the size, and those that a call holds against it. With `multiples`, so do numbers and dims
    that are a multiple. `last` keeps the end of recorded data instead of its start."""

    sizes: tuple[tuple[Key, int], ...]
    scope: Scope
    last: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class SizeClass:
    """Sizes that are one number, and change together. `dims` have a part in it; `least` is 2 where one of them is dynamic, since
    the compiler makes 0 and 1 static. `recorded` says that some hold real data."""

    keys: tuple[Key, ...]
    size: int
    least: int
    dims: tuple[Place, ...]
    scopes: tuple[Scope, ...] = ("alone",)
    recorded: bool = False

    def at(self, size: int, scope: Scope, *, last: bool = False) -> Shrink:
        return Shrink(tuple((key, size) for key in self.keys), scope, last)


# --- which there are -----------------------------------------------------------------------------------------------------


def size_classes(case: Case) -> tuple[SizeClass, ...]:
    """What can shrink, the largest first: free sizes, then the sizes of dims that no free size has a part in."""
    free, known = _free_classes(case), frozenset[Place]()
    if (sizes := known_sizes(case)) is not None:
        known = frozenset(place for place, _ in sizes.places)
    return tuple(sorted((*free, *_equal_classes(case, known)), key=lambda one: -one.size))


def unlikely_classes(case: Case, likely: Iterable[SizeClass]) -> tuple[SizeClass, ...]:
    """What shrinks together or alone where `likely` has it otherwise: free sizes that are equal, since not every shape rule asks
    for all that its kernel does; and single dims of one size, which may be equal by accident."""
    found: list[SizeClass] = []
    by_size: dict[int, list[SizeClass]] = {}
    for one in likely:
        if isinstance(one.keys[0], str):
            by_size.setdefault(one.size, []).append(one)
        elif len(one.dims) > 1:
            found += [dataclasses.replace(one, keys=(dim,), dims=(dim,), scopes=("alone",)) for dim in one.dims]
    return (*(_merged(members) for members in by_size.values() if len(members) > 1), *found)


def _merged(members: list[SizeClass]) -> SizeClass:
    return dataclasses.replace(
        members[0],
        keys=tuple(key for one in members for key in one.keys),
        least=max(one.least for one in members),
        dims=tuple(dict.fromkeys(dim for one in members for dim in one.dims)),
        scopes=max((one.scopes for one in members), key=len),
        recorded=any(one.recorded for one in members),
    )


def known_sizes(case: Case) -> Sizes | None:
    """How the sizes of this very case hang together; None where it is not known, or of another case."""
    return case.sizes if case.sizes is not None and case.sizes.of == digest(case) else None


def _free_classes(case: Case) -> Iterator[SizeClass]:
    sizes = known_sizes(case)
    if sizes is None:
        return
    inputs, free = {item.name: item for item in tensor_inputs(case)}, shrinkable(case)
    movable = {item.name for item in free}
    for name, size in sizes.free:
        places = [place for place, total in sizes.places if name in names(total) and place[0] in inputs]
        if size < 2 or not places or not all(owner in movable for owner, _ in places):
            continue
        exact = {place for place, total in sizes.places if total == atom(name)}
        dynamic = any(place in exact and place[1] in inputs[place[0]].dynamic_dims for place in places)
        wider = size in bounds(case) or bool(loose_numbers(case, name))
        scopes: tuple[Scope, ...] = ("numbers", "alone") if wider else ("alone",)
        yield SizeClass((name,), size, 2 if dynamic else 1, tuple(places), scopes, _recorded(free, places))


def _equal_classes(case: Case, known: frozenset[Place]) -> Iterator[SizeClass]:
    """All dims of one size, for each size of a dim that is not `known` to follow from a free one."""
    free, shared = shrinkable(case), {item.name for item in sharing(case)}
    fixed = {size for item in tensor_inputs(case) if item.name in shared for size in item.meta.shape}
    dynamic = {item.meta.shape[dim] for item in free for dim in item.dynamic_dims}
    unknown = {size for item in free for dim, size in enumerate(item.meta.shape) if (item.name, dim) not in known}
    for size in sorted(unknown - fixed):
        if size > 1:
            dims = tuple(
                (item.name, dim) for item in free for dim, other in enumerate(item.meta.shape) if other == size
            )
            yield SizeClass(
                (size,), size, 2 if size in dynamic else 1, dims, _scopes(case, size), _recorded(free, dims)
            )


def _recorded(items: Iterable[Input], dims: Iterable[Place]) -> bool:
    owners = {owner for owner, _ in dims}
    return any(isinstance(item.value, Recorded) and item.name in owners for item in items)


def _scopes(case: Case, size: int) -> tuple[Scope, ...]:
    """The scopes that differ for all dims of one size, the widest-reaching of the likely ones first."""
    literals = [*numbers(case).values(), *bounds(case)]
    dims = [number for item in shrinkable(case) for number in item.meta.shape]
    found: list[Scope] = ["numbers"] if size in literals else []
    if any(number > size and number % size == 0 for number in literals + dims):
        found.append("multiples")
    return (*found, "alone")


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


# --- numbers in calls ----------------------------------------------------------------------------------------------------


def numbers(case: Case) -> dict[Place, int]:
    """Every whole number in the arguments of ops, and among the inputs."""
    found = {
        (op.name, index): leaf
        for op in case.graph.ops
        for index, leaf in enumerate(leaves((op.args, tuple(value for _, value in op.kwargs))))
        if is_whole(leaf)
    }
    given = {(item.name, 0): item.value for item in case.inputs if isinstance(item, ScalarInput)}
    return found | {place: value for place, value in given.items() if is_whole(value)}


def loose_numbers(case: Case, name: str) -> dict[Place, int]:
    """Numbers in calls that follow from no free size and may have to change with `name`: a call holds them against it, or they
    equal it (what indexes a dim may well be made by `arange`)."""
    assert case.sizes is not None
    size, tied = dict(case.sizes.free)[name], {place for place, _ in case.sizes.places}
    held = {place for other, place in case.sizes.beside if other == name}
    return {
        place: number
        for place, number in numbers(case).items()
        if place not in tied and (place in held or number == size >= LEAST_SIZE)
    }


def is_whole(leaf: object) -> TypeGuard[int]:
    return isinstance(leaf, int) and not isinstance(leaf, bool)


def bounds(case: Case) -> Iterator[int]:
    """What bounds random integers, which may index a dim."""
    for item in tensor_inputs(case):
        if isinstance(item.value, Recipe) and item.value.kind == "randint":
            yield from (bound for bound in item.value.args if is_whole(bound))
