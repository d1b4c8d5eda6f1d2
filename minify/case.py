"""A case: the program, its inputs and its settings, as plain frozen data.

Owns the words everything else speaks: `Case`, `Program`, `Graph`, `Op`, `Input`, `Settings`, and their digest,
size order, saving and loading. Knows nothing of torch: dtypes, devices and constants are kept as the text that
names them (`"float32"`, `"cpu"`, `Const("torch.channels_last")`), so a case can be hashed, pickled and printed anywhere.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

SCHEMA = 1


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
    """The body of a higher-order op, emitted as a nested function."""

    graph: Graph


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


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """A graph and its `level` (`dynamo` or `aten`). `prelude` is Python text that must run first (custom ops, a custom backend)."""

    graph: Graph
    level: str = "dynamo"
    prelude: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """An `as_strided` view of recorded storage: which elements of it a value takes."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class Recorded:
    """Real data, in the store under `digest` as a 1-D tensor holding one storage.

    With `window`, the logical elements of the input are that view of it; without, the input lies in this very storage
    (shared storages)."""

    digest: str
    window: Window | None = None
    low: float | None = None
    high: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Derived:
    """The value that `name` has when the case saved under `base` is run eagerly."""

    base: str
    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Recipe:
    """A storage filled by rule: `zeros`, `ones`, `full(value)`, `arange`, `rand`, `randn`, `randint(low, high)`.

    The elements are those of the storage in memory order, so that a transposed input is a transposed `randn`."""

    kind: str
    args: tuple[int | float | bool | complex, ...] = ()
    seed: int = 0


Value: TypeAlias = Recorded | Derived | Recipe


@dataclasses.dataclass(frozen=True, slots=True)
class Input:
    """One tensor parameter: its layout in elements, its value, and which inputs share its storage (`storage` equal).

    `dynamic_dims` are dims the compiler must treat as symbolic."""

    name: str
    meta: TensorMeta
    value: Value
    dynamic_dims: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ScalarInput:
    """A parameter that is a Python number: symbolic to the compiler when `dynamic`."""

    name: str
    value: bool | int | float | complex
    dynamic: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """How the program is compiled and run.

    `backend`, `mode`, `options`, `dynamic`, `fullgraph`: as given to `torch.compile`; a `Const` is a name in the prelude.
    `config`: (module, key, value) for each config that differs from its default. `grad_mode`: `no_grad`, `inference` or `grad`.
    `backward`: `""`, or how the cotangents are made: `ones` or `randn`. `autocast`: (device type, dtype) pairs in force.
    `switches`: (name, value) for global switches that differ from torch's default (`deterministic`, `matmul_precision`, `default_dtype`...).
    """

    backend: Arg = "inductor"
    mode: str | None = None
    options: tuple[tuple[str, Arg], ...] = ()
    dynamic: bool | None = None
    config: tuple[tuple[str, str, Arg], ...] = ()
    grad_mode: str = "no_grad"
    backward: str = ""
    autocast: tuple[tuple[str, str], ...] = ()
    switches: tuple[tuple[str, Arg], ...] = ()
    seed: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """What is being shrunk."""

    program: Program
    inputs: tuple[Input | ScalarInput, ...]
    settings: Settings = dataclasses.field(default_factory=Settings)

    @property
    def graph(self) -> Graph:
        return self.program.graph


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
    inner = sum(op_count(arg.graph) for op in graph.ops for arg in op.args if isinstance(arg, Subgraph))
    return inner + sum(op.name not in free for op in graph.ops)


def tensor_inputs(case: Case) -> tuple[Input, ...]:
    return tuple(item for item in case.inputs if isinstance(item, Input))


def element_count(case: Case) -> int:
    """Total elements of all tensor inputs."""
    return sum(numel(item.meta.shape) for item in tensor_inputs(case))


def recorded_count(case: Case) -> int:
    """Inputs whose failure needs real data rather than a recipe."""
    return sum(not isinstance(item.value, Recipe) for item in tensor_inputs(case))


