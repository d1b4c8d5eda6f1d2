"""The screen: all ops of a case as independent one-op programs in a single compile, each fed its recorded inputs.

Where one op is to blame by itself, this names it in one query, whatever the number of ops. A hint, no verdict: the
search confirms it with a query of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

from minify.case import (
    Arg,
    Case,
    Const,
    Graph,
    Input,
    Op,
    Program,
    Ref,
    ScalarInput,
    TensorMeta,
    canonical,
    item_bytes,
    numel,
    rewrite_op,
)
from minify.errors import InvalidCandidate
from minify.passes.cut_ops import keep
from minify.passes.effects import written
from minify.verdict import VALUE_KINDS, Divergence, Signature

MOST_OPS = 400
# Of inputs in one query. A worker holds them five times (as recorded, for eager, for the compiled run and, twice as wide,
# for the reference), and as many results: this and an eighth of the program's own inputs keep it within twice
# (parameters + inputs + 1 GiB).
MOST_BYTES = 96 << 20
BLOCK = 24
_SUFFIX = "__alone"


def chunks(case: Case, names: Iterable[str], base: str) -> Iterator[Case]:
    """Screens that together cover `names`, each bounded in ops and in bytes of input. Ops that write to memory, or that
    cannot stand alone, are left out."""
    parts: dict[str, Case] = {}
    taken: dict[str, Input | ScalarInput] = {}
    most_bytes = MOST_BYTES + _bytes(case.inputs) // 8
    for name, part in _each_alone(case, tuple(names), base):
        fresh = {item.name: item for item in part.inputs if item.name not in taken}
        if parts and (len(parts) >= MOST_OPS or _bytes([*taken.values(), *fresh.values()]) > most_bytes):
            yield _joined(case, parts, taken)
            parts, taken, fresh = {}, {}, {item.name: item for item in part.inputs}
        parts[name] = part
        taken |= fresh
    if parts:
        yield _joined(case, parts, taken)


def unlike_first(case: Case, names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The first of each kind of call, and the rest of `names`: calls of one kind have one target, the same literals, and
    operands of the same layout. A model repeats its blocks, and a compiler that gets a kind of call wrong mostly does so each
    time; so the few of the first part are worth a compile of their own, a fraction of that of all."""
    metas: dict[str, object] = {item.name: item.meta if isinstance(item, Input) else item for item in case.inputs}
    metas |= {op.name: op.meta for op in case.graph.ops}
    ops = {op.name: op for op in case.graph.ops}

    def kind(arg: Arg) -> Arg:
        return Const(canonical(_layout(metas[arg.name]))) if isinstance(arg, Ref) else arg

    first: dict[str, str] = {}
    for name in names:
        first.setdefault(canonical(dataclasses.replace(rewrite_op(ops[name], kind), name="")), name)
    chosen = frozenset(first.values())
    rest = tuple(name for name in names if name not in chosen)
    return (tuple(first.values()), rest) if len(rest) > len(first) else (tuple(names), ())


def _layout(meta: object) -> object:
    """`meta` without which memory it is."""
    return dataclasses.replace(meta, storage=0, storage_size=0) if isinstance(meta, TensorMeta) else meta


def wrong_alone(divergences: Iterable[Divergence], names: Iterable[str]) -> dict[str, tuple[Divergence, ...]]:
    """What of the results of each op diverges, the worst op first. Results of tuple indexing count for their op."""
    known = set(names)
    found: dict[str, tuple[Divergence, ...]] = {}
    for row in divergences:
        owner = row.where.removeprefix("output:").split(_SUFFIX)[0].split("__of__")[-1]
        if owner in known:
            found[owner] = (*found.get(owner, ()), row)
    return dict(sorted(found.items(), key=lambda item: -max(row.excess for row in item[1])))


def suspects(wrong: Mapping[str, tuple[Divergence, ...]], signature: Signature) -> tuple[str, ...]:
    """The ops of `wrong_alone` that diverge in the way asked for, the worst first."""
    kinds = VALUE_KINDS if signature.family == "value" else (signature.name,)
    worst = {name: max((row.excess for row in rows if row.kind in kinds), default=None) for name, rows in wrong.items()}
    found = {name: excess for name, excess in worst.items() if excess is not None}
    return tuple(sorted(found, key=lambda name: -found[name]))


def _each_alone(case: Case, names: tuple[str, ...], base: str) -> Iterator[tuple[str, Case]]:
    """Each op that can stand alone. Blocks are cut out first, and the ops out of these: to cut takes time in proportion
    to the program that is cut from."""
    for start in range(0, len(names), BLOCK):
        block = names[start : start + BLOCK]
        try:
            source = keep(case, frozenset(block), base, "all_used")
        except InvalidCandidate:
            source = case
        for name in block:
            part = _alone(source, name, base)
            if part is not None:
                yield name, part


def _alone(case: Case, name: str, base: str) -> Case | None:
    try:
        part = keep(case, frozenset([name]), base, "all_used")
    except InvalidCandidate:
        return None
    storages = [item.meta.storage for item in part.inputs if isinstance(item, Input)]
    if any(written(op) for op in part.graph.ops) or len(set(storages)) < len(storages):
        return None
    return part


def _bytes(items: Iterable[Input | ScalarInput]) -> int:
    return sum(numel(item.meta.shape) * item_bytes(item.meta.dtype) for item in items if isinstance(item, Input))


def _joined(case: Case, parts: dict[str, Case], inputs: dict[str, Input | ScalarInput]) -> Case:
    """One case of all parts: their inputs shared by name, their results renamed so that none meets an input's name."""
    ops: list[Op] = []
    outputs: list[Arg] = []
    for owner, part in parts.items():
        renamed = {op.name: f"{op.name}__of__{owner}{_SUFFIX}" for op in part.graph.ops}

        def rename(arg: Arg, renamed: dict[str, str] = renamed) -> Arg:
            return Ref(renamed.get(arg.name, arg.name)) if isinstance(arg, Ref) else arg

        ops += [dataclasses.replace(rewrite_op(op, rename), name=renamed[op.name]) for op in part.graph.ops]
        outputs += [
            rename(output) for output in part.graph.outputs if isinstance(output, Ref) and output.name in renamed
        ]
    placed = tuple(
        dataclasses.replace(item, meta=dataclasses.replace(item.meta, storage=number))
        if isinstance(item, Input)
        else item
        for number, item in enumerate(inputs.values())
    )
    graph = Graph(tuple(item.name for item in placed), tuple(ops), tuple(outputs))
    program = Program(graph, case.program.level, case.program.prelude)
    return dataclasses.replace(case, program=program, inputs=placed)
