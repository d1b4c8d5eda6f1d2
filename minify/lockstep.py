"""A graph run op by op: eager and the same one precision up, side by side (design §4).

Owns what "one precision up" means for each op, and where the high-precision run has to borrow from eager. Compiles nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from minify import torch_internals
from minify.graph import Arg, Const, Graph, Op, ValueMeta, op_refs, rewrite_op
from minify.interpret import (
    MODULES,
    Env,
    StorageNumbers,
    argument,
    describe,
    last_readers,
    leaves,
    map_tensors,
    random_state,
    restore_random,
    run_op,
)
from minify.rounding import memory_of, round_otherwise, same_draw
from minify.trial import out_of_memory

_HIGHER: dict[str, dict[torch.dtype, torch.dtype]] = {
    "fp64": {
        torch.float16: torch.float64,
        torch.bfloat16: torch.float64,
        torch.float32: torch.float64,
        torch.complex32: torch.complex128,
        torch.complex64: torch.complex128,
    },
    "fp32": {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64},
}
_CASTS = {
    "fp64": {".float": ".double", ".half": ".double", ".bfloat16": ".double", ".cfloat": ".cdouble"},
    "fp32": {".half": ".float", ".bfloat16": ".float", ".chalf": ".cfloat"},
}


class _Unavailable(Exception):
    """No trustworthy reference can be had for this graph; the text says why."""


@dataclasses.dataclass
class Lockstep:
    """Two runs of one graph side by side. After `run`: `eager` and `reference` are the outputs (`reference` None where
    none can be had), `trace` what was noted of each op, `notes` where the reference had to borrow from eager, `random`
    whether any random number was drawn, `drew` by which ops, `severed` whether borrowing cut the reference off from its
    own inputs, so that it has no gradients. With a `coin`, eager rounds each result otherwise than it does; where `patches` has a
    value for an op, that stands for eager's."""

    graph: Graph
    precision: str
    scope: Mapping[str, Any] = dataclasses.field(default_factory=lambda: MODULES)
    trace: list[tuple[str, ValueMeta]] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    random: bool = False
    drew: list[str] = dataclasses.field(default_factory=list)
    severed: bool = False
    eager: tuple[Any, ...] = ()
    reference: tuple[Any, ...] | None = None
    coin: torch.Generator | None = None
    patches: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    _split: set[int] = dataclasses.field(default_factory=set)

    def run(self, eager_values: Sequence[Any], reference_values: Sequence[Any] | None) -> None:
        """Run both. With `reference_values` None only eager runs. Raises whatever an op raises in eager."""
        low: Env = dict(zip(self.graph.params, eager_values, strict=True))
        high: Env | None = None
        if reference_values is not None:
            high = dict(zip(self.graph.params, reference_values, strict=True))
            self._split = _split_memory(list(low.values()), list(high.values()))
        numbers, done = StorageNumbers(), last_readers(self.graph)
        for name, value in low.items():
            describe(value, numbers, name)
        for position, op in enumerate(self.graph.ops):
            high = self._step(op, low, high)
            self.trace.append((op.name, describe(low[op.name], numbers, op.name)))
            for name in done.get(position, ()):
                low.pop(name, None)
                numbers.forget(name)
                if high is not None:
                    high.pop(name, None)
        self.eager = tuple(argument(output, low) for output in self.graph.outputs)
        self.reference = None if high is None else tuple(argument(output, high) for output in self.graph.outputs)

    def _step(self, op: Op, low: Env, high: Env | None) -> Env | None:
        """Run `op` in both; gives `high` back, or None where there is no reference from here on."""
        read = [tensor for name in op_refs(op) for tensor in leaves(low[name])]
        versions = [torch_internals.version(tensor) for tensor in read]
        before = random_state()
        low[op.name] = run_op(op, low, self.scope)
        if self.coin is not None:
            round_otherwise(low[op.name], read, self.coin)
        if op.name in self.patches:
            low[op.name] = _fitting(self.patches[op.name], low[op.name])
        after = random_state()
        drew = after != before
        self.random |= drew
        if drew:
            self.drew.append(op.name)
        if high is None:
            return None
        writes = writes_by_name(op) or versions != [torch_internals.version(tensor) for tensor in read]
        try:
            if not read:  # a constant, or an effect on a mode: not to be had twice
                high[op.name] = raised_copy(low[op.name], self.precision)
            else:
                high[op.name] = self._settled(op, low, high, writes=writes, before=before if drew else ())
        except _Unavailable as reason:
            self.notes.append(f"{op.name}: {reason}")
            return None
        finally:
            if drew:
                restore_random(after)
        return high

    def _settled(self, op: Op, low: Env, high: Env, *, writes: bool, before: tuple[bytes, ...]) -> Any:
        """The reference's value of `op`: one precision up, else at its own precision, else eager's. A random op has to give
        eager's draw; `before` is the state of the generators it starts from, empty for an op that draws nothing."""
        eager = low[op.name]
        operands = [(a, b) for name in op_refs(op) for a, b in zip(leaves(low[name]), leaves(high[name]), strict=True)]
        if writes and any(memory_of(a) in self._split for a, _ in operands):
            raise _Unavailable(f"{op.target} writes to memory that the reference holds apart; eager is the reference")
        found = self._try(eager, lambda: run_op(self._raised(op), high, self.scope), before)
        if found is None:
            if writes:
                raise _Unavailable(f"{op.target} has no higher-precision form; eager is the reference")
            found = self._at_own_precision(op, low, high, before)
        if found is None:
            self.severed |= any(tensor.requires_grad for tensor in leaves(eager))
            found = (raised_copy(eager, self.precision),)
        value = raise_like(found[0], eager, self.precision)
        return value if writes else self._with_sharing_of(eager, value, operands)

    @staticmethod
    def _try(eager: Any, action: Callable[[], Any], before: tuple[bytes, ...]) -> tuple[Any] | None:
        """What `action` gives, None where it raises or cannot stand for `eager`. Raises what `out_of_memory` knows."""
        try:
            if before:
                restore_random(before)
            value = action()
        except Exception as error:  # no such kernel, no such promotion: the caller falls back
            if out_of_memory(error):
                raise
            return None
        return (value,) if same_structure(value, eager) and (not before or same_draw(value, eager)) else None

    def _at_own_precision(self, op: Op, low: Env, high: Env, before: tuple[bytes, ...]) -> tuple[Any] | None:
        """The op on the reference's values cast down, its result cast up again."""
        operands = {name: cast_like(high[name], low[name]) for name in op_refs(op)}
        found = self._try(low[op.name], lambda: run_op(op, operands, self.scope), before)
        if found is None:
            return None
        self.notes.append(f"{op.name}: {op.target} taken at its own precision")
        return (raised_copy(found[0], self.precision),)

    def _raised(self, op: Op) -> Op:
        """`op` with every float dtype it names moved one precision up."""
        higher = {str(low): str(high) for low, high in _HIGHER[self.precision].items()}

        def raise_dtype(arg: Arg) -> Arg:
            return Const(higher.get(arg.text, arg.text)) if isinstance(arg, Const) else arg

        target = _CASTS[self.precision].get(op.target, op.target)
        return dataclasses.replace(rewrite_op(op, raise_dtype), target=target)

    def _with_sharing_of(self, eager: Any, value: Any, operands: list[tuple[torch.Tensor, torch.Tensor]]) -> Any:
        """`value` with a copy wherever eager made one (`x.half()` is a view once x is raised); where eager made a view and
        the reference could not, the memory counts as split, and nobody may write to it any more."""
        due = iter(list(leaves(eager)))

        def share(tensor: torch.Tensor) -> torch.Tensor:
            like = memory_of(next(due))
            ours, theirs = memory_of(tensor), {memory_of(a): memory_of(b) for a, b in operands}
            if like is not None and like in theirs:
                if theirs[like] != ours:
                    self._split.add(like)
                return tensor
            return tensor.clone() if ours is not None and ours in theirs.values() else tensor

        return map_tensors(value, share)