def numel(shape: tuple[int, ...]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


def contiguous_stride(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides of `shape`, as torch gives them (a dim of size 0 counts as 1)."""
    stride, step = [], 1
    for size in reversed(shape):
        stride.append(step)
        step *= max(size, 1)
    return tuple(reversed(stride))


def is_contiguous(meta: TensorMeta) -> bool:
    """Whether `meta` has exactly the strides of a fresh row-major tensor at the start of its storage."""
    return meta.stride == contiguous_stride(meta.shape) and meta.offset == 0


DTYPE_RANK = {"float32": 0, "int64": 1, "bool": 2, "int32": 3, "float64": 4, "float16": 5, "bfloat16": 6, "complex64": 7}
VALUE_RANK = {"zeros": 0, "ones": 1, "full": 2, "arange": 3, "rand": 4, "randn": 4, "randint": 5}


def size(case: Case) -> tuple[int, ...]:
    """The size order (design §5), smallest first: ops, outputs, inputs, elements, settings, dtypes, layouts, values, targets, literals."""
    tensors = tensor_inputs(case)
    settings = case.settings
    plain = Settings(grad_mode=settings.grad_mode)
    changed = sum(getattr(settings, f.name) != getattr(plain, f.name) for f in dataclasses.fields(Settings))
    shared = len(tensors) - len({item.meta.storage for item in tensors})
    return (
        op_count(case.graph),
        len(case.graph.outputs),
        len(case.inputs),
        element_count(case),
        changed
        + len(settings.config)
        + len(settings.options)
        + len(settings.autocast)
        + len(settings.switches)
        + (settings.backward == "randn")
        + (settings.grad_mode != "no_grad"),
        sum(DTYPE_RANK.get(item.meta.dtype, 9) for item in tensors),
        shared
        + sum(
            (not is_contiguous(item.meta)) + item.meta.requires_grad + len(item.meta.flags) + len(item.dynamic_dims)
            for item in tensors
        ),
        sum(VALUE_RANK.get(item.value.kind, 9) if isinstance(item.value, Recipe) else 10 for item in tensors),
        sum(op.target.startswith("torch.ops.aten.") for op in case.graph.ops),
        literal_size(case.graph),
    )


def literal_size(graph: Graph) -> int:
    """Characters that the arguments take when printed."""
    return sum(len(canonical((op.args, op.kwargs))) for op in graph.ops)


def canonical(part: object) -> str:
    """One text for one meaning: unlike `==` it tells `1`, `1.0` and `True` apart, and `-0.0` from `0.0`. Leaves `meta` of ops out."""
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        fields = [canonical(getattr(part, f.name)) for f in dataclasses.fields(part) if f.compare]
        return f"{type(part).__name__}({','.join(fields)})"
    if isinstance(part, tuple):
        return f"({','.join(canonical(item) for item in part)})"
    return repr(part)


def digest(case: Case) -> str:
    """32 hex digits that name the content of `case`: program, inputs (values included) and settings."""
    return hashlib.sha256(f"{SCHEMA}:{canonical(case)}".encode()).hexdigest()[:32]


def save(case: Case, path: Path) -> None:
    """Write `case` so that a reader sees either the whole file or none. Raises OSError (a full disk, say)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, pickle.dumps((SCHEMA, case), protocol=4))


def load(path: Path) -> Case:
    """Read a case back. Raises ValueError where the file was written by another schema or is none of ours."""
    try:
        schema, case = pickle.loads(path.read_bytes())
    except (pickle.UnpicklingError, EOFError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a saved case: {error}") from error
    if schema != SCHEMA or not isinstance(case, Case):
        raise ValueError(f"{path} has schema {schema!r}, this minify reads {SCHEMA}")
    return case


def write_whole(path: Path, content: bytes) -> None:
    """Replace `path` by `content` in one step; a crash leaves the old file or the new one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
