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
import re
import tempfile
from pathlib import Path
from typing import TypeAlias

from minify.complexity import complexity
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
    bodies,
    free_ops,
    literal_rank,
    literals,
    map_arg,
    map_refs,
    op_count,
    op_refs,
    refs,
    rewrite_op,
)
from minify.sizes import Sizes

__all__ = [
    "DTYPE_RANK",
    "SCHEMA",
    "VALUE_RANK",
    "Arg",
    "Case",
    "Const",
    "Derived",
    "DictArg",
    "Graph",
    "Input",
    "ListArg",
    "Op",
    "OpaqueMeta",
    "Program",
    "Recipe",
    "Recorded",
    "Ref",
    "ScalarInput",
    "ScalarMeta",
    "SequenceMeta",
    "Settings",
    "SliceArg",
    "Subgraph",
    "TensorMeta",
    "Value",
    "ValueMeta",
    "Window",
    "bodies",
    "canonical",
    "contiguous_stride",
    "dense_stride",
    "digest",
    "element_count",
    "free_ops",
    "is_contiguous",
    "literal_size",
    "load",
    "map_arg",
    "map_refs",
    "numel",
    "op_count",
    "op_refs",
    "recorded_count",
    "refs",
    "rewrite_op",
    "save",
    "size",
    "tensor_inputs",
    "write_whole",
]

SCHEMA = 4


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
    (shared storages). `dtype` is what they were recorded in, where the input has another by now: they are then converted."""

    digest: str
    window: Window | None = None
    low: float | None = None
    high: float | None = None
    dtype: str = ""


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


REPLAYS = 3  # where there are to be any


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """How the program is compiled and run.

    `backend`, `mode`, `options`, `dynamic`: as given to `torch.compile`; a `Const` is a name in the prelude.
    `config`: (module, key, value) for each config that differs from its default. `grad_mode`: `no_grad`, `inference` or `grad`.
    `backward`: `""`, or how the cotangents are made: `ones` or `randn`. `autocast`: (device type, dtype) pairs in force.
    `switches`: (name, value) for global switches that differ from torch's default (`deterministic`, `matmul_precision`...).
    `replays`: how often it is called again, each time after two calls with other values; 0 where the first call tells.
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
    replays: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """What is being shrunk. `sizes` say how the dims and numbers of the case of their digest hang together; like `Op.meta` they
    are no part of a case's identity."""

    program: Program
    inputs: tuple[Input | ScalarInput, ...]
    settings: Settings = dataclasses.field(default_factory=Settings)
    sizes: Sizes | None = dataclasses.field(default=None, compare=False)

    @property
    def graph(self) -> Graph:
        return self.program.graph


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


def item_bytes(dtype: str) -> int:
    """Bytes of one element, by the bits that torch's name for the dtype ends in or has in it: `bfloat16`, `float8_e4m3fn`."""
    bits = re.search(r"\d+", dtype)
    return max(1, int(bits.group()) // 8) if bits else 1


def contiguous_stride(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides of `shape`, as torch gives them (a dim of size 0 counts as 1)."""
    stride, step = [], 1
    for size in reversed(shape):
        stride.append(step)
        step *= max(size, 1)
    return tuple(reversed(stride))


def dense_stride(meta: TensorMeta) -> tuple[int, ...]:
    """The strides of `meta` without gaps or overlaps, its dims in the order of memory they have."""
    stride, step = list(meta.stride), 1
    for dim in sorted(range(len(meta.shape)), key=lambda dim: (meta.stride[dim], meta.shape[dim] != 1, -dim)):
        stride[dim] = step
        step *= max(meta.shape[dim], 1)
    return tuple(stride)


def is_contiguous(meta: TensorMeta) -> bool:
    """Whether `meta` has exactly the strides of a fresh row-major tensor at the start of its storage."""
    return meta.stride == contiguous_stride(meta.shape) and meta.offset == 0


DTYPE_RANK = {
    "float32": 0,
    "int64": 1,
    "bool": 2,
    "int32": 3,
    "float64": 4,
    "float16": 5,
    "bfloat16": 6,
    "complex64": 7,
}
VALUE_RANK = {"zeros": 0, "ones": 1, "full": 2, "arange": 3, "rand": 4, "randn": 4, "randint": 5}


def size(case: Case) -> tuple[int, ...]:
    """The size order (design §5), smallest first: ops, their ranks, outputs, inputs, elements, settings, dtypes, layouts, offsets,
    values, the seed, targets, operands, literals (how many, how plain, how long), prelude."""
    tensors = tensor_inputs(case)
    settings = case.settings
    plain = Settings(grad_mode=settings.grad_mode, seed=settings.seed)
    changed = sum(getattr(settings, f.name) != getattr(plain, f.name) for f in dataclasses.fields(Settings))
    shared = len(tensors) - len({item.meta.storage for item in tensors})
    constants = tuple(literals(case.graph))
    return (
        op_count(case.graph),
        complexity(case.graph),
        len(case.graph.outputs),
        len(case.inputs),
        element_count(case),
        changed
        + len(settings.config)
        + len(settings.options)
        + len(settings.autocast)
        + len(settings.switches)
        + settings.replays
        + (settings.backward == "randn")
        + (settings.grad_mode != "no_grad"),
        sum(DTYPE_RANK.get(item.meta.dtype, 9) for item in tensors),
        shared
        + sum(
            layout_rank(item.meta) + item.meta.requires_grad + len(item.meta.flags) + len(item.dynamic_dims)
            for item in tensors
        ),
        sum(item.meta.offset for item in tensors),
        sum(VALUE_RANK.get(item.value.kind, 9) if isinstance(item.value, Recipe) else 10 for item in tensors),
        settings.seed,
        sum(op.target.startswith("torch.ops.aten.") for op in case.graph.ops),
        sum(len(op_refs(op)) for op in case.graph.ops),
        len(constants),
        sum(map(literal_rank, constants)),
        literal_size(case.graph),
        len(case.program.prelude),
    )


def layout_rank(meta: TensorMeta) -> int:
    """How many facts set `meta` apart from a fresh row-major tensor: an offset, gaps or overlaps, another order of dims."""
    row_major = meta.stride == contiguous_stride(meta.shape)
    return (meta.offset != 0) + (not row_major and meta.stride != dense_stride(meta)) + (not row_major)


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
    except OSError:
        raise
    except Exception as error:
        raise ValueError(f"{path} is not a saved case: {error}") from error
    if schema != SCHEMA or not isinstance(case, Case):
        raise ValueError(f"{path} has schema {schema!r}, this minify reads {SCHEMA}")
    return case


def write_whole(path: Path, content: bytes) -> None:
    """Replace `path` by `content` in one step; a crash leaves the old file or the new one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".")
    try:
        os.fchmod(handle, 0o644)  # like any file: a repro is to be handed on
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
