"""Run a graph op by op, eagerly: plainly, or in lockstep with the same program one precision up (the reference).

Owns: how an argument becomes a Python value, what is noted of each value (`describe`), and where the high-precision
run has to fall back. Compiles nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch

from minify import render, torch_internals
from minify.case import (
    Arg,
    Const,
    DictArg,
    Graph,
    ListArg,
    Op,
    OpaqueMeta,
    Ref,
    ScalarMeta,
    SequenceMeta,
    SliceArg,
    Subgraph,
    TensorMeta,
    ValueMeta,
    op_refs,
    refs,
    rewrite_op,
)

Env = dict[str, Any]
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
    "fp64": {".float": ".double", ".half": ".double", ".bfloat16": ".double"},
    "fp32": {".half": ".float", ".bfloat16": ".float"},
}
_IN_PLACE_FUNCTIONS = ("operator.setitem", "torch.Tensor.__setitem__")


def argument(arg: Arg, env: Mapping[str, Any]) -> Any:
    """The Python value of one argument. Raises KeyError on an undefined name."""
    if isinstance(arg, Ref):
        return env[arg.name]
    if isinstance(arg, Const):
        return eval(arg.text, {"torch": torch})
    if isinstance(arg, tuple):
        return tuple(argument(item, env) for item in arg)
    if isinstance(arg, ListArg):
        return [argument(item, env) for item in arg.items]
    if isinstance(arg, DictArg):
        return {key: argument(item, env) for key, item in arg.items}
    if isinstance(arg, SliceArg):
        return slice(*(argument(part, env) for part in (arg.start, arg.stop, arg.step)))
    if isinstance(arg, Subgraph):
        return python_function(arg.graph)
    return arg


def map_arg_values(arg: Arg, evaluate: Callable[[str], Any]) -> Any:
    """The Python value of an argument without refs, its constants looked up by `evaluate`."""
    if isinstance(arg, Const):
        return evaluate(arg.text)
    if isinstance(arg, tuple):
        return tuple(map_arg_values(item, evaluate) for item in arg)
    if isinstance(arg, ListArg):
        return [map_arg_values(item, evaluate) for item in arg.items]
    if isinstance(arg, DictArg):
        return {key: map_arg_values(item, evaluate) for key, item in arg.items}
    return arg


def namespace() -> dict[str, Any]:
    """The globals that rendered text expects: the imports every repro starts with."""
    import math
    import operator

    return {"torch": torch, "F": torch.nn.functional, "math": math, "operator": operator}


def python_function(graph: Graph, name: str = "fn") -> Callable[..., Any]:
    """The graph as the Python function that a repro would print."""
    scope = namespace()
    exec(render.text(render.function(graph, name)), scope)
    return scope[name]  # type: ignore[no-any-return]


def run_op(op: Op, env: Mapping[str, Any]) -> Any:
    """The result of one call on the values in `env`."""
    args = [argument(arg, env) for arg in op.args]
    kwargs = {key: argument(value, env) for key, value in op.kwargs}
    if op.target.startswith("."):
        return getattr(args[0], op.target[1:])(*args[1:], **kwargs)
    return torch_internals.resolve(op.target)(*args, **kwargs)


def last_readers(graph: Graph) -> dict[int, tuple[str, ...]]:
    """For each op position, the names nobody reads after it; outputs are never let go."""
    kept = set(refs(graph.outputs))
    last: dict[str, int] = {}
    for position, op in enumerate(graph.ops):
        for name in (op.name, *op_refs(op)):
            last[name] = position
    found: dict[int, tuple[str, ...]] = {}
    for name, position in last.items():
        if name not in kept:
            found[position] = (*found.get(position, ()), name)
    return found


def run(
    graph: Graph,
    values: Sequence[Any],
    before: Callable[[Op | None, Env], None] | None = None,
    keep: Collection[str] = (),
) -> tuple[Any, ...]:
    """Run `graph` on `values`, letting go of each intermediate after its last reader (those in `keep` apart).

    `before(op, env)` may look in ahead of each op, and once more with None at the end."""
    env: Env = dict(zip(graph.params, values, strict=True))
    done = last_readers(graph)
    for position, op in enumerate(graph.ops):
        if before is not None:
            before(op, env)
        env[op.name] = run_op(op, env)
        for name in done.get(position, ()):
            if name not in keep:
                env.pop(name, None)
    if before is not None:
        before(None, env)
    return tuple(argument(output, env) for output in graph.outputs)


# --- what is noted of a value -----------------------------------------------------------------------------------------


class StorageNumbers:
    """Small numbers for storages: equal for values that share memory. A storage's number dies with its last value, since
    the allocator hands the same address out again."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._users: dict[int, set[str]] = {}
        self._next = 0

    def number(self, tensor: torch.Tensor, user: str) -> int:
        key = torch_internals.storage_key(tensor)
        if key not in self._numbers:
            self._numbers[key], self._next = self._next, self._next + 1
        self._users.setdefault(key, set()).add(user)
        return self._numbers[key]

    def forget(self, user: str) -> None:
        for key in [key for key, users in self._users.items() if user in users]:
            self._users[key].discard(user)
            if not self._users[key]:
                del self._users[key], self._numbers[key]


