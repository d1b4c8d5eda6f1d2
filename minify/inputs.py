"""Inputs as Python text: `make_inputs()` builds every input of a case with its exact layout, flags and sharing.

The worker runs this text and the repro prints it, so that what was tested is what a user gets. Real data enters as
`recorded["name"]`, which the worker fills in; a repro that is to stand alone has none left.
"""

from __future__ import annotations

import dataclasses
import itertools

import libcst as cst

from minify import render
from minify.case import (
    Case,
    Input,
    Recipe,
    ScalarInput,
    TensorMeta,
    contiguous_stride,
    is_contiguous,
    numel,
    tensor_inputs,
)

_SEEDED = ("rand", "randn", "randint")
_SPELLED = "spelled"  # among the flags: write float32 out too, since the program runs with another default dtype
_NONLEAF = ".requires_grad_().clone()"
_CHANGING = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
_NO_RANDN = ("float8", "bits", "uint16", "uint32", "uint64")


def groups(case: Case) -> dict[int, tuple[Input, ...]]:
    """Inputs by the storage they lie in, in order of first appearance."""
    found: dict[int, tuple[Input, ...]] = {}
    for item in tensor_inputs(case):
        found[item.meta.storage] = (*found.get(item.meta.storage, ()), item)
    return found


def needs_seed(case: Case) -> bool:
    return any(isinstance(item.value, Recipe) and item.value.kind in _SEEDED for item in tensor_inputs(case))


def make_inputs(case: Case) -> cst.FunctionDef:
    """`def make_inputs(): ...` returning the tuple of inputs in the order of the graph's parameters."""
    case = _spelled(case)
    lines = [f"torch.manual_seed({case.settings.seed})"] if needs_seed(case) else []
    shared = {number: members for number, members in groups(case).items() if len(members) > 1}
    for number, members in shared.items():
        lines.append(f"storage{number} = {_storage(members)}")
    for item in case.inputs:
        if isinstance(item, ScalarInput):
            lines.append(f"{item.name} = {render.literal(item.value)}")
        elif item.meta.storage in shared:
            members = shared[item.meta.storage]
            grown = _grows_from(item, members)
            lines.append(f"{item.name} = {_flagged(item, _view_of(item, members), grown=grown)}")
        elif "nonleaf" in item.meta.flags:
            lines.append(f"{item.name} = {_flagged(item, _grown(item, own_storage(item)), grown=True)}")
        else:
            lines.append(f"{item.name} = {_flagged(item, own_storage(item))}")
        if isinstance(item, Input) and item.dynamic_dims:
            lines += [f"torch._dynamo.mark_dynamic({item.name}, {dim})" for dim in item.dynamic_dims]
    names = "".join(f"{item.name}, " for item in case.inputs)
    lines.append(f"return ({names.rstrip(' ') if len(case.inputs) == 1 else names.removesuffix(', ')})")
    body = cst.IndentedBlock([cst.parse_statement(line) for line in lines])
    return cst.FunctionDef(cst.Name("make_inputs"), cst.Parameters(), body)


def other_inputs(case: Case) -> cst.FunctionDef:
    """`def other_inputs(turn): ...` returning fresh inputs of the same layout with other values, other ones for each turn: floats
    halved and moved on by some places, which leaves them in the domain of most programs. The rest, parameters above all, is what it
    is."""
    places = [place for place, item in enumerate(case.inputs) if _changes(item)]
    chosen = "inputs" if len(places) == len(case.inputs) else f"({''.join(f'inputs[{place}], ' for place in places)})"
    loop = f"for x in {chosen}:\n        x.copy_(x.roll(turn + 1) / 2)"
    lines = ["inputs = make_inputs()", *([f"with torch.no_grad():\n    {loop}"] if places else []), "return inputs"]
    body = cst.IndentedBlock([cst.parse_statement(line) for line in lines])
    return cst.FunctionDef(cst.Name("other_inputs"), cst.Parameters([cst.Param(cst.Name("turn"))]), body)


def _changes(item: Input | ScalarInput) -> bool:
    """Whether every element is a float with a place of its own that may be written to."""
    if isinstance(item, ScalarInput) or item.meta.dtype not in _CHANGING or item.meta.flags:
        return False
    steps = zip(item.meta.shape, item.meta.stride, strict=True)
    reached = 1
    for size, step in sorted((pair for pair in steps if pair[0] != 1), key=lambda pair: pair[1]):
        if step < reached:
            return False
        reached = (size - 1) * step + reached
    return True


