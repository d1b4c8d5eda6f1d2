"""Put the body of a higher-order op in its place: a branch of `torch.cond`, what a checkpoint wraps, one turn of a loop.

May lose: the branch itself (a guard, a body lowered by itself, a recomputation in the backward); where that is what
fails, the candidate passes and the op stays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from minify.case import (
    Arg,
    Case,
    DictArg,
    Graph,
    ListArg,
    Op,
    Ref,
    bodies,
    map_arg,
    map_refs,
    op_refs,
    refs,
    rewrite_op,
)
from minify.errors import InvalidCandidate
from minify.graph import Subgraph
from minify.passes.contract import Pass, Site
from minify.passes.prune import prune, with_graph, written_inputs


def find(case: Case) -> tuple[Site, ...]:
    """(op, which of its bodies), the body with the most ops first: more is left to fail."""
    found: list[Site] = []
    for op in case.graph.ops:
        ranked = sorted(enumerate(bodies(op)), key=lambda pair: -len(pair[1].ops))
        found += [(op.name, index) for index, body in ranked if len(_operands(op)) >= len(body.params)]
    return tuple(found)


def rewrite(case: Case, sites: tuple[Site, ...]) -> Case:
    """Inline the body of the first site."""
    ((name, index), *_) = sites
    position, op = next((i, op) for i, op in enumerate(case.graph.ops) if op.name == name)
    body = bodies(op)[int(str(index))]
    operands = _operands(op)
    given = dict(zip(body.params, operands[len(operands) - len(body.params) :], strict=True))
    inlined, results = _placed(body, given, {*case.graph.params, *(op.name for op in case.graph.ops)})
    later, outputs = _relinked(case.graph.ops[position + 1 :], case.graph.outputs, op.name, results)
    if op.name in {*refs(tuple(outputs)), *(name for other in later for name in op_refs(other))}:
        raise InvalidCandidate(f"the result of {op.name} is used as a whole")
    smaller = prune(with_graph(case, (*case.graph.ops[:position], *inlined, *later), tuple(outputs)))
    if not smaller.graph.ops or not (smaller.graph.outputs or written_inputs(smaller)):
        raise InvalidCandidate("nothing visible would remain")
    return smaller


def _operands(op: Op) -> list[Arg]:
    """What is passed to the bodies: the arguments after the last body, tuples opened."""
    last = max((i for i, arg in enumerate(op.args) if isinstance(arg, Subgraph)), default=len(op.args))
    return list(_opened(op.args[last + 1 :]))


def _opened(arg: Arg) -> Iterator[Arg]:
    if isinstance(arg, tuple | ListArg):
        for item in arg if isinstance(arg, tuple) else arg.items:
            yield from _opened(item)
    elif isinstance(arg, DictArg):
        for _, item in arg.items:
            yield from _opened(item)
    else:
        yield arg


def _placed(body: Graph, given: dict[str, Arg], taken: set[str]) -> tuple[list[Op], list[Arg]]:
    """The ops of `body` under names of their own, on what it is called with; and what it returns."""
    values = dict(given)
    placed: list[Op] = []
    for op in body.ops:
        fresh = _fresh(op.name, taken)
        taken.add(fresh)
        moved = rewrite_op(op, lambda leaf: values[leaf.name] if isinstance(leaf, Ref) else leaf)
        placed.append(dataclasses.replace(moved, name=fresh))
        values[op.name] = Ref(fresh)
    return placed, [map_refs(output, lambda ref: values[ref.name]) for output in body.outputs]


def _fresh(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    return free


def _relinked(
    ops: tuple[Op, ...], outputs: tuple[Arg, ...], whole: str, results: list[Arg]
) -> tuple[list[Op], list[Arg]]:
    """`ops` and `outputs` reading `results[i]` where they read `whole[i]`."""
    stands_for: dict[str, Arg] = {}

    def replaced(leaf: Arg) -> Arg:
        return stands_for.get(leaf.name, leaf) if isinstance(leaf, Ref) else leaf

    kept: list[Op] = []
    for op in ops:
        if op.target == "operator.getitem" and op.args[0] == Ref(whole) and isinstance(op.args[1], int):
            if op.args[1] >= len(results):
                raise InvalidCandidate(f"the body returns no item {op.args[1]}")
            stands_for[op.name] = results[op.args[1]]
        else:
            kept.append(rewrite_op(op, replaced))
    return kept, [map_arg(output, replaced) for output in outputs]


INLINE_BODIES = Pass("inline bodies", find, rewrite, alternatives=True)
