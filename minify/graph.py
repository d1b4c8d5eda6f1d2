"""A straight-line program as plain frozen data: `Graph`, its `Op`s, their arguments, and what is known of each value.

Also owns how arguments are searched and rewritten, and how plain a literal among them is. Knows nothing of torch:
functions, dtypes and constants are kept as the text that names them. `case` adds inputs and settings, and passes these
names on.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import TypeAlias

# Namespaces of ops that every torch has; those of others come with what a prelude runs.
BUILTIN_NAMESPACES = frozenset((
    "aten", "prim", "prims", "higher_order", "inductor", "quantized", "quantized_decomposed", "_c10d_functional",
))  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Ref:
    """The value of an input or of an op, by name."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Const:
    """A constant that has a name: `torch.float32`, `torch.channels_last`, `torch.device('cpu')`, `...`."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class ListArg:
    """A Python list (torch tells lists from tuples when indexing)."""

    items: tuple[Arg, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class DictArg:
    """A Python dict with string keys."""

    items: tuple[tuple[str, Arg], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class SliceArg:
    start: Arg
    stop: Arg
    step: Arg


@dataclasses.dataclass(frozen=True, slots=True)
class Subgraph:
    """The body of a higher-order op, emitted as a nested function. It returns a tuple or, if `bare`, its only output itself."""

    graph: Graph
    bare: bool = False


Arg: TypeAlias = "None | bool | int | float | complex | str | Ref | Const | ListArg | DictArg | SliceArg | Subgraph | tuple[Arg, ...]"


@dataclasses.dataclass(frozen=True, slots=True)
class TensorMeta:
    """What is known of one tensor value: `shape`, `stride` and `offset` in elements; `storage` numbers the memory it lives in.

    `flags` names lazy tensor states: `conj`, `neg`, `zerotensor`, `parameter`.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: str
    device: str
    requires_grad: bool
    storage: int
    storage_size: int
    flags: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ScalarMeta:
    """A value that is no tensor: an int, float, bool, string, dtype, torch.Size, None; `value` is its argument form."""

    value: Arg


@dataclasses.dataclass(frozen=True, slots=True)
class OpaqueMeta:
    """A value that can be passed on inside a program but cannot become an input (an autocast context, an RNG state)."""

    type_name: str


@dataclasses.dataclass(frozen=True, slots=True)
class SequenceMeta:
    """A tuple or list of values (`torch.max(x, 0)`, `x.split(2)`, `x.size()`)."""

    items: tuple[ValueMeta, ...]


ValueMeta: TypeAlias = "TensorMeta | ScalarMeta | OpaqueMeta | SequenceMeta"