def _spelled(case: Case) -> Case:
    """`case` with every dtype to be written out, where the default dtype isn't torch's own."""
    if "default_dtype" not in dict(case.settings.switches):
        return case
    inputs = [
        dataclasses.replace(item, meta=dataclasses.replace(item.meta, flags=(*item.meta.flags, _SPELLED)))
        if isinstance(item, Input)
        else item
        for item in case.inputs
    ]
    return dataclasses.replace(case, inputs=tuple(inputs))


def own_storage(item: Input) -> str:
    """Text of a tensor with the layout of `item`, alone in its storage."""
    meta, value = item.meta, item.value
    if "zerotensor" in meta.flags:
        shape = render.text_of(meta.shape)
        return f"torch._efficientzerotensor({shape}{_keywords(meta)})"
    if not isinstance(value, Recipe):
        return f'recorded["{item.name}"]'
    if is_contiguous(meta):
        return fill(value, meta.shape, meta)
    return _permuted(value, meta) or _expanded(value, meta) or _strided(fill(value, (meta.storage_size,), meta), meta)


def fill(value: Recipe, shape: tuple[int, ...], meta: TensorMeta) -> str:
    """Text of a row-major tensor of `shape` whose elements in memory order are those of `value`."""
    dims, keywords = render.text_of(shape), _keywords(meta)
    if value.kind in ("randn", "rand") and meta.dtype.startswith(_NO_RANDN):
        plain = "" if meta.device == "cpu" else f', device="{meta.device}"'
        return f"torch.{value.kind}({dims}{plain}).to(torch.{meta.dtype})"
    if value.kind in ("zeros", "ones", "rand", "randn"):
        return f"torch.{value.kind}({dims}{keywords})"
    if value.kind == "full":
        inferred = meta.dtype == "float32" and isinstance(value.args[0], float)
        explicit = keywords or ("" if inferred else f", dtype=torch.{meta.dtype}")
        return f"torch.full({dims}, {render.literal(value.args[0])}{explicit})"
    if value.kind == "arange":
        explicit = "" if meta.dtype == "int64" else f", dtype=torch.{meta.dtype}"
        device = "" if meta.device == "cpu" else f', device="{meta.device}"'
        flat = f"torch.arange({numel(shape)}{explicit}{device})"
        return flat if len(shape) == 1 else f"{flat}.reshape({dims})"
    if value.kind == "randint":
        explicit = "" if meta.dtype == "int64" else f", dtype=torch.{meta.dtype}"
        device = "" if meta.device == "cpu" else f', device="{meta.device}"'
        return f"torch.randint({value.args[0]}, {value.args[1]}, {dims}{explicit}{device})"
    if value.kind == "literal":
        return _literal(value, shape, meta)
    raise ValueError(f"no recipe called {value.kind}")


def _literal(value: Recipe, shape: tuple[int, ...], meta: TensorMeta) -> str:
    explicit = f", dtype=torch.{meta.dtype}"
    explicit += "" if meta.device == "cpu" else f', device="{meta.device}"'
    if len(shape) == 0:
        return f"torch.tensor({render.literal(value.args[0])}{explicit})"
    flat = f"torch.tensor([{', '.join(render.literal(element) for element in value.args)}]{explicit})"
    return flat if len(shape) == 1 else f"{flat}.reshape({render.text_of(shape)})"


def _keywords(meta: TensorMeta) -> str:
    dtype = "" if meta.dtype == "float32" and _SPELLED not in meta.flags else f", dtype=torch.{meta.dtype}"
    return dtype + ("" if meta.device == "cpu" else f', device="{meta.device}"')


def _permuted(value: Recipe, meta: TensorMeta) -> str:
    """A dense tensor with its dims in another order, "" where the layout is none."""
    if meta.offset or len(meta.shape) > 6 or meta.storage_size != numel(meta.shape):
        return ""
    order = sorted(range(len(meta.shape)), key=lambda dim: (-meta.stride[dim], dim))
    candidates = (
        [tuple(order)] if len(meta.shape) > 3 else [tuple(order), *itertools.permutations(range(len(meta.shape)))]
    )
    for candidate in candidates:
        shape = tuple(meta.shape[dim] for dim in candidate)
        dense = contiguous_stride(shape)
        back = tuple(candidate.index(dim) for dim in range(len(candidate)))
        if tuple(dense[position] for position in back) == meta.stride:
            view = ".t()" if back == (1, 0) else f".permute({render.text_of(back)})"
            return fill(value, shape, meta) + view
    return ""