def flags_of(tensor: torch.Tensor) -> tuple[str, ...]:
    """Lazy states of a tensor that its data alone does not show."""
    found = []
    if torch_internals.is_zerotensor(tensor):
        found.append("zerotensor")
    if tensor.is_conj():
        found.append("conj")
    if tensor.is_neg():
        found.append("neg")
    if isinstance(tensor, torch.nn.Parameter):
        found.append("parameter")
    return tuple(found)


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def device_name(device: torch.device) -> str:
    return device.type if device.index in (None, 0) else str(device)


def describe_tensor(tensor: torch.Tensor, storage: int) -> TensorMeta:
    """Layout facts of a strided tensor; `storage` is the number its memory goes by. Raises TypeError for other layouts."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise TypeError(f"a {tensor.layout} tensor has no strides")
    flags = flags_of(tensor)
    size = tensor.numel() if "zerotensor" in flags else tensor.untyped_storage().nbytes() // max(tensor.element_size(), 1)
    return TensorMeta(
        tuple(tensor.shape),
        tuple(tensor.stride()),
        int(tensor.storage_offset()),
        dtype_name(tensor.dtype),
        device_name(tensor.device),
        bool(tensor.requires_grad),
        storage,
        size,
        flags,
    )


def describe(value: Any, numbers: StorageNumbers, user: str) -> ValueMeta:
    """What is noted of any value a graph can hold."""
    if isinstance(value, torch.Tensor):
        try:
            number = -1 if torch_internals.is_zerotensor(value) else numbers.number(value, user)
            return describe_tensor(value, number)
        except (TypeError, RuntimeError, NotImplementedError):
            return OpaqueMeta(type(value).__name__)
    if isinstance(value, torch.Size | tuple | list):
        return SequenceMeta(tuple(describe(item, numbers, user) for item in value))
    if value is None or isinstance(value, bool | int | float | complex | str):
        return ScalarMeta(value)
    if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
        return ScalarMeta(Const(str(value)))
    if isinstance(value, torch.device):
        return ScalarMeta(Const(f"torch.device({str(value)!r})"))
    return OpaqueMeta(type(value).__name__)


# --- the reference -----------------------------------------------------------------------------------------------------


class _Unavailable(Exception):
    """No trustworthy reference can be had for this graph; the text says why."""


@dataclasses.dataclass
class Lockstep:
    """Two runs of one graph side by side. After `run`: `eager` and `reference` are the outputs (`reference` None where
    none can be had), `trace` what was noted of each op, `notes` where the reference had to borrow from eager, `random`
    whether any random number was drawn."""

    graph: Graph
    precision: str
    trace: list[tuple[str, ValueMeta]] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    random: bool = False
    eager: tuple[Any, ...] = ()
    reference: tuple[Any, ...] | None = None

    def run(self, eager_values: Sequence[Any], reference_values: Sequence[Any] | None) -> None:
        """Run both. With `reference_values` None only eager runs. Raises whatever an op raises in eager."""
        low: Env = dict(zip(self.graph.params, eager_values, strict=True))
        high: Env | None = None if reference_values is None else dict(zip(self.graph.params, reference_values, strict=True))
        numbers, done = StorageNumbers(), last_readers(self.graph)
        for name, value in low.items():
            describe(value, numbers, name)
        for position, op in enumerate(self.graph.ops):
            before = random_state()
            guess = None if high is None else self._guess(op, low, high)
            restore_random(before)
            low[op.name] = run_op(op, low)
            drew = random_state() != before
            self.random |= drew
            if high is not None:
                try:
                    high[op.name] = self._settle(op, low[op.name], None if drew else guess)
                except _Unavailable as reason:
                    self.notes.append(str(reason))
                    high = None
            self.trace.append((op.name, describe(low[op.name], numbers, op.name)))
            for name in done.get(position, ()):
                low.pop(name, None)
                numbers.forget(name)
                if high is not None:
                    high.pop(name, None)
        self.eager = tuple(argument(output, low) for output in self.graph.outputs)
        self.reference = None if high is None else tuple(argument(output, high) for output in self.graph.outputs)

    def _guess(self, op: Op, low: Env, high: Env) -> tuple[Any] | None:
        """The op's result one precision up; where it has no such kernel, at its own precision on the reference's values
        cast down. None if neither runs. Comes before eager, whose in-place writes would change what is read here."""
        try:
            return (run_op(self._raised(op), high),)
        except Exception:
            if mutates(op):
                return None
        try:
            result = run_op(op, {name: cast_like(high[name], low[name]) for name in op_refs(op)})
        except Exception:
            return None
        self.notes.append(f"{op.name}: {op.target} taken at its own precision")
        return (raised_copy(result, self.precision),)

    def _raised(self, op: Op) -> Op:
        """`op` with every float dtype it names moved one precision up."""
        higher = {str(low): str(high) for low, high in _HIGHER[self.precision].items()}

        def raise_dtype(arg: Arg) -> Arg:
            return Const(higher.get(arg.text, arg.text)) if isinstance(arg, Const) else arg

        target = _CASTS[self.precision].get(op.target, op.target)
        return dataclasses.replace(rewrite_op(op, raise_dtype), target=target)

    def _settle(self, op: Op, eager: Any, guess: tuple[Any] | None) -> Any:
        """The reference's value of `op`: the guess where it fits eager's result, else eager's own."""
        if guess is not None and same_structure(guess[0], eager):
            return raise_like(guess[0], eager, self.precision)
        if mutates(op):
            raise _Unavailable(f"{op.name}: {op.target} has no higher-precision form; eager is the reference")
        return raised_copy(eager, self.precision)


