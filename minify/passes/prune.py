"""What follows from every removal: dead code goes, unread inputs go, storages are numbered anew from 0.

`prune` keeps what can be observed: outputs, and what is written to inputs. It runs to the end of dead code since that
is no edit of its own. Ops that draw random numbers are dead when unread, although later draws then change.
"""

from __future__ import annotations

import dataclasses

from minify.case import Arg, Case, Input, Op, SequenceMeta, TensorMeta, ValueMeta, op_refs, refs
from minify.passes.effects import is_barrier, written
from minify.passes.flow import Flow, Storage, trace_flow


def prune(case: Case) -> Case:
    """`case` without ops that nothing observable depends on, and without inputs that no op then reads."""
    flow = trace_flow(case)
    live = live_ops(case, flow)
    ops = tuple(op for op in case.graph.ops if op.name in live)
    return without_unread_inputs(with_graph(case, ops, case.graph.outputs))


def live_ops(case: Case, flow: Flow) -> frozenset[str]:
    """Ops whose value, or whose write, can be observed: in an output, in an input after the run, or by such an op.

    A write counts only if what it wrote to is read later, so that `y.add_(1)` dies with `y`."""
    read = set(refs(case.graph.outputs))
    memory: set[Storage] = set().union(*(flow.memory[name] for name in (*read, *case.graph.params)))
    live = set[str]()
    for op in reversed(case.graph.ops):
        touches = any(flow.memory[name] & memory for name in written(op))
        if op.name in read or touches or is_barrier(op):
            live.add(op.name)
            read |= set(op_refs(op))
            memory |= flow.reads(op)
    return frozenset(live)


def written_inputs(case: Case) -> frozenset[str]:
    """Inputs whose storage some op writes to; the oracle compares their content after the run."""
    flow = trace_flow(case)
    memory = set[Storage]().union(*(flow.memory[name] for op in case.graph.ops for name in written(op)))
    return frozenset(name for name in case.graph.params if flow.memory[name] & memory)


def unread_inputs(case: Case) -> tuple[str, ...]:
    read = {name for op in case.graph.ops for name in op_refs(op)} | set(refs(case.graph.outputs))
    return tuple(name for name in case.graph.params if name not in read)


def without_unread_inputs(case: Case) -> Case:
    return without_inputs(case, frozenset(unread_inputs(case)))


def without_inputs(case: Case, names: frozenset[str]) -> Case:
    """`case` less some unread inputs."""
    params = tuple(name for name in case.graph.params if name not in names)
    inputs = tuple(item for item in case.inputs if item.name not in names)
    graph = dataclasses.replace(case.graph, params=params)
    return renumber_storages(
        dataclasses.replace(case, program=dataclasses.replace(case.program, graph=graph), inputs=inputs)
    )


def with_graph(case: Case, ops: tuple[Op, ...], outputs: tuple[Arg, ...]) -> Case:
    """`case` with other ops and outputs, its parameters and inputs untouched."""
    graph = dataclasses.replace(case.graph, ops=ops, outputs=outputs)
    return dataclasses.replace(case, program=dataclasses.replace(case.program, graph=graph))


def without_unread_free_ops(ops: tuple[Op, ...], outputs: tuple[Arg, ...], free: frozenset[str]) -> tuple[Op, ...]:
    """`ops` less the tuple indexing and shape reads that nobody uses."""
    read = set(refs(outputs))
    left = []
    for op in reversed(ops):
        if op.name not in free or op.name in read:
            left.append(op)
            read |= set(op_refs(op))
    return tuple(reversed(left))


def renumber_storages(case: Case) -> Case:
    """The same sharing under the numbers 0, 1, ... in order of appearance, so that equal cases have equal digests."""
    numbers: dict[int, int] = {}

    def tensor(meta: TensorMeta) -> TensorMeta:
        number = numbers.setdefault(meta.storage, len(numbers)) if meta.storage >= 0 else meta.storage
        return dataclasses.replace(meta, storage=number)

    def value(meta: ValueMeta) -> ValueMeta:
        if isinstance(meta, TensorMeta):
            return tensor(meta)
        return SequenceMeta(tuple(value(item) for item in meta.items)) if isinstance(meta, SequenceMeta) else meta

    inputs = tuple(
        dataclasses.replace(item, meta=tensor(item.meta)) if isinstance(item, Input) else item for item in case.inputs
    )
    ops = tuple(dataclasses.replace(op, meta=None if op.meta is None else value(op.meta)) for op in case.graph.ops)
    return dataclasses.replace(with_graph(case, ops, case.graph.outputs), inputs=inputs)
