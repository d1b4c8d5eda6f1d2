"""How values and memory flow through a case: who reads what, which names are one object, which storages they live in.

Owns `Flow`, computed once for a case and read by the passes that remove ops. Knows nothing of candidates.
"""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

from minify.case import Case, Input, Op, Ref, SequenceMeta, TensorMeta, ValueMeta, free_ops, op_refs
from minify.passes.effects import returned_operand

Storage: TypeAlias = "int | str"
BEFORE_ALL = -1


@dataclasses.dataclass(frozen=True, slots=True)
class Flow:
    """`position` is an op's place in the program (`BEFORE_ALL` for a parameter); `root` is the first name of the object
    that a name stands for (`y = x.add_(1)`: the root of `y` is `x`); `memory` the storages that a value lives in, by
    number, or by root where its layout is unknown; `free` the calls that are no ops of their own; `items` the op that
    takes an item out of a sequence."""

    ops: dict[str, Op]
    params: frozenset[str]
    position: dict[str, int]
    metas: dict[str, ValueMeta | None]
    free: frozenset[str]
    root: dict[str, str]
    memory: dict[str, frozenset[Storage]]
    items: dict[tuple[str, int], str]

    def reads(self, op: Op) -> frozenset[Storage]:
        """The storages that `op` is handed."""
        return frozenset[Storage]().union(*(self.memory[name] for name in op_refs(op)))

    def source(self, free_op: str) -> str:
        """The value that a free op indexes or measures."""
        first = self.ops[free_op].args[0]
        return first.name if isinstance(first, Ref) else ""

    def is_shape_read(self, name: str) -> bool:
        """Whether `name` is a free op that reads a shape, and so consumes no values."""
        return name in self.free and self.ops[name].target != "operator.getitem"


def trace_flow(case: Case) -> Flow:
    """Read `case` once, in program order. Raises KeyError where it is not well-formed."""
    graph = case.graph
    metas: dict[str, ValueMeta | None] = dict.fromkeys(graph.params)
    metas |= {item.name: item.meta for item in case.inputs if isinstance(item, Input)}
    numbers = {item.name for item in case.inputs if not isinstance(item, Input)}
    position = dict.fromkeys(graph.params, BEFORE_ALL)
    root = {name: name for name in graph.params}
    for index, op in enumerate(graph.ops):
        metas[op.name], position[op.name] = op.meta, index
        operand = returned_operand(op) if op.meta is None or isinstance(op.meta, TensorMeta) else None
        root[op.name] = op.name if operand is None else root[operand]
    free = free_ops(graph)
    return Flow(
        ops={op.name: op for op in graph.ops},
        params=frozenset(graph.params),
        position=position,
        metas=metas,
        free=free,
        root=root,
        memory={name: frozenset() if name in numbers else storages(metas[root[name]], root[name]) for name in metas},
        items=sequence_items(graph.ops, free),
    )


def storages(meta: ValueMeta | None, root: str) -> frozenset[Storage]:
    """The storages of a value: none for a number, one for a tensor, several for a sequence."""
    if meta is None:
        return frozenset((root,))
    if isinstance(meta, TensorMeta):
        return frozenset((meta.storage,)) if has_memory(meta) else frozenset()
    if isinstance(meta, SequenceMeta):
        return frozenset[Storage]().union(*(storages(item, root) for item in meta.items))
    return frozenset()


def has_memory(meta: TensorMeta) -> bool:
    """Whether the tensor lies in a storage; a zero tensor does not, whatever its number."""
    return meta.storage >= 0 and "zerotensor" not in meta.flags


def sequence_items(ops: tuple[Op, ...], free: frozenset[str]) -> dict[tuple[str, int], str]:
    """For each (sequence, index) that the program takes out: the first op that does."""
    found: dict[tuple[str, int], str] = {}
    for op in ops:
        if op.name in free and op.target == "operator.getitem" and isinstance(op.args[0], Ref):
            index = op.args[1]
            if isinstance(index, int):
                found.setdefault((op.args[0].name, index), op.name)
    return found
