"""A small language for cases in tests: `chain("x", ("torch.relu",), (".mul", 2.0))`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from minify.case import (
    Arg,
    Case,
    Graph,
    Input,
    Op,
    Program,
    Recipe,
    Recorded,
    Ref,
    ScalarInput,
    ScalarMeta,
    SequenceMeta,
    Settings,
    TensorMeta,
    Value,
    ValueMeta,
    contiguous_stride,
    numel,
)

FRESH = -1
RECORDED = Recorded("0" * 32, low=-2.0, high=2.0)


def tensor(
    shape: tuple[int, ...] = (4, 8),
    dtype: str = "float32",
    stride: tuple[int, ...] | None = None,
    storage: int = FRESH,
    offset: int = 0,
    requires_grad: bool = False,
    flags: tuple[str, ...] = (),
) -> TensorMeta:
    """A layout; `FRESH` storages are numbered by `build`."""
    stride = contiguous_stride(shape) if stride is None else stride
    last = sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    needed = offset + last + 1 if numel(shape) else offset
    return TensorMeta(shape, stride, offset, dtype, "cpu", requires_grad, storage, needed, flags)


def given(name: str, meta: TensorMeta | None = None, value: Value = RECORDED, dynamic: tuple[int, ...] = ()) -> Input:
    return Input(name, meta or tensor(), value, dynamic)


def op(name: str, target: str, *args: Arg, meta: ValueMeta | None = None, **kwargs: Arg) -> Op:
    """A call; without `meta` its result is a fresh tensor of the default layout."""
    return Op(name, target, args, tuple(kwargs.items()), meta or tensor())


def nothing() -> ScalarMeta:
    return ScalarMeta(None)


def several(*items: ValueMeta) -> SequenceMeta:
    return SequenceMeta(items)


def build(
    inputs: Sequence[Input | ScalarInput | str],
    ops: Sequence[Op],
    outputs: Sequence[str],
    settings: Settings | None = None,
    level: str = "dynamo",
) -> Case:
    """A case; a string among `inputs` is a default tensor of that name. Fresh storages get numbers of their own."""
    counter = iter(range(100, 10**6))

    def placed(meta: TensorMeta) -> TensorMeta:
        return dataclasses.replace(meta, storage=next(counter)) if meta.storage == FRESH else meta

    def number(meta: ValueMeta | None) -> ValueMeta | None:
        if isinstance(meta, SequenceMeta):
            return SequenceMeta(tuple(item for item in map(number, meta.items) if item))
        return placed(meta) if isinstance(meta, TensorMeta) else meta

    items = [given(item) if isinstance(item, str) else item for item in inputs]
    numbered = tuple(
        dataclasses.replace(item, meta=placed(item.meta)) if isinstance(item, Input) else item for item in items
    )
    calls = tuple(dataclasses.replace(call, meta=number(call.meta)) for call in ops)
    graph = Graph(tuple(item.name for item in numbered), calls, tuple(Ref(name) for name in outputs))
    return Case(Program(graph, level), numbered, settings or Settings())


def chain(first: str, *steps: tuple[Arg, ...]) -> Case:
    """One op after another, each reading the one before: `(target, *further arguments)`, called `a`, `b`, `c`..."""
    calls, last = [], first
    for letter, (target, *rest) in zip("abcdefghijklmnop", steps, strict=False):
        calls.append(op(letter, str(target), Ref(last), *rest))
        last = letter
    return build([first], calls, [last])


def show(case: Case) -> str:
    """A case's program in one line: `x | a = torch.relu(x); b = .mul(a, 2.0) | b`."""
    calls = "; ".join(f"{call.name} = {call.target}({show_call(call)})" for call in case.graph.ops)
    return f"{' '.join(case.graph.params)} | {calls} | {' '.join(map(show_arg, case.graph.outputs))}"


def show_call(call: Op) -> str:
    parts = [show_arg(arg) for arg in call.args] + [f"{key}={show_arg(value)}" for key, value in call.kwargs]
    return ", ".join(parts)


def show_arg(arg: Arg) -> str:
    if isinstance(arg, Ref):
        return arg.name
    if isinstance(arg, tuple):
        return f"({', '.join(map(show_arg, arg))})"
    return getattr(arg, "text", None) or repr(arg)


def values(case: Case) -> dict[str, str]:
    """Each tensor input's value in a word: `recorded`, a `Derived` name, or a recipe."""
    words = {}
    for item in case.inputs:
        if isinstance(item, Input):
            value = item.value
            words[item.name] = "recorded" if isinstance(value, Recorded) else getattr(value, "name", "")
            if isinstance(value, Recipe):
                words[item.name] = f"{value.kind}{value.args or ''}"
    return words


def storages(case: Case) -> dict[str, int]:
    return {item.name: item.meta.storage for item in case.inputs if isinstance(item, Input)}
