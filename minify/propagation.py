"""Run a program on fake tensors whose sizes are symbols: which dims and which numbers in calls follow from which.

Every dim of an input and every whole number in a call starts as a size of its own; what torch's shape rules take for granted
then says which of them are one, or products and sums of others. Runs no kernel and compiles nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from minify import sizes, torch_internals
from minify.case import Arg, Case, Input, Op, Recipe, ScalarInput, TensorMeta, digest, rewrite_op
from minify.interpret import Env, last_readers, run_op
from minify.replay import applied, replay
from minify.sizes import Place, Sizes

LEAST = 2  # 0 and 1 have rules of their own (broadcasting), and a size of 1 cannot shrink


def propagated(case: Case) -> Sizes:
    """How the sizes of `case` hang together. Raises whatever an op raises that has no shape rule, or none without data."""
    live = replay(_without_data(case), Path())
    trace = _Trace()
    with applied(live), torch.no_grad():  # in-place writes to leaves are none of our business here
        env = {item.name: trace.given(item) for item in case.inputs}
        with trace.shapes.active():
            done = last_readers(case.graph)
            for position, op in enumerate(case.graph.ops):
                env[op.name] = trace.result(op, env, live.scope)
                for name in done.get(position, ()):
                    env.pop(name, None)
    return dataclasses.replace(trace.found(), of=digest(case))


def _without_data(case: Case) -> Case:
    """`case` with nothing to be read from the store."""
    inputs = (
        dataclasses.replace(item, value=Recipe("zeros")) if isinstance(item, Input) else item for item in case.inputs
    )
    return dataclasses.replace(case, inputs=tuple(inputs))


class _Trace:
    """Sizes by the names that their symbols go by, in order of appearance."""

    def __init__(self) -> None:
        self.shapes = torch_internals.SymbolicShapes()
        self._values: dict[str, int] = {}
        self._places: dict[str, Place] = {}
        self._numbers: set[str] = set()

    def given(self, item: Input | ScalarInput) -> Any:
        if isinstance(item, ScalarInput):
            return self._number((item.name, 0), item.value)
        shape = [
            self._symbol((item.name, dim), size) if size >= LEAST else size for dim, size in enumerate(item.meta.shape)
        ]
        with self.shapes.active():
            return torch.empty_strided(
                shape, strides(item.meta, shape), dtype=getattr(torch, item.meta.dtype), device=item.meta.device
            )

    def result(self, op: Op, env: Env, scope: Mapping[str, Any]) -> Any:
        """What `op` gives with symbols for its numbers or, where it takes none, with the numbers themselves."""
        places = itertools.count()
        symbolic = rewrite_op(op, lambda leaf: self._number((op.name, next(places)), leaf))
        try:
            return run_op(symbolic, env, scope)
        except Exception:  # noqa: BLE001 - whatever it is, plain numbers either do or raise it again
            return run_op(op, env, scope)

    def found(self) -> Sizes:
        equations, others = self.shapes.found()
        known, open_ = sizes.solve(equations, list(self._values), frozenset(self._numbers))
        totals = {name: known.get(name, sizes.atom(name)) for name in self._values}
        dims = frozenset(
            used for name, total in totals.items() if name not in self._numbers for used in sizes.names(total)
        )
        free = tuple((name, number) for name, number in self._values.items() if name not in known)
        places = tuple((self._places[name], total) for name, total in totals.items() if sizes.names(total) & dims)
        return Sizes(free, places, tuple(self._beside(totals, dims, [*others, *map(sizes.names, open_)])))

    def _beside(
        self, totals: Mapping[str, sizes.Sum], dims: frozenset[str], groups: list[frozenset[str]]
    ) -> Iterator[tuple[str, Place]]:
        """Numbers that no dim has a part in, with the free size that a condition holds them against. One that is about several
        sizes of dims says little of any (that a result has elements at all)."""
        for group in dict.fromkeys(groups):
            held = {used for name in group for used in sizes.names(totals[name]) & dims}
            if len(held) == 1:
                (used,) = held
                loose = [name for name in sorted(group) if not sizes.names(totals[name]) & dims]
                yield from ((used, self._places[name]) for name in loose)

    def _symbol(self, place: Place, number: int) -> Any:
        name = Sizes.name(place)
        self._values[name], self._places[name] = number, place
        return self.shapes.symbol(name, number)

    def _number(self, place: Place, leaf: Arg) -> Any:
        if isinstance(leaf, bool) or not isinstance(leaf, int) or leaf < LEAST:
            return leaf
        self._numbers.add(Sizes.name(place))
        return self._symbol(place, leaf)


def strides(meta: TensorMeta, shape: list[Any]) -> list[Any]:
    """The strides of `meta` for symbolic sizes: dense dims stay dense, all other steps are the numbers they are."""
    found: list[Any] = list(meta.stride)
    step, symbolic = 1, 1
    for dim in sorted(range(len(shape)), key=lambda dim: (meta.stride[dim], meta.shape[dim] != 1, -dim)):
        if meta.stride[dim] != step:
            break
        found[dim] = symbolic
        step, symbolic = step * meta.shape[dim], symbolic * shape[dim]
    return found