@dataclasses.dataclass(frozen=True, slots=True)
class Op:
    """One call. `target` is the dotted name of a function (`torch.relu`, `operator.add`, `torch.ops.aten.relu.default`)
    or, with a leading dot, a method of the first argument (`.view`). `meta` describes the result once it has been run;
    it is not part of the op's identity."""

    name: str
    target: str
    args: tuple[Arg, ...] = ()
    kwargs: tuple[tuple[str, Arg], ...] = ()
    meta: ValueMeta | None = dataclasses.field(default=None, compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Graph:
    """A straight-line program: parameters, calls in order, a flat tuple of outputs (`Ref`s, or literals such as `None`)."""

    params: tuple[str, ...]
    ops: tuple[Op, ...]
    outputs: tuple[Arg, ...]


def refs(arg: Arg) -> Iterator[str]:
    """Every name that `arg` reads, in order, repeats kept; a subgraph reads only through the op's other arguments."""
    if isinstance(arg, Ref):
        yield arg.name
    elif isinstance(arg, tuple):
        for item in arg:
            yield from refs(item)
    elif isinstance(arg, ListArg):
        yield from refs(arg.items)
    elif isinstance(arg, DictArg):
        for _, item in arg.items:
            yield from refs(item)
    elif isinstance(arg, SliceArg):
        yield from refs((arg.start, arg.stop, arg.step))


def op_refs(op: Op) -> tuple[str, ...]:
    """Every name that `op` reads, in order, repeats kept."""
    return tuple(refs(op.args)) + tuple(name for _, value in op.kwargs for name in refs(value))


def map_refs(arg: Arg, replace: Callable[[Ref], Arg]) -> Arg:
    """`arg` with each `Ref` exchanged for `replace(ref)`."""
    return map_arg(arg, lambda leaf: replace(leaf) if isinstance(leaf, Ref) else leaf)


def map_arg(arg: Arg, replace: Callable[[Arg], Arg]) -> Arg:
    """`arg` rebuilt with `replace` applied to every leaf (anything but a tuple, list, dict or slice)."""
    if isinstance(arg, tuple):
        return tuple(map_arg(item, replace) for item in arg)
    if isinstance(arg, ListArg):
        return ListArg(tuple(map_arg(item, replace) for item in arg.items))
    if isinstance(arg, DictArg):
        return DictArg(tuple((key, map_arg(item, replace)) for key, item in arg.items))
    if isinstance(arg, SliceArg):
        return SliceArg(map_arg(arg.start, replace), map_arg(arg.stop, replace), map_arg(arg.step, replace))
    return replace(arg)


def rewrite_op(op: Op, replace: Callable[[Arg], Arg]) -> Op:
    """`op` with `replace` applied to every leaf of its arguments; its recorded `meta` is kept."""
    args = tuple(map_arg(arg, replace) for arg in op.args)
    kwargs = tuple((key, map_arg(value, replace)) for key, value in op.kwargs)
    return dataclasses.replace(op, args=args, kwargs=kwargs)


def leaves(arg: Arg) -> Iterator[Arg]:
    """Every leaf of `arg`, in the order in which `map_arg` meets them."""
    if isinstance(arg, tuple):
        for item in arg:
            yield from leaves(item)
    elif isinstance(arg, ListArg):
        yield from leaves(arg.items)
    elif isinstance(arg, DictArg):
        for _, item in arg.items:
            yield from leaves(item)
    elif isinstance(arg, SliceArg):
        yield from leaves((arg.start, arg.stop, arg.step))
    else:
        yield arg


def literals(graph: Graph) -> Iterator[Arg]:
    """Every leaf of an argument that is no value of the program, those inside subgraphs included."""
    for op in graph.ops:
        for leaf in leaves((op.args, tuple(value for _, value in op.kwargs))):
            if isinstance(leaf, Subgraph):
                yield from literals(leaf.graph)
            elif not isinstance(leaf, Ref):
                yield leaf


def literal_rank(leaf: Arg) -> int:
    """How far a literal is from the plainest of its kind, for the size order. `False`, None, words, 0, 1 and, among integers,
    -1 (mostly the last dim): 0. `True`, 2, 0.5 and -1.0: 1. Other integers, floats of one digit, small powers of two: 2. Floats
    of two or three digits: 3. Longer ones, inf and nan: 4. Complex numbers come last."""
    if isinstance(leaf, bool) or not isinstance(leaf, int | float | complex):
        return int(leaf is True)
    if isinstance(leaf, complex):
        return 4 if leaf == 1j else 5
    if isinstance(leaf, int):
        return 0 if leaf in (0, 1, -1) else 1 if leaf == 2 else 2
    if not math.isfinite(leaf):
        return 4
    if leaf in (0.5, 1, 2, -1) or (leaf == 0 and math.copysign(1, leaf) > 0):
        return int(leaf not in (0, 1))
    short_power = 0.1 < abs(leaf) < 1024 and math.frexp(leaf)[0] in (0.5, -0.5)
    if short_power or float(f"{leaf:.1g}") == leaf:
        return 2
    return 3 if float(f"{leaf:.3g}") == leaf else 4


def short_name(target: str) -> str:
    """What a reader calls a call: `relu` of `torch.ops.aten.relu.default` as of `torch.relu`."""
    parts = target.split(".")
    return parts[3] if target.startswith("torch.ops.") and len(parts) > 3 else parts[-1]


def free_ops(graph: Graph) -> frozenset[str]:
    """Names of the calls that are not ops of their own (design §10): indexing a tuple, and reading a shape.

    They go wherever the value they read goes."""
    sequences = {op.name for op in graph.ops if isinstance(op.meta, SequenceMeta)}
    free = set()
    for op in graph.ops:
        source = op.args[0].name if op.args and isinstance(op.args[0], Ref) else ""
        indexes = op.target == "operator.getitem" and source in sequences
        if indexes or (op.target in (".size", ".dim", ".numel") and not isinstance(op.meta, TensorMeta)):
            free.add(op.name)
    return frozenset(free)


def op_count(graph: Graph) -> int:
    """The number of calls, tuple indexing and shape reads apart, those inside subgraphs included."""
    free = free_ops(graph)
    return sum(op_count(body) for op in graph.ops for body in bodies(op)) + sum(op.name not in free for op in graph.ops)


def bodies(op: Op) -> tuple[Graph, ...]:
    """The subgraphs among the arguments of a higher-order op."""
    found: list[Graph] = []

    def note(arg: Arg) -> Arg:
        if isinstance(arg, Subgraph):
            found.append(arg.graph)
        return arg

    rewrite_op(op, note)
    return tuple(found)
