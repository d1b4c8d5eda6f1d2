"""Which values a cut program returns.

A value is a sink when no op reads what it finally holds: it is never read, or read only before (or by) the last
write to its memory. What is written to an input is compared after the run, so it need not be returned as well.
"""

from __future__ import annotations

import dataclasses

from minify.case import Case, Graph, Op, Ref, ScalarMeta, SequenceMeta, TensorMeta, ValueMeta, op_refs, refs
from minify.errors import InvalidCandidate
from minify.passes.effects import written
from minify.passes.flow import BEFORE_ALL, Flow, Storage, trace_flow
from minify.passes.prune import with_graph, without_unread_free_ops, written_inputs


@dataclasses.dataclass(slots=True)
class Uses:
    """Positions of the last read of each object and storage, and of the last write to each storage."""

    object_read: dict[str, int] = dataclasses.field(default_factory=dict)
    storage_read: dict[Storage, int] = dataclasses.field(default_factory=dict)
    storage_write: dict[Storage, int] = dataclasses.field(default_factory=dict)
    written_objects: set[str] = dataclasses.field(default_factory=set)


def with_outputs(case: Case, original: Graph, mode: str) -> Case:
    """`case`, cut out of `original`, returning what `mode` asks for, with a getitem added for each item of a multi-output
    op that would be returned whole.

    Raises InvalidCandidate where nothing that could fail would be visible."""
    flow = trace_flow(case)
    ops, items = expose_sequences(case.graph.ops, flow)
    returned = [*chosen(case, original, flow, mode), *items]
    if mode != "sinks":
        returned += [name for name in refs(original.outputs) if name in flow.params]
    if not returned and not written_inputs(case):
        read = {name for op in ops for name in op_refs(op)}
        returned = [op.name for op in ops if is_number(op.meta) and op.name not in read]
        if not returned:
            raise InvalidCandidate("the ops that remain have no visible result")
    outputs = tuple(Ref(name) for name in in_order(returned, original, flow))
    return with_graph(case, without_unread_free_ops(ops, outputs, flow.free), outputs)


def chosen(case: Case, original: Graph, flow: Flow, mode: str) -> tuple[str, ...]:
    """Tensors to return: one name for each object."""
    uses = last_uses(case.graph.ops, flow)
    memory = frozenset[Storage]().union(*(flow.memory[name] for name in flow.params))
    found = {
        flow.root[op.name]: op.name
        for op in case.graph.ops
        if is_tensor(op.meta) and flow.root[op.name] in flow.ops and is_sink(op.name, flow, uses, memory)
    }
    if mode != "sinks":
        for name in wanted_outside(case.graph, original, mode):
            found.setdefault(flow.root[name], name)
    return tuple(found.values())


def last_uses(ops: tuple[Op, ...], flow: Flow) -> Uses:
    uses = Uses()
    for position, op in enumerate(ops):
        if not flow.is_shape_read(op.name):
            for name in op_refs(op):
                uses.object_read[flow.root[name]] = position
                uses.storage_read |= dict.fromkeys(flow.memory[name], position)
            for name in written(op):
                uses.written_objects.add(flow.root[name])
                uses.storage_write |= dict.fromkeys(flow.memory[name], position)
    return uses


def is_sink(name: str, flow: Flow, uses: Uses, inputs: frozenset[Storage]) -> bool:
    """Whether no op reads what the object that `name` stands for finally holds, and no input's memory shows it."""
    root, memory = flow.root[name], flow.memory[name]
    last_write = max((uses.storage_write.get(storage, BEFORE_ALL) for storage in memory), default=BEFORE_ALL)
    if uses.object_read.get(root, BEFORE_ALL) > last_write:
        return False
    seen_elsewhere = any(uses.storage_read.get(storage, BEFORE_ALL) > last_write for storage in memory)
    return root not in uses.written_objects or not (seen_elsewhere or memory <= inputs)


def wanted_outside(cut: Graph, original: Graph, mode: str) -> tuple[str, ...]:
    """Tensors made inside that the original program returns and, with `all_used`, those that a cut op reads."""
    kept = {op.name for op in cut.ops}
    wanted = set(refs(original.outputs))
    if mode == "all_used":
        wanted |= {name for op in original.ops if op.name not in kept for name in op_refs(op)}
    return tuple(op.name for op in cut.ops if op.name in wanted and is_tensor(op.meta))


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


def in_order(names: list[str], original: Graph, flow: Flow) -> list[str]:
    """Original outputs first, as they were, then the others in program order."""
    order = list(dict.fromkeys(refs(original.outputs)))
    first = [name for name in order if name in names]
    rest = sorted(set(names) - set(first), key=lambda name: (flow.position.get(name, len(flow.position)), name))
    return first + rest


def is_tensor(meta: ValueMeta | None) -> bool:
    """Whether the value is a tensor, or may be one."""
    return meta is None or isinstance(meta, TensorMeta)


def is_number(meta: ValueMeta | None) -> bool:
    return isinstance(meta, ScalarMeta) and meta.value is not None
