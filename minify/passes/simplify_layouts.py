"""Give inputs plainer layouts, one fact at a time: no offset or the least, no gaps or overlaps, row-major order, memory
of their own, no lazy conjugation or negation, real numbers in place of a ZeroTensor.

May lose: a transpose that decides a layout or a kernel, an expanded dim, an offset that spoils alignment, aliasing
between inputs. Recorded elements stay what they are; those of a rule are taken in the new order of memory.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator

from minify.case import (
    Case,
    Derived,
    Input,
    Recipe,
    Recorded,
    TensorMeta,
    Window,
    contiguous_stride,
    dense_stride,
    item_bytes,
    numel,
    tensor_inputs,
)
from minify.passes.contract import Pass, Site
from minify.passes.layout import extent

LAZY = ("conj", "neg", "zerotensor")
MOST_BYTES = 64 << 20  # that a plainer layout may take where it takes more than the present one: an expanded row grows


def find(case: Case) -> tuple[Site, ...]:
    """`(fact, input)` for every fact that is not plain. Values that are not recorded yet are left alone."""
    shared = _shared(case)
    return tuple(site for item in tensor_inputs(case) for site in _sites(item, shared=item.meta.storage in shared))


def _sites(item: Input, *, shared: bool) -> Iterator[Site]:
    if isinstance(item.value, Derived):
        return
    yield from ((flag, item.name) for flag in LAZY if flag in item.meta.flags)
    if shared:
        yield ("unshared", item.name)
        return
    if "zerotensor" not in item.meta.flags:
        yield from ((fact, item.name) for fact, plainer in LAYOUTS.items() if _differs(item.meta, plainer(item.meta)))


def rewrite(case: Case, sites: tuple[Site, ...]) -> Case:
    chosen: dict[object, list[str]] = {}
    for fact, name in sites:
        chosen.setdefault(name, []).append(str(fact))
    fresh = max((item.meta.storage for item in tensor_inputs(case)), default=0) + 1
    inputs = []
    for item in case.inputs:
        if isinstance(item, Input) and item.name in chosen:
            for fact in chosen[item.name]:
                item = _plainer(item, fact, fresh)
            fresh += 1
        inputs.append(item)
    return dataclasses.replace(case, inputs=tuple(inputs))


def _plainer(item: Input, fact: str, fresh: int) -> Input:
    if fact in LAZY:
        flags = tuple(flag for flag in item.meta.flags if flag != fact)
        return dataclasses.replace(item, meta=dataclasses.replace(item.meta, flags=flags))
    if fact == "unshared":
        reached = extent(item.meta) if isinstance(item.value, Recipe) else item.meta.storage_size
        return _placed(item, dataclasses.replace(item.meta, storage=fresh, storage_size=reached))
    return _placed(item, LAYOUTS[fact](item.meta))


def _placed(item: Input, meta: TensorMeta) -> Input:
    """`item` laid out as `meta`; what was recorded of a storage becomes the elements that the input had of it."""
    value = item.value
    if isinstance(value, Recorded) and value.window is None:
        value = dataclasses.replace(value, window=Window(item.meta.shape, item.meta.stride, item.meta.offset))
    return dataclasses.replace(item, meta=meta, value=value)


def _differs(meta: TensorMeta, plainer: TensorMeta) -> bool:
    grows = plainer.storage_size > max(meta.storage_size, MOST_BYTES // item_bytes(meta.dtype))
    return (meta.stride, meta.offset) != (plainer.stride, plainer.offset) and not grows


# --- the facts of a layout, the ones that keep most first ----------------------------------------------------------------


def _at_start(meta: TensorMeta) -> TensorMeta:
    return dataclasses.replace(meta, offset=0, storage_size=meta.storage_size - meta.offset)


def _barely_offset(meta: TensorMeta) -> TensorMeta:
    """Where the start of a storage does not do, the element after it."""
    skipped = max(meta.offset - 1, 0)
    return dataclasses.replace(meta, offset=meta.offset - skipped, storage_size=meta.storage_size - skipped)


def _dense(meta: TensorMeta) -> TensorMeta:
    """Neither gaps nor overlaps, the dims in the order of their strides."""
    return dataclasses.replace(meta, stride=dense_stride(meta), storage_size=meta.offset + numel(meta.shape))


def _row_major(meta: TensorMeta) -> TensorMeta:
    return dataclasses.replace(meta, stride=contiguous_stride(meta.shape), storage_size=meta.offset + numel(meta.shape))


LAYOUTS: dict[str, Callable[[TensorMeta], TensorMeta]] = {
    "no offset": _at_start,
    "offset 1": _barely_offset,
    "dense": _dense,
    "row-major": _row_major,
}


def _shared(case: Case) -> frozenset[int]:
    found = Counter(item.meta.storage for item in tensor_inputs(case))
    return frozenset(number for number, members in found.items() if members > 1)


SIMPLIFY_LAYOUTS = Pass("layouts", find, rewrite, polish=True)