def _fitting(value: Any, own: Any) -> torch.Tensor:
    """`value`, which is to stand for `own`. Raises ValueError where it is of another shape or dtype, or no tensor."""
    both = isinstance(value, torch.Tensor) and isinstance(own, torch.Tensor)
    if not both or (value.shape, value.dtype) != (own.shape, own.dtype):
        raise ValueError("no place for it")
    return value.detach()  # type: ignore[no-any-return]


def _split_memory(low: Sequence[Any], high: Sequence[Any]) -> set[int]:
    """Memory that several inputs share in eager and not in the reference (views of another dtype)."""
    found: dict[int, set[int | None]] = {}
    for ours, theirs in zip(low, high, strict=True):
        if isinstance(ours, torch.Tensor) and (key := memory_of(ours)) is not None:
            found.setdefault(key, set()).add(memory_of(theirs))
    return {key for key, counterparts in found.items() if len(counterparts) > 1}


def writes_by_name(op: Op) -> bool:
    """Whether the call says by its name or arguments that it writes to an operand; version counters tell the rest."""
    name = op.target.split(".")[3] if op.target.startswith("torch.ops.") else op.target.rsplit(".", 1)[-1]
    kwargs = dict(op.kwargs)
    return (
        (name.endswith("_") and not name.endswith("__") and not op.target.startswith("operator."))
        or name in ("setitem", "__setitem__")
        or (op.target.startswith("operator.i") and name not in ("is_", "is_not", "invert", "index", "inv", "indexOf"))
        or "out" in kwargs
        or kwargs.get("inplace") is True
    )


def higher_dtype(dtype: torch.dtype, precision: str) -> torch.dtype:
    return _HIGHER[precision].get(dtype, dtype)


def raised_copy(value: Any, precision: str) -> Any:
    """Every tensor one precision up, in memory of its own: what eager writes to its value must not show here."""
    return map_tensors(value, lambda tensor: tensor.to(higher_dtype(tensor.dtype, precision), copy=True))


def raise_like(value: Any, like: Any, precision: str) -> Any:
    """Give every tensor of `value` the higher form of the dtype its counterpart has in eager (promotion can differ)."""
    wanted = iter([higher_dtype(tensor.dtype, precision) for tensor in leaves(like)])

    def fix(tensor: torch.Tensor) -> torch.Tensor:
        dtype = next(wanted)
        return tensor if tensor.dtype == dtype else tensor.to(dtype)

    return map_tensors(value, fix)


def cast_like(value: Any, like: Any) -> Any:
    targets = iter([tensor.dtype for tensor in leaves(like)])
    return map_tensors(value, lambda tensor: tensor.to(next(targets)))


def same_structure(value: Any, like: Any) -> bool:
    """Whether a reference result can stand for an eager one: as many tensors, the same shapes, floats where floats are."""
    ours, theirs = list(leaves(value)), list(leaves(like))
    return len(ours) == len(theirs) and all(
        a.shape == b.shape and (a.is_floating_point(), a.is_complex()) == (b.is_floating_point(), b.is_complex())
        for a, b in zip(ours, theirs, strict=True)
    )