def _expanded(value: Recipe, meta: TensorMeta) -> str:
    """A row-major tensor expanded along the dims of stride 0, "" where the layout is none."""
    kept = tuple(1 if step == 0 else size for size, step in zip(meta.shape, meta.stride, strict=True))
    dense = contiguous_stride(kept)
    expanded = tuple(0 if step == 0 else dense[dim] for dim, step in enumerate(meta.stride))
    if meta.offset or 0 not in meta.stride or expanded != meta.stride or meta.storage_size != numel(kept):
        return ""
    return f"{fill(value, kept, meta)}.expand({render.text_of(meta.shape)})"


def _strided(storage: str, meta: TensorMeta) -> str:
    offset = f", {meta.offset}" if meta.offset else ""
    return f"torch.as_strided({storage}, {render.text_of(meta.shape)}, {render.text_of(meta.stride)}{offset})"


def _storage(members: tuple[Input, ...]) -> str:
    """The memory that several inputs share, as a 1-D tensor; one that is no leaf where some of its views are none."""
    owner, text = members[0], f'recorded["{members[0].name}"]'
    if isinstance(owner.value, Recipe):
        text = fill(owner.value, (owner.meta.storage_size,), owner.meta)
    return text + _NONLEAF if any(_grows_from(member, members) for member in members) else text


def _grows_from(item: Input, members: tuple[Input, ...]) -> bool:
    """Whether `item` is no leaf because the memory it is a view of is none."""
    return "nonleaf" in item.meta.flags and item.meta.dtype == members[0].meta.dtype


def _view_of(item: Input, members: tuple[Input, ...]) -> str:
    storage, owner = f"storage{item.meta.storage}", members[0]
    if any(_grows_from(member, members) for member in members) and not _grows_from(item, members):
        storage += ".detach()"
    if item.meta.dtype != owner.meta.dtype:
        whole = _whole_elements(item.meta, owner.meta)
        storage += f"{'' if whole == owner.meta.storage_size else f'[:{whole}]'}.view(torch.{item.meta.dtype})"
    return _strided(storage, item.meta)


def _whole_elements(meta: TensorMeta, owner: TensorMeta) -> int:
    """How many of the owner's elements make up whole elements of `meta`, which may be 2, 4, 8 or 16 times as large."""
    ratio = owner.storage_size // max(meta.storage_size, 1)
    larger = 1 << (ratio.bit_length() - 1) if ratio else 1
    return meta.storage_size * larger if larger > 1 else owner.storage_size


def _clones_alike(meta: TensorMeta) -> bool:
    """Whether `.clone()` keeps the strides: it does for memory without gaps or overlaps."""
    step = 1
    for size, stride in sorted(zip(meta.shape, meta.stride, strict=True), key=lambda dim: (dim[1], dim[0])):
        if size != 1:
            if stride != step:
                return False
            step *= size
    return meta.offset == 0 and step == meta.storage_size


def _grown(item: Input, built: str) -> str:
    """A non-leaf with the layout of `item`: a copy of a leaf, or a view of a copy of the leaf's whole memory."""
    if _clones_alike(item.meta):
        return built + _NONLEAF
    if isinstance(item.value, Recipe):
        memory = fill(item.value, (item.meta.storage_size,), item.meta)
    else:
        memory = f"torch.as_strided({built}, ({item.meta.storage_size},), (1,), 0)"
    return _strided(memory + _NONLEAF, item.meta)


def _flagged(item: Input, built: str, *, grown: bool = False) -> str:
    """`built` with its lazy bits, as the leaf it is unless it has `grown` from another tensor."""
    if "conj" in item.meta.flags:
        built += ".conj()"
    if "neg" in item.meta.flags:
        built = f"torch._neg_view({built})"
    if "parameter" in item.meta.flags:
        gradient = "" if item.meta.requires_grad else ", requires_grad=False"
        return f"torch.nn.Parameter({built}{gradient})"
    return f"{built}.requires_grad_()" if item.meta.requires_grad and not grown else built
