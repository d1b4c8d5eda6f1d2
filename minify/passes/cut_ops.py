"""Cut ops away: keep any subset of the ops, each missing producer becoming an input that carries its true value.

`keep` is what the search over subsets is built on; the pass `cut ops` does the same one op at a time in the sweep.
May lose: where a value comes from (a constant the compiler could fold, a shape it could derive, a fusion with the
producer), a second consumer that stopped a fusion (`consumers="all_used"` keeps it visible), and a symbolic number
that a cut op computed, which becomes a literal. Keeps sizes, strides, offsets, dtypes and storage sharing, and an
autocast region that every kept op lies in, as a setting.
"""

from __future__ import annotations

import dataclasses

from minify.case import Case, Graph, Input, ScalarInput, digest, op_refs
from minify.errors import InvalidCandidate
from minify.passes.autocast import settings_of_cut_regions
from minify.passes.boundary import Boundary
from minify.passes.contract import Pass, Site
from minify.passes.effects import written
from minify.passes.expose import with_outputs
from minify.passes.flow import Flow, Storage, trace_flow
from minify.passes.prune import renumber_storages, written_inputs


def op_names(case: Case) -> tuple[str, ...]:
    """The ops that can be kept or cut, in program order: all but the free ones."""
    free = trace_flow(case).free
    return tuple(op.name for op in case.graph.ops if op.name not in free)


def neighbours(case: Case) -> dict[str, tuple[str, ...]]:
    """For each op, the ops it exchanges values with: through free ops too, and through memory (a write is a neighbour
    of the reads that follow it)."""
    flow = trace_flow(case)
    linked: dict[str, set[str]] = {name: set() for name in flow.ops if name not in flow.free}
    origin = {name: name for name in linked}
    writer: dict[Storage, str] = {}
    for op in case.graph.ops:
        if op.name in flow.free:
            origin[op.name] = origin.get(flow.source(op.name), "")
            continue
        sources = {origin.get(name, "") for name in op_refs(op)}
        sources |= {writer[storage] for storage in flow.reads(op) if storage in writer}
        for source in sources - {"", op.name}:
            linked[op.name].add(source)
            linked[source].add(op.name)
        for name in written(op):
            writer |= dict.fromkeys(flow.memory[name], op.name)
    return {name: tuple(sorted(others, key=flow.position.__getitem__)) for name, others in linked.items()}


def keep(case: Case, names: frozenset[str], base: str, consumers: str = "sinks") -> Case:
    """The candidate in which only the ops in `names` remain, cut values being `Derived` from the case saved as `base`.

    `consumers` says which values become outputs: `sinks` (those that no kept op reads), `outputs` (these and the kept
    original outputs), `all_used` (these and every kept value that a cut op read). Raises InvalidCandidate where
    nothing visible would remain, or where a kept op needs a value that cannot be an input."""
    flow = trace_flow(case)
    boundary = Boundary(case, kept_names(case, names, flow), base, flow)
    ops, inputs = boundary.ops(), boundary.inputs()
    program = dataclasses.replace(case.program, graph=Graph(tuple(item.name for item in inputs), ops, ()))
    settings = settings_of_cut_regions(case, (op.name for op in ops))
    bare = with_nonleaf_inputs(Case(program, inputs, settings))
    return renumber_storages(with_outputs(bare, case.graph, consumers))


def with_nonleaf_inputs(case: Case) -> Case:
    """An input that an op writes to becomes no leaf where it requires grad, since autograd forbids writing to those."""
    names = written_inputs(case)

    def changed(item: Input | ScalarInput) -> Input | ScalarInput:
        if isinstance(item, ScalarInput) or item.name not in names or not item.meta.requires_grad:
            return item
        flags = tuple(dict.fromkeys((*item.meta.flags, "nonleaf")))
        return dataclasses.replace(item, meta=dataclasses.replace(item.meta, flags=flags))

    return dataclasses.replace(case, inputs=tuple(map(changed, case.inputs)))


def kept_names(case: Case, names: frozenset[str], flow: Flow) -> frozenset[str]:
    """`names`, and the free ops that go with them: those that read a kept op, or a parameter that a kept op reads."""
    kept = {op.name for op in case.graph.ops if op.name in names and op.name not in flow.free}
    if not kept:
        raise InvalidCandidate("no op would remain")
    present = kept | {name for op in kept for name in op_refs(flow.ops[op]) if name in flow.params}
    for op in case.graph.ops:
        if op.name in flow.free and flow.source(op.name) in present:
            kept.add(op.name)
            present.add(op.name)
    return frozenset(kept)


def find(case: Case) -> tuple[Site, ...]:
    names = op_names(case)
    return tuple((name,) for name in names) if len(names) > 1 else ()


def rewrite(case: Case, sites: tuple[Site, ...]) -> Case:
    removed = {str(site[0]) for site in sites}
    return keep(case, frozenset(op_names(case)) - removed, digest(case), "outputs")


CUT_OPS = Pass("cut ops", find, rewrite)
