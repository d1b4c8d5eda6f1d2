"""What follows from every removal: dead code goes, unread inputs go, storages are numbered anew from 0.

`prune` keeps what can be observed: outputs, and what is written to inputs. It runs to the end of dead code since that
is no edit of its own. Ops that draw random numbers are dead when unread, although later draws then change.
"""

from __future__ import annotations

import dataclasses

from minify.case import (
    Arg,
    Case,
    Input,
    Op,
    ScalarInput,
    SequenceMeta,
    TensorMeta,
    ValueMeta,
    op_refs,
    refs,
    tensor_inputs,
)
from minify.passes.effects import is_barrier, written
from minify.passes.flow import Flow, Storage, has_memory, trace_flow


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
    """The same sharing under the numbers 0, 1, ... in order of appearance, so that equal cases have equal digests.

    Inputs without memory come after those with it, as a run of the program would number them."""
    numbers: dict[object, int] = {}
    for item in sorted(tensor_inputs(case), key=lambda item: not has_memory(item.meta)):
        numbers.setdefault(item.meta.storage if has_memory(item.meta) else item.name, len(numbers))

    def value(meta: ValueMeta) -> ValueMeta:
        if isinstance(meta, TensorMeta) and has_memory(meta):
            return dataclasses.replace(meta, storage=numbers.setdefault(meta.storage, len(numbers)))
        return SequenceMeta(tuple(map(value, meta.items))) if isinstance(meta, SequenceMeta) else meta

    def renumbered(item: Input | ScalarInput) -> Input | ScalarInput:
        if isinstance(item, ScalarInput):
            return item
        number = numbers[item.meta.storage if has_memory(item.meta) else item.name]
        return dataclasses.replace(item, meta=dataclasses.replace(item.meta, storage=number))

    ops = tuple(dataclasses.replace(op, meta=None if op.meta is None else value(op.meta)) for op in case.graph.ops)
    inputs = tuple(map(renumbered, case.inputs))
    return dataclasses.replace(with_graph(case, ops, case.graph.outputs), inputs=inputs)