def mutates(op: Op) -> bool:
    """Whether the call writes into one of its arguments."""
    name = op.target.rsplit(".", 1)[-1] if not op.target.startswith("torch.ops.") else op.target.split(".")[3]
    in_place = name.endswith("_") and not name.endswith("__")
    augmented = op.target.startswith("operator.i") and name not in ("is_", "is_not", "invert", "index", "inv")
    return in_place or augmented or op.target in _IN_PLACE_FUNCTIONS or any(key == "out" for key, _ in op.kwargs)


def random_state() -> tuple[bytes, ...]:
    """The state of every random generator a program could draw from, as bytes."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized():
        states += torch.cuda.get_rng_state_all()
    return tuple(state.numpy().tobytes() for state in states)


def restore_random(state: tuple[bytes, ...]) -> None:
    tensors = [torch.frombuffer(bytearray(part), dtype=torch.uint8) for part in state]
    torch.set_rng_state(tensors[0])
    if len(tensors) > 1:
        torch.cuda.set_rng_state_all(tensors[1:])


def leaves(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor in a result, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)


def map_tensors(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """`value` rebuilt with `change` applied to every tensor."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        items = [map_tensors(item, change) for item in value]
        if isinstance(value, list) or isinstance(value, torch.Size):
            return items if isinstance(value, list) else value
        return tuple(items)
    return value


def higher_dtype(dtype: torch.dtype, precision: str) -> torch.dtype:
    return _HIGHER[precision].get(dtype, dtype)


def raised_copy(value: Any, precision: str) -> Any:
    return map_tensors(value, lambda tensor: tensor.to(higher_dtype(tensor.dtype, precision)))


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
