"""Put simpler calls in the place of complex ones: a piece of what the call computes (`mean` for `layer_norm`), the same call
without an operand that it can do without (a bias), or the one that writes to none of its operands (`add` for `add_`).

May lose: everything that the call computes beside the piece, and the kernel, the pattern or the decomposition that only the
whole has; a broadcast or a second read of an operand; a write that others see. Which calls have which pieces is in
`complexity`; eager says whether a piece can stand where it is put, since its shape may be another.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeAlias

from minify.case import Arg, Case, Input, Op, Ref, SequenceMeta, map_arg, map_refs, op_refs, refs, rewrite_op
from minify.complexity import TURNED, Piece, Rule, out_of_place, rules_of
from minify.graph import short_name
from minify.passes.contract import Pass, Site
from minify.passes.effects import mutates_first
from minify.passes.flow import trace_flow
from minify.passes.layout import turned
from minify.passes.prune import prune, with_graph

WITHOUT = "without "
Edit: TypeAlias = Callable[[Case, Op], Case]


def find(case: Case) -> tuple[Site, ...]:
    """`(op, what takes its place)`: the first choice for every op, then the second of those that have two, and so on."""
    ranked = [(turn, (op.name, words)) for op in case.graph.ops for turn, (words, _) in enumerate(choices(case, op))]
    return tuple(site for _, site in sorted(ranked, key=lambda pair: pair[0]))


def rewrite(case: Case, sites: tuple[Site, ...]) -> Case:
    """The edit of the first site."""
    ((name, words), *_) = sites
    op = next(op for op in case.graph.ops if op.name == name)
    return prune(dict(choices(case, op))[str(words)](case, op))


def choices(case: Case, op: Op) -> Iterator[tuple[str, Edit]]:
    """What may take the place of `op`, in words, the simplest first."""
    if out_of_place(op.target) and mutates_first(op) and op.args and isinstance(op.args[0], Ref):
        yield short_name(out_of_place(op.target)), in_memory_of_its_own
    items = items_read(case, op)
    fitting = [rule for rule in rules_of(op.target) if items == (None if rule.item is None else {rule.item})]
    for rule in fitting:
        given = rule.bound(op)
        for piece in rule.pieces:
            if fits(case, op, piece, given):
                yield piece.text, partial(put, piece=piece, given=given)
    for rule in fitting:
        given = rule.bound(op)
        present = [names for names in rule.optional if any(refs(tuple(given.get(name) for name in names)))]
        together = [tuple(name for names in present for name in names)] if len(present) > 1 else []
        for names in (*together, *present):
            yield WITHOUT + ", ".join(names), partial(left_out, rule=rule, names=names)


def items_read(case: Case, op: Op) -> set[int] | None:
    """Which results are taken out of those of `op`; None where it has only one."""
    if not isinstance(op.meta, SequenceMeta):
        return None
    taken = {other.args[1] for other in case.graph.ops if takes_from(other, op)}
    return {index for index in taken if isinstance(index, int)}


def takes_from(other: Op, op: Op) -> bool:
    return other.target == "operator.getitem" and other.args[0] == Ref(op.name)


# --- a piece -------------------------------------------------------------------------------------------------------------


def fits(case: Case, op: Op, piece: Piece, given: Mapping[str, Arg]) -> bool:
    """Whether all positional operands of the piece are there, and those to be turned are inputs that nothing else reads."""
    for operand in refs(piece.call.args):
        arg = given.get(operand.removesuffix(TURNED))
        if arg is None or (operand.endswith(TURNED) and turned_input(case, arg) is None):
            return False
    return True


def turned_input(case: Case, arg: Arg) -> Input | None:
    """The input that `arg` is, with its last two dims exchanged; None where that cannot be."""
    if not isinstance(arg, Ref) or [name for op in case.graph.ops for name in op_refs(op)].count(arg.name) != 1:
        return None
    item = next((item for item in case.inputs if item.name == arg.name), None)
    returned = arg.name in set(refs(case.graph.outputs))
    return turned(item) if isinstance(item, Input) and not returned else None


def put(case: Case, op: Op, piece: Piece, given: Mapping[str, Arg]) -> Case:
    """`case` with the piece in the place of `op`, or of the item that is taken out of its results."""
    inputs = {item.name: item for item in case.inputs}
    for operand in refs(piece.call.args):
        if operand.endswith(TURNED):
            new = turned_input(case, given[operand.removesuffix(TURNED)])
            assert new is not None
            inputs[new.name] = new

    def filled(ref: Ref) -> Arg:
        return given.get(ref.name.removesuffix(TURNED))

    args = tuple(map_refs(arg, filled) for arg in piece.call.args)
    words = ((key, map_refs(value, filled)) for key, value in piece.call.kwargs)
    call = Op(op.name, piece.call.target, args, tuple((key, value) for key, value in words if value is not None))
    several = isinstance(op.meta, SequenceMeta)
    taken = {other.name: Ref(op.name) for other in case.graph.ops if several and takes_from(other, op)}
    return dataclasses.replace(replaced(case, op, call, taken), inputs=tuple(inputs.values()))


def replaced(case: Case, op: Op, call: Op, stands_for: Mapping[str, Ref]) -> Case:
    """`case` with `call` in the place of `op`, whatever comes after it reading others in place of some values."""
    place = case.graph.ops.index(op)

    def redirect(leaf: Arg) -> Arg:
        return stands_for.get(leaf.name, leaf) if isinstance(leaf, Ref) else leaf

    later = (rewrite_op(other, redirect) for other in case.graph.ops[place + 1 :])
    outputs = dict.fromkeys(map_arg(output, redirect) for output in case.graph.outputs)
    return with_graph(case, (*case.graph.ops[:place], call, *later), tuple(outputs))


# --- an operand less, and no write ---------------------------------------------------------------------------------------


def left_out(case: Case, op: Op, rule: Rule, names: tuple[str, ...]) -> Case:
    """`case` with `op` called without some operands, or with None for those that others follow."""
    places = {rule.params.index(name) for name in names}
    args = tuple(None if place in places else arg for place, arg in enumerate(op.args))
    while len(args) - 1 in places:
        args = args[:-1]
    kwargs = tuple((key, value) for key, value in op.kwargs if key not in names)
    return replaced(case, op, dataclasses.replace(op, args=args, kwargs=kwargs), {})


def in_memory_of_its_own(case: Case, op: Op) -> Case:
    """`case` with a fresh result of `op`, which is read from then on wherever what it wrote to was. It is returned where
    nothing reads it, since the write was what could be seen of it."""
    flow = trace_flow(case)
    call = dataclasses.replace(op, target=out_of_place(op.target), meta=None)
    same = {name: Ref(op.name) for name in flow.root if flow.root[name] == flow.root[op.name]}
    edited = replaced(case, op, call, same)
    read = {name for other in edited.graph.ops for name in op_refs(other)} | set(refs(edited.graph.outputs))
    seen = () if op.name in read else (Ref(op.name),)
    return with_graph(edited, edited.graph.ops, (*edited.graph.outputs, *seen))


SIMPLIFY_OPS = Pass("simpler ops", find, rewrite, alternatives=True)
