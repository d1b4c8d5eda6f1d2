"""Bypass an op: whoever reads its result reads one of its operands of the same shape, dtype and device instead.

A view is bypassed by what it is a view of whatever the shapes, since most that reads a view can read the whole as well; what
cannot, eager turns down. A write that returns nothing (`setitem`) is bypassed by leaving it out: what it wrote to stays as
it was.

May lose: the values that the op makes (its range, its zeros), its shape, its strides and its fresh memory, the fusion it is part
of. With the op go all ops that only it needed; `cut ops` is the pass that removes one op and keeps its other operands.
"""

from __future__ import annotations

from collections.abc import Mapping

from minify.case import Arg, Case, Ref, ScalarMeta, TensorMeta, ValueMeta, op_refs, rewrite_op
from minify.errors import InvalidCandidate
from minify.passes.contract import Pass, Site
from minify.passes.effects import written
from minify.passes.flow import has_memory, trace_flow
from minify.passes.prune import prune, with_graph, written_inputs


def find(case: Case) -> tuple[Site, ...]:
    """(op, operand) pairs: the first operand of every op, then the second of those that have two, and so on; views of another
    shape come last, as the least likely to succeed."""
    metas = trace_flow(case).metas
    ranked: list[tuple[int, Site]] = []
    reshaped: list[Site] = []
    for op in case.graph.ops:
        operands = [name for name in dict.fromkeys(op_refs(op)) if alike(metas[name], op.meta)]
        operands = list(written(op))[:1] if op.meta == ScalarMeta(None) else operands
        ranked += [(rank, (op.name, operand)) for rank, operand in enumerate(operands)]
        viewed = next((name for name in op_refs(op) if is_view(op.meta, metas[name])), None)
        reshaped += [(op.name, viewed)] if viewed is not None and not operands and not written(op) else []
    return (*(site for _, site in sorted(ranked, key=lambda pair: pair[0])), *reshaped)


def is_view(result: ValueMeta | None, operand: ValueMeta | None) -> bool:
    """Whether both lie in the same memory, as elements of one dtype."""
    if not isinstance(operand, TensorMeta) or not isinstance(result, TensorMeta) or not has_memory(result):
        return False
    return (operand.storage, operand.dtype) == (result.storage, result.dtype)


def alike(operand: ValueMeta | None, result: ValueMeta | None) -> bool:
    """Whether one tensor can stand where the other is expected; strides may differ."""
    if not isinstance(operand, TensorMeta) or not isinstance(result, TensorMeta):
        return False
    return (operand.shape, operand.dtype, operand.device) == (result.shape, result.dtype, result.device)


def rewrite(case: Case, sites: tuple[Site, ...]) -> Case:
    """Bypass the op of each site; where several sites name one op, the first wins."""
    stand_in: dict[str, str] = {}
    for op_name, operand in sites:
        stand_in.setdefault(str(op_name), str(operand))

    def redirect(leaf: Arg) -> Arg:
        return Ref(resolve(leaf.name, stand_in)) if isinstance(leaf, Ref) else leaf

    ops = tuple(rewrite_op(op, redirect) for op in case.graph.ops if op.name not in stand_in)
    outputs = tuple(dict.fromkeys(map(redirect, case.graph.outputs)))
    inputs = {Ref(name) for name in case.graph.params if Ref(name) not in case.graph.outputs}
    smaller = prune(with_graph(case, ops, tuple(output for output in outputs if output not in inputs)))
    if not smaller.graph.ops or not (smaller.graph.outputs or written_inputs(smaller)):
        raise InvalidCandidate("nothing visible would remain")
    return smaller


def resolve(name: str, stand_in: Mapping[str, str]) -> str:
    """What is read in place of `name`, through any number of bypassed ops."""
    while name in stand_in:
        name = stand_in[name]
    return name


BYPASS = Pass("bypass", find, rewrite)
