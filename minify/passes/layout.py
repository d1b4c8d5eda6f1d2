"""Layouts made of others: of a smaller tensor that keeps what is peculiar about a larger one's, and of a transpose."""

from __future__ import annotations

import dataclasses

from minify.case import Derived, Input, Recorded, TensorMeta, Window, numel


def resized(meta: TensorMeta, shape: tuple[int, ...]) -> TensorMeta:
    """`meta` with dims of other sizes: the order of strides, gaps between rows, overlaps, stride 0 and the offset stay.

    Dense dims stay dense; a gap shrinks in proportion but never closes."""
    stride = list(meta.stride)
    innermost_first = sorted(range(len(shape)), key=lambda dim: (meta.stride[dim], meta.shape[dim] != 1, -dim))
    old_span = new_span = 1
    for dim in innermost_first:
        old = meta.stride[dim]
        if old == 0:
            continue
        if old < old_span:
            stride[dim] = min(old, new_span)
        else:
            gap = old > old_span
            stride[dim] = max(-(-old * new_span // old_span), new_span + gap)
        old_span = max(old_span, old * max(meta.shape[dim], 1))
        new_span = max(new_span, stride[dim] * max(shape[dim], 1))
    smaller = dataclasses.replace(meta, shape=shape, stride=tuple(stride))
    slack = max(meta.storage_size - extent(meta), 0)
    share = -(-slack * numel(shape) // max(numel(meta.shape), 1))
    return dataclasses.replace(smaller, storage_size=extent(smaller) + min(slack, share))


def extent(meta: TensorMeta) -> int:
    """The number of storage elements up to the last one that `meta` reaches."""
    if numel(meta.shape) == 0:
        return meta.offset
    return meta.offset + 1 + sum((size - 1) * step for size, step in zip(meta.shape, meta.stride, strict=True))


def turned(item: Input) -> Input | None:
    """`item` with its last two dims exchanged, its memory being what it was; None where it has no two, or no values yet."""
    if len(item.meta.shape) < 2 or isinstance(item.value, Derived):
        return None
    order = [*range(len(item.meta.shape) - 2), -1, -2]

    def exchanged(numbers: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(numbers[dim] for dim in order)

    meta, value = item.meta, item.value
    if isinstance(value, Recorded) and value.window is not None:
        window = Window(exchanged(value.window.shape), exchanged(value.window.stride), value.window.offset)
        value = dataclasses.replace(value, window=window)
    meta = dataclasses.replace(meta, shape=exchanged(meta.shape), stride=exchanged(meta.stride))
    dims = len(meta.shape)
    dynamic = tuple(sorted(order.index(dim if dim < dims - 2 else dim - dims) for dim in item.dynamic_dims))
    return dataclasses.replace(item, meta=meta, value=value, dynamic_dims=dynamic)
