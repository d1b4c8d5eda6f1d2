"""The layout of a smaller tensor that keeps what is peculiar about a larger one's."""

from __future__ import annotations

import dataclasses

from minify.case import TensorMeta, numel


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
