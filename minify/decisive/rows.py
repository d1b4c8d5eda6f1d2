"""ROWS: every kind of property that may decide, each with the ways to change it and nothing else. Pure: nothing is run.

The order is the order in which the facts are told, and in which the nearest program that passes is chosen: what leaves the
program as it is comes first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial

from minify import render
from minify.case import (
    Case,
    Const,
    Derived,
    Input,
    Op,
    Recipe,
    TensorMeta,
    contiguous_stride,
    numel,
    tensor_inputs,
)
from minify.complexity import out_of_place
from minify.graph import short_name
from minify.passes.contract import Pass, Site
from minify.passes.cut_ops import CUT_OPS
from minify.passes.drop_outputs import DROP_OUTPUTS
from minify.passes.resize import shrink
from minify.passes.simplify_constants import SIMPLIFY_CONSTANTS, Default, Plainer, slots
from minify.passes.simplify_dtypes import SIMPLIFY_DTYPES, converted
from minify.passes.simplify_layouts import SIMPLIFY_LAYOUTS
from minify.passes.simplify_ops import SIMPLIFY_OPS, WITHOUT
from minify.passes.simplify_settings import SIMPLIFY_SETTINGS
from minify.passes.simplify_values import storage_groups, value_range
from minify.passes.size_classes import SizeClass, known_sizes, size_classes
from minify.sizes import atom

CALLS = "call"
MOST_GROWN = 1 << 20  # elements that an input may have once its dim is doubled
VIEWS = (
    "t",
    "transpose",
    "permute",
    "view",
    "reshape",
    "expand",
    "unsqueeze",
    "squeeze",
    "narrow",
    "as_strided",
    "select",
    "unfold",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """`what` the case has, `instead` of which something plainer stands in what the first sound one of `cases` builds. `sized` says
    of which dims, and their size, where it is that: the answers to a smaller and a larger one are told together."""

    what: str
    instead: str
    cases: tuple[Callable[[], Case], ...]
    sized: tuple[str, int] | None = None


Row = Callable[[Case, bool], Iterator[Change]]


def _edit(case: Case, edit: Pass, site: Site) -> Callable[[], Case]:
    return partial(edit.rewrite, case, (site,))


# --- layouts -------------------------------------------------------------------------------------------------------------


def layouts(case: Case, random: bool) -> Iterator[Change]:
    items = {item.name: item for item in tensor_inputs(case)}
    for site in SIMPLIFY_LAYOUTS.find(case):
        fact, item = str(site[0]), items[str(site[1])]
        if fact == "offset 1":
            continue
        others = [
            other.name for other in items.values() if other.meta.storage == item.meta.storage and other is not item
        ]
        words, instead = _layout_words(fact, item, others)
        yield Change(f"{item.name} {words}", instead, (_edit(case, SIMPLIFY_LAYOUTS, site),))


def _layout_words(fact: str, item: Input, others: list[str]) -> tuple[str, str]:
    meta = item.meta
    stride = render.text_of(meta.stride)
    if fact == "no offset":
        return f"starts {meta.offset} elements into its storage", "offset 0"
    if fact == "unshared":
        return f"lies in the memory of {', '.join(others)}", "memory of its own"
    if fact == "dense":
        expanded = any(step == 0 and size > 1 for step, size in zip(meta.stride, meta.shape, strict=True))
        return (
            (f"is expanded (stride {stride})", "a dense copy") if expanded else (f"has gaps (stride {stride})", "dense")
        )
    if fact == "row-major":
        return f"{_order(meta)} (stride {stride})", "contiguous"
    return f"is a lazy {fact}", "an ordinary tensor"


def _order(meta: TensorMeta) -> str:
    """What the order of the dims in memory is called."""
    shape, stride = meta.shape, meta.stride
    if len(shape) == 2 and stride == tuple(reversed(contiguous_stride(tuple(reversed(shape))))):
        return "is a transpose"
    if len(shape) in (4, 5) and stride[1] == min(stride):
        return "is channels-last"
    return "has its dims in another order in memory"


# --- dtypes and values ---------------------------------------------------------------------------------------------------


def dtypes(case: Case, random: bool) -> Iterator[Change]:
    """Each unusual dtype of an input, in all that have it; and integers beside floats, which may be there to be promoted."""
    for old, new, *names in SIMPLIFY_DTYPES.find(case):
        holders = [
            item.name for item in tensor_inputs(case) if item.meta.dtype == old and (not names or item.name in names)
        ]
        yield Change(f"{', '.join(holders)}: {old}", str(new), (_edit(case, SIMPLIFY_DTYPES, (old, new, *names)),))
    floats = any(item.meta.dtype == "float32" for item in tensor_inputs(case))
    for item in tensor_inputs(case):
        if floats and item.meta.dtype == "int64" and not isinstance(item.value, Derived):
            yield Change(f"{item.name}: int64 beside float32", "float32", (partial(_as_float, case, item),))


def _as_float(case: Case, one: Input) -> Case:
    inputs = (converted(item, "float32") if item is one and isinstance(item, Input) else item for item in case.inputs)
    return dataclasses.replace(case, inputs=tuple(inputs))


def values(case: Case, random: bool) -> Iterator[Change]:
    """Random values, as a program that nobody looked at twice would have."""
    for owner, members in storage_groups(case).items():
        value = members[0].value
        instead = _random_rule(members[0])
        if instead is None or (isinstance(value, Recipe) and value.kind == instead.kind):
            continue
        names = {item.name for item in members}
        words = f"{owner} {_value_words(value) if isinstance(value, Recipe) else 'holds these very values'}"
        content = "normal random content" if isinstance(value, Recipe) and value.kind == "rand" else "random content"
        yield Change(words, content, (partial(_filled, case, names, instead),))


def _value_words(value: Recipe) -> str:
    if value.kind in ("zeros", "ones"):
        return f"is all {value.kind}"
    if value.kind == "arange":
        return "counts up from 0"
    if value.kind == "full":
        return f"is filled with {value.args[0]}"
    if value.kind == "rand":
        return "is random from 0 to 1"
    return "holds these very values" if value.kind == "literal" else "is random"


def _random_rule(item: Input) -> Recipe | None:
    dtype = item.meta.dtype
    if dtype == "bool":
        return Recipe("randint", (0, 2))
    if dtype.startswith(("int", "uint")):
        low, high = value_range(item)
        return None if low is None or high is None or low == high else Recipe("randint", (int(low), int(high) + 1))
    return Recipe("randn")


def _filled(case: Case, names: set[str], rule: Recipe) -> Case:
    inputs = (
        dataclasses.replace(item, value=rule) if isinstance(item, Input) and item.name in names else item
        for item in case.inputs
    )
    return dataclasses.replace(case, inputs=tuple(inputs))


# --- settings ------------------------------------------------------------------------------------------------------------


def settings(case: Case, random: bool) -> Iterator[Change]:
    for site in SIMPLIFY_SETTINGS.find(case):
        if site[0] in ("seed", "fewer"):
            continue
        what, instead = _setting_words(case, tuple(map(str, site)))
        yield Change(what, instead, (_edit(case, SIMPLIFY_SETTINGS, site),))
    if random:
        other = dataclasses.replace(case.settings, seed=case.settings.seed + 1)
        yield Change("the seed of its random numbers", "another", (partial(dataclasses.replace, case, settings=other),))


def _setting_words(case: Case, site: tuple[str, ...]) -> tuple[str, str]:
    own, kind, owner, name = case.settings, site[0], site[min(1, len(site) - 1)], site[-1]
    held: dict[str, object] = {
        "options": dict(own.options).get(name),
        "config": {key: value for _, key, value in own.config}.get(name),
        "switch": dict(own.switches).get(name),
    }
    value = held.get(kind)
    text = value.text if isinstance(value, Const) else repr(value)
    items = {item.name: item for item in case.inputs}
    dims = getattr(items.get(name), "dynamic_dims", ())
    words = {
        "mode": (f"mode={own.mode!r}", "the default mode"),
        "dynamic": (f"dynamic={own.dynamic}", "dynamic=None"),
        "replays": ("calls with other values before it", "the first call"),
        "options": (f"the option {name}={text}", "its default"),
        "config": (f"the config {'.'.join(site[1:])}={text}", "its default"),
        "switch": (f"the switch {name}={text}", "its default"),
        "autocast": ("autocast", "no autocast"),
        "grad_mode": (f"grad mode {own.grad_mode!r}", "no_grad"),
        "literal": (f"{name} is a number that the compiler may keep symbolic", "a literal"),
        "dynamic_dims": (f"{name} has dynamic dims {render.text_of(dims)}", "static"),
        "requires_grad": (f"{name} requires grad", "no gradient"),
        "flag": (f"{owner} is a {'parameter' if name == 'parameter' else 'result of another op'}", "a plain input"),
        "backward": ("the backward pass", "the forward alone")
        if not name
        else ("random gradients of the outputs", "ones"),
    }
    return words[kind]


# --- sizes ---------------------------------------------------------------------------------------------------------------


def sizes(case: Case, random: bool) -> Iterator[Change]:
    """One less, and twice as many, of each size."""
    items = {item.name: item for item in tensor_inputs(case)}
    for one in size_classes(case):
        place, held = _place(case, one), [items[owner] for owner, _ in one.dims]
        sized = (place, one.size)
        if one.size - 1 >= one.least:
            yield Change(f"{place}: size {one.size}", str(one.size - 1), _resized(case, one, one.size - 1), sized)
        grows = all(isinstance(item.value, Recipe) and item.value.kind != "literal" for item in held)
        if one.size > 2 and grows and all(numel(item.meta.shape) * 2 <= MOST_GROWN for item in held):
            more = 2 * one.size
            yield Change(f"{place}: size {one.size} and no more", str(more), _resized(case, one, more), sized)


def _place(case: Case, one: SizeClass) -> str:
    """The dims that are of a size, or of a multiple of it."""
    (key,), whole = one.keys, set(one.dims)
    if isinstance(key, str) and (known := known_sizes(case)) is not None:
        whole = {place for place, total in known.places if total == atom(key)}
    return ", ".join(f"{'' if dim in whole else 'part of '}dim {dim[1]} of {dim[0]}" for dim in one.dims)


def _resized(case: Case, one: SizeClass, new: int) -> tuple[Callable[[], Case], ...]:
    edits = [one.at(new, scope) for scope in one.scopes if new < one.size or scope != "multiples"]
    return tuple(partial(shrink, case, edit) for edit in edits)


# --- the program ---------------------------------------------------------------------------------------------------------


def constants(case: Case, random: bool) -> Iterator[Change]:
    """Each argument without which a call has its default, and each odd number of the others."""
    ops = {op.name: op for op in case.graph.ops}
    told: set[tuple[object, ...]] = set()
    for site in SIMPLIFY_CONSTANTS.find(case):
        (edit,) = site
        assert isinstance(edit, Default | Plainer)
        if (edit.op, edit.slot) in told:
            continue
        told.add((edit.op, edit.slot))
        arg = dict(slots(ops[edit.op]))[edit.slot]
        text = f"{edit.slot}={render.text_of(arg)}" if isinstance(edit.slot, str) else render.text_of(arg)
        instead = "the default" if isinstance(edit, Default) else render.text_of(edit.value)
        yield Change(f"{text} in {short_name(ops[edit.op].target)}", instead, (_edit(case, SIMPLIFY_CONSTANTS, site),))


def operands(case: Case, random: bool) -> Iterator[Change]:
    """Operands that a call can do without, and writes to what could be left alone."""
    sites = tuple(_simpler_calls(case))
    for name, words, op in sites:
        parts = any(other == name and words.startswith(f"{fewer}, ") for other, fewer, _ in sites)
        if words.startswith(WITHOUT) and not parts:
            text = f"{words.removeprefix(WITHOUT)} in {short_name(op.target)}"
            yield Change(text, "none", (_edit(case, SIMPLIFY_OPS, (name, words)),))
        elif out_of_place(op.target):
            text = f"{short_name(op.target)} writes to its operand"
            yield Change(text, words, (_edit(case, SIMPLIFY_OPS, (name, words)),))


def _simpler_calls(case: Case) -> Iterator[tuple[str, str, Op]]:
    """What may take the place of which op: its name, the words for it, and the op."""
    ops = {op.name: op for op in case.graph.ops}
    yield from ((str(name), str(words), ops[str(name)]) for name, words in SIMPLIFY_OPS.find(case))


def consumers(case: Case, random: bool) -> Iterator[Change]:
    """Values that are read inside and returned as well: a second consumer may be what stops a fusion."""
    for site in DROP_OUTPUTS.find(case):
        if len(case.graph.outputs) > 1:
            output = case.graph.outputs[int(str(site[0]))]
            name = getattr(output, "name", str(output))
            yield Change(f"{name} is returned as well", "keeping it inside", (_edit(case, DROP_OUTPUTS, site),))


def calls(case: Case, random: bool) -> Iterator[Change]:
    """Each call, and each that a piece of it cannot stand for."""
    ops = {op.name: op for op in case.graph.ops}
    for site in CUT_OPS.find(case):
        op = ops[str(site[0])]
        kind = "the view" if short_name(op.target) in VIEWS else "the call of"
        yield Change(f"{kind} {short_name(op.target)}", "its result as an input", (_edit(case, CUT_OPS, site),))
    for name, words, op in _simpler_calls(case):
        if not words.startswith(WITHOUT) and not out_of_place(op.target):
            yield Change(f"the whole of {short_name(op.target)}", words, (_edit(case, SIMPLIFY_OPS, (name, words)),))


ROWS: dict[str, Row] = {
    "layout": layouts,
    "dtype": dtypes,
    "constant": constants,
    "operand": operands,
    "values": values,
    "setting": settings,
    "size": sizes,
    "consumer": consumers,
    CALLS: calls,
}
