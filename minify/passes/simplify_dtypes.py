"""Give inputs plainer dtypes: float32 in place of other floats and of complex numbers, int64 in place of other integers.

May lose: a type promotion that decides, a kernel or a cast that only one dtype has, how many elements a vector holds,
the rounding of half precision, values beyond the new dtype's range, imaginary parts. What was recorded is converted.
Inputs that share memory change together, and not at all where they see it as different dtypes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from minify.case import (
    Arg,
    Case,
    Const,
    Derived,
    Input,
    Op,
    Recipe,
    Recorded,
    Subgraph,
    TensorMeta,
    rewrite_op,
    tensor_inputs,
)
from minify.passes.autocast import ENTER, EXIT, pair_of
from minify.passes.contract import Pass, Site
from minify.passes.pieces import pieces
from minify.passes.prune import with_graph
from minify.passes.simplify_values import storage_groups

MOST_PIECES = 4
HALF = ("float16", "bfloat16")
FLOATS = ("float64", "float16", "bfloat16")
INTEGERS = ("int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64")
COMPLEX = {
    "complex128": ("float32", "complex64"),
    "complex64": ("float32",),
    "complex32": ("float32", "complex64"),
}
CASTS = {
    "float64": ".double", "float32": ".float", "float16": ".half", "bfloat16": ".bfloat16",
    "int64": ".long", "int32": ".int", "int16": ".short", "int8": ".char", "uint8": ".byte",
    "complex64": ".cfloat", "complex128": ".cdouble", "complex32": ".chalf",
}  # fmt: skip


def plainer(dtype: str) -> tuple[str, ...]:
    """The dtypes to try in place of `dtype`, the plainest first; all are smaller in the size order."""
    if dtype in INTEGERS:
        return ("int64",)
    if dtype in FLOATS or dtype.startswith("float8_"):
        return ("float32",)
    return COMPLEX.get(dtype, ())


def plainest(dtype: str) -> str:
    return next(iter(plainer(dtype)), dtype)


def find(case: Case) -> tuple[Site, ...]:
    """`(old, new)` for all inputs of a dtype, with what names it in the program; then `(old, new, inputs...)` for some of
    them and nothing else. The latter only where such dtypes are mixed already, since a mixture is likely to be taken for the
    cause, and may be the cause of another failure."""
    classes = dtype_classes(case)
    whole: list[Site] = [(old, new) for old in classes for new in plainer(old)]
    named = {dtype for op in case.graph.ops for dtype in dtypes_named(op)}
    metas = (*(item.meta for item in tensor_inputs(case)), *(op.meta for op in case.graph.ops))
    present = {meta.dtype for meta in metas if isinstance(meta, TensorMeta)}
    parts: list[Site] = []
    for old, groups in classes.items():
        mixed = any(dtype != old and plainest(dtype) == plainest(old) for dtype in present)
        if old in named or (mixed and len(groups) > 1):
            some = (sum(piece, ()) for piece in pieces(groups, MOST_PIECES))
            parts += [(old, plainest(old), *names) for names in some]
    return (*whole, *parts)


def dtype_classes(case: Case) -> dict[str, tuple[tuple[str, ...], ...]]:
    """The inputs that have a plainer dtype, by the present one, each with those that share its memory."""
    found: dict[str, tuple[tuple[str, ...], ...]] = {}
    for members in storage_groups(case).values():
        dtypes = {item.meta.dtype for item in members}
        if len(dtypes) == 1 and not any(isinstance(item.value, Derived) for item in members):
            (dtype,) = dtypes
            if plainer(dtype):
                found[dtype] = (*found.get(dtype, ()), tuple(item.name for item in members))
    return found


def rewrite(case: Case, sites: tuple[Site, ...]) -> Case:
    """The edit of each site; where several name one input or dtype, the first wins."""
    classes = dtype_classes(case)
    inputs: dict[str, str] = {}
    program: dict[str, str] = {}
    for old, new, *names in sites:
        if not names:
            program.setdefault(str(old), str(new))
            names = [name for group in classes[str(old)] for name in group]
        for name in names:
            inputs.setdefault(str(name), str(new))
    return _given(case, inputs, program)


def _given(case: Case, inputs: Mapping[str, str], program: Mapping[str, str]) -> Case:
    """`case` with the dtypes of `inputs` by name, and with those of `program` in place of the ones that it names."""
    items = tuple(
        converted(item, inputs[item.name]) if isinstance(item, Input) and item.name in inputs else item
        for item in case.inputs
    )
    ops = tuple(with_dtypes(op, program) for op in case.graph.ops)
    return dataclasses.replace(with_graph(case, ops, case.graph.outputs), inputs=items)


def converted(item: Input, dtype: str) -> Input:
    """`item` with the elements it has, as another dtype."""
    meta, value, real = item.meta, item.value, not dtype.startswith("complex")
    if isinstance(value, Recorded):
        value = dataclasses.replace(value, dtype=value.dtype or meta.dtype)
    elif isinstance(value, Recipe) and real:
        args = tuple(arg.real if isinstance(arg, complex) else arg for arg in value.args)
        value = dataclasses.replace(value, args=args)
    flags = tuple(flag for flag in meta.flags if flag != "conj" or not real)
    return dataclasses.replace(item, meta=dataclasses.replace(meta, dtype=dtype, flags=flags), value=value)


def half_types(case: Case) -> tuple[str, ...]:
    """The half-precision dtypes that an input has, the program names, or autocast may bring in."""
    found = {dtype for op in case.graph.ops for dtype in dtypes_named(op)}
    found |= {item.meta.dtype for item in tensor_inputs(case)} | {dtype for _, dtype in case.settings.autocast}
    found |= {pair[1] for op in case.graph.ops if op.target == ENTER and (pair := pair_of(op)) is not None}
    return tuple(dtype for dtype in HALF if dtype in found)


def in_float32(case: Case) -> Case | None:
    """The same program in float32 wherever it is in half precision, autocast included; None where it nowhere is, or where it
    looks at one memory as several dtypes."""
    halves = half_types(case)
    groups = storage_groups(case).values()
    if not halves or any(len({item.meta.dtype for item in members}) > 1 for members in groups):
        return None
    ops = tuple(op for op in case.graph.ops if op.target not in (ENTER, EXIT))
    settings = dataclasses.replace(case.settings, autocast=())
    case = dataclasses.replace(with_graph(case, ops, case.graph.outputs), settings=settings)
    named = {item.name: "float32" for item in tensor_inputs(case) if item.meta.dtype in halves}
    return _given(case, named, dict.fromkeys(halves, "float32"))


# --- dtypes that the program names ---------------------------------------------------------------------------------------


def dtypes_named(op: Op) -> set[str]:
    """The dtypes that `op` casts to or asks for. Those of an autocast region are a setting of it."""
    if op.target == ENTER:
        return set()
    found = {dtype for dtype, method in CASTS.items() if op.target == method}

    def note(leaf: Arg) -> Arg:
        if isinstance(leaf, Const) and leaf.text.startswith("torch."):
            found.add(leaf.text.removeprefix("torch."))
        elif isinstance(leaf, Subgraph):
            found.update(dtype for inner in leaf.graph.ops for dtype in dtypes_named(inner))
        return leaf

    rewrite_op(op, note)
    return found


def with_dtypes(op: Op, new: Mapping[str, str]) -> Op:
    """`op` asking for the dtypes that `new` gives in place of those it names."""
    if not new or op.target == ENTER:
        return op
    targets = {CASTS[old]: CASTS[dtype] for old, dtype in new.items() if old in CASTS}
    constants = {f"torch.{old}": Const(f"torch.{dtype}") for old, dtype in new.items()}

    def exchanged(leaf: Arg) -> Arg:
        if isinstance(leaf, Const):
            return constants.get(leaf.text, leaf)
        if isinstance(leaf, Subgraph):
            inner = tuple(with_dtypes(op, new) for op in leaf.graph.ops)
            return dataclasses.replace(leaf, graph=dataclasses.replace(leaf.graph, ops=inner))
        return leaf

    return dataclasses.replace(rewrite_op(op, exchanged), target=targets.get(op.target, op.target))


SIMPLIFY_DTYPES = Pass("dtypes", find, rewrite, polish=True)
