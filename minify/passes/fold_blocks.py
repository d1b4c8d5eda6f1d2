"""Fold repeated blocks: whoever reads the result of a block reads what went into it instead.

Where a block changes the shape on its way (a linear layer up, an activation, one down again) no op of it can be bypassed by an
operand of its own, and to cut one breaks the chain that the failure may need. So an op is bypassed from further off: by the nearest
value before it that is alike, and by the nearest result of the same call, the end of the block before.

May lose what `bypass` may, of several ops at once. An operand of the op itself is `bypass`' own affair.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from minify.case import Case, Op, op_refs
from minify.passes.bypass import alike, rewrite
from minify.passes.contract import Pass, Site
from minify.passes.flow import trace_flow


def find(case: Case) -> tuple[Site, ...]:
    """(op, earlier value) pairs: ends of blocks with the end of the block before, then those with whatever is alike."""
    metas = trace_flow(case).metas
    ops = {op.name: op for op in case.graph.ops}
    repeated: list[Site] = []
    reached: list[Site] = []
    for op in case.graph.ops:
        operands = frozenset(op_refs(op))
        bypassed = any(
            name in ops and alike(metas[name], op.meta) for name in operands
        )  # a weight would break the chain
        before = [name for name in _before(op, ops) if name not in operands and alike(metas[name], op.meta)]
        same = next((name for name in before if name in ops and _kind(ops[name]) == _kind(op)), None)
        if same is not None:
            repeated.append((op.name, same))
        if before and not bypassed and before[0] != same:
            reached.append((op.name, before[0]))
    return (*repeated, *reached)


def _before(op: Op, ops: Mapping[str, Op]) -> Iterator[str]:
    """The values that a result is made of, the nearest first."""
    layer, seen = [op], set[str]()
    while layer:
        names = [name for maker in layer for name in op_refs(maker) if name not in seen]
        yield from (fresh := list(dict.fromkeys(names)))
        seen.update(fresh)
        layer = [ops[name] for name in fresh if name in ops]


def _kind(op: Op) -> tuple[object, ...]:
    """What a call has in common with the same one of another block."""
    return op.target, len(op_refs(op)), len(op.args), tuple(key for key, _ in op.kwargs)


FOLD_BLOCKS = Pass("fold blocks", find, rewrite)
