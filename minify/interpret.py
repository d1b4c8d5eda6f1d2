"""Run a graph op by op, eagerly.

Owns: how an argument becomes a Python value, and what is noted of each value (`describe`). Compiles nothing.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from minify import render, torch_internals
from minify.graph import (
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
)

Env = dict[str, Any]
# What every repro imports.
MODULES: Mapping[str, Any] = MappingProxyType(
    {"torch": torch, "F": torch.nn.functional, "math": math, "operator": operator}
)


def argument(arg: Arg, env: Mapping[str, Any], scope: Mapping[str, Any] = MODULES) -> Any:
    """The Python value of one argument; `scope` is what constants are names in. Raises KeyError on an undefined name."""
    if isinstance(arg, Ref):
        return env[arg.name]
    if isinstance(arg, Const):
        return eval(arg.text, dict(scope))
    if isinstance(arg, tuple):
        return tuple(argument(item, env, scope) for item in arg)
    if isinstance(arg, ListArg):
        return [argument(item, env, scope) for item in arg.items]
    if isinstance(arg, DictArg):
        return {key: argument(item, env, scope) for key, item in arg.items}
    if isinstance(arg, SliceArg):
        return slice(*(argument(part, env, scope) for part in (arg.start, arg.stop, arg.step)))
    if isinstance(arg, Subgraph):
        return python_function(arg.graph, scope, bare=arg.bare)
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
    return dict(MODULES)


def python_function(graph: Graph, scope: Mapping[str, Any] = MODULES, *, bare: bool = True) -> Callable[..., Any]:
    """The graph as the Python function that a repro would print; not `bare`, one that returns a tuple."""
    own = dict(scope)
    exec(render.text(render.function(graph, "fn", bare=bare)), own)
    return own["fn"]  # type: ignore[no-any-return]


def run_op(op: Op, env: Mapping[str, Any], scope: Mapping[str, Any] = MODULES) -> Any:
    """The result of one call on the values in `env`."""
    args = [argument(arg, env, scope) for arg in op.args]
    kwargs = {key: argument(value, env, scope) for key, value in op.kwargs}
    if op.target.startswith("."):
        return getattr(args[0], op.target[1:])(*args[1:], **kwargs)
    if op.target == "torch.cond" and len(args) == 4:  # outside a compiled function torch.cond calls the compiler
        return args[1 if args[0] else 2](*args[3])
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
    scope: Mapping[str, Any] = MODULES,
) -> tuple[Any, ...]:
    """Run `graph` on `values`, letting go of each intermediate after its last reader (those in `keep` apart, for as long
    as they are in it).

    `before(op, env)` may look in ahead of each op, and once more with None at the end."""
    env: Env = dict(zip(graph.params, values, strict=True))
    done, held = last_readers(graph), set[str]()
    for position, op in enumerate(graph.ops):
        if before is not None:
            before(op, env)
        env[op.name] = run_op(op, env, scope)
        held.update(done.get(position, ()))
        for name in held.difference(keep):
            env.pop(name, None)
            held.discard(name)
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
    size = (
        tensor.numel() if "zerotensor" in flags else tensor.untyped_storage().nbytes() // max(tensor.element_size(), 1)
    )
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


def map_tensors(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """`value` rebuilt with `change` applied to every tensor."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, list):
        return [map_tensors(item, change) for item in value]
    if isinstance(value, tuple) and not isinstance(value, torch.Size):
        return tuple(map_tensors(item, change) for item in value)
    return value


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


# --- random numbers -----------------------------------------------------------------------------------------------------


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


@contextlib.contextmanager
def modes_kept() -> Iterator[None]:
    """Grad mode, autocast and functorch levels are afterwards as they were, whatever is entered and not left."""
    grad, cache = torch.is_grad_enabled(), torch.is_autocast_cache_enabled()
    devices = ("cpu", "cuda")
    autocast = [(device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in devices]
    try:
        with torch_internals.functorch_levels_kept():
            yield
    finally:
        torch.set_grad_enabled(grad)
        torch.set_autocast_cache_enabled(cache)
        for device, enabled, dtype in autocast:
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)


def grad_mode() -> str:
    """As `Settings` has it."""
    if torch.is_inference_mode_enabled():
        return "inference"
    return "grad" if torch.is_grad_enabled() else "no_grad"


class NoDispatch(TorchFunctionMode):
    """Shields our own bookkeeping from torch-function modes the user has installed (a default device, say)."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))
