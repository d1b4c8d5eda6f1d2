"""Which values a cut program returns.

A value is a sink when no kept op reads what it finally holds: it is never read, or read only before (or by) the last
write to its memory. What is written to an input is compared after the run, so it need not be returned as well.
"""

from __future__ import annotations

import dataclasses

from minify.case import Arg, Graph, Op, Ref, ScalarMeta, SequenceMeta, TensorMeta, ValueMeta, op_refs, refs
from minify.errors import InvalidCandidate
from minify.passes.effects import written
from minify.passes.flow import BEFORE_ALL, Flow, Storage

MODES = ("sinks", "outputs", "all_used")


@dataclasses.dataclass(slots=True)
class Uses:
    """Positions of the last kept read of each object and storage, and of the last kept write to each storage."""

    object_read: dict[str, int] = dataclasses.field(default_factory=dict)
    storage_read: dict[Storage, int] = dataclasses.field(default_factory=dict)
    storage_write: dict[Storage, int] = dataclasses.field(default_factory=dict)
    written_objects: set[str] = dataclasses.field(default_factory=set)


def choose_outputs(
    graph: Graph, ops: tuple[Op, ...], flow: Flow, live: frozenset[Storage], inputs: frozenset[str], mode: str
) -> tuple[tuple[Op, ...], tuple[Arg, ...]]:
    """`ops`, with a getitem added for each item of a multi-output op that is returned whole, and what they return.

    `graph` is the original, `live` the input storages that kept ops write to. Raises InvalidCandidate where nothing
    that could fail would be visible."""
    kept = {op.name for op in ops}
    uses = kept_uses(ops, kept, flow)
    chosen: dict[str, str] = {}
    for op in ops:
        if is_tensor(op.meta) and flow.root[op.name] in kept and is_sink(op.name, flow, uses, live):
            chosen[flow.root[op.name]] = op.name
    if mode != "sinks":
        for name in wanted_outside(graph, ops, flow, mode):
            chosen.setdefault(flow.root[name], name)
    ops, items = expose_sequences(ops, flow)
    returned = [*chosen.values(), *items]
    if mode != "sinks":
        returned += [name for name in refs(graph.outputs) if name in inputs]
    if not returned and not live:
        returned = [op.name for op in ops if is_number(op.meta) and op.name not in uses.object_read]
    if not returned and not live:
        raise InvalidCandidate("the ops that remain have no visible result")
    return ops, tuple(Ref(name) for name in in_order(returned, graph, flow))


def kept_uses(ops: tuple[Op, ...], kept: set[str], flow: Flow) -> Uses:
    uses = Uses()
    for op in ops:
        if flow.is_shape_read(op.name):
            continue
        position = flow.position[op.name]
        for name in op_refs(op):
            if name in kept:
                uses.object_read[flow.root[name]] = position
                uses.storage_read |= dict.fromkeys(flow.memory[name], position)
        for name in written(op):
            if name in kept:
                uses.written_objects.add(flow.root[name])
                uses.storage_write |= dict.fromkeys(flow.memory[name], position)
    return uses


def is_sink(name: str, flow: Flow, uses: Uses, live: frozenset[Storage]) -> bool:
    """Whether no kept op reads what the object that `name` stands for finally holds, and no input shows it."""
    root, memory = flow.root[name], flow.memory[name]
    last_write = max((uses.storage_write.get(storage, BEFORE_ALL) for storage in memory), default=BEFORE_ALL)
    if uses.object_read.get(root, BEFORE_ALL) > last_write:
        return False
    seen_elsewhere = any(uses.storage_read.get(storage, BEFORE_ALL) > last_write for storage in memory)
    return root not in uses.written_objects or not (seen_elsewhere or memory <= live)


def wanted_outside(graph: Graph, ops: tuple[Op, ...], flow: Flow, mode: str) -> tuple[str, ...]:
    """Kept tensors that the original program returns and, with `all_used`, those that a cut op reads."""
    kept = {op.name for op in ops}
    wanted = set(refs(graph.outputs))
    if mode == "all_used":
        wanted |= {name for op in graph.ops if op.name not in kept for name in op_refs(op)}
    return tuple(op.name for op in ops if op.name in wanted and is_tensor(op.meta))


def expose_sequences(ops: tuple[Op, ...], flow: Flow) -> tuple[tuple[Op, ...], tuple[str, ...]]:
    """`ops` with a getitem for each tensor that an op returns in a sequence which nobody reads or takes apart."""
    read = {name for op in ops if not flow.is_shape_read(op.name) for name in op_refs(op)}
    grown: list[Op] = []
    exposed: list[str] = []
    for op in ops:
        grown.append(op)
        if isinstance(op.meta, SequenceMeta) and op.name not in read:
            items = take_apart(op.name, op.meta, set(flow.position) | set(exposed))
            grown += items
            exposed += [item.name for item in items if is_tensor(item.meta)]
    return tuple(grown), tuple(exposed)


def take_apart(name: str, meta: SequenceMeta, taken: set[str]) -> list[Op]:
    ops: list[Op] = []
    for index, item in enumerate(meta.items):
        own = f"{name}_{index}"
        while own in taken:
            own += "_"
        if isinstance(item, TensorMeta):
            ops.append(Op(own, "operator.getitem", (Ref(name), index), meta=item))
        elif isinstance(item, SequenceMeta):
            inner = take_apart(own, item, taken)
            ops += [Op(own, "operator.getitem", (Ref(name), index), meta=item), *inner] if inner else []
    return ops


def in_order(names: list[str], graph: Graph, flow: Flow) -> list[str]:
    """Original outputs first, as they were, then the others in program order."""
    order = list(dict.fromkeys(refs(graph.outputs)))
    first = [name for name in order if name in names]
    rest = sorted(set(names) - set(first), key=lambda name: (flow.position.get(name, len(flow.position)), name))
    return first + rest


def is_tensor(meta: ValueMeta | None) -> bool:
    """Whether the value is a tensor, or may be one."""
    return meta is None or isinstance(meta, TensorMeta)


def is_number(meta: ValueMeta | None) -> bool:
    return isinstance(meta, ScalarMeta) and meta.value is not None
