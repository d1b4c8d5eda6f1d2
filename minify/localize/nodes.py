"""Which graph of a program first differs, forward or backward, and which node of it.

What Inductor compiles is asked ATen graph by ATen graph, each on the inputs that it really had. Of what lies before it, and of a
backend of the user's own, the captured graph is asked with every value of it returned. Both change what is fused, and say so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Protocol

from minify.case import Case, Graph, Ref
from minify.errors import InvalidCandidate
from minify.localize.stages import backend_name
from minify.passes.expose import with_outputs
from minify.verdict import Divergence, GraphSeen, Signature, Verdict, counted

CAPTURED, ATEN = "captured graph", "ATen graph"
RETURNED = "asked with every value of the graph returned, which changes what is fused"


class SeeingOracle(Protocol):
    """What of an oracle is used here."""

    def judge(self, case: Case, signature: Signature) -> Verdict:
        """The verdict on one case. Raises Stopped."""
        ...

    def graphs(self, case: Case) -> tuple[GraphSeen, ...]:
        """What there is to say of each ATen graph that Inductor compiles of it. Raises Stopped."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class FirstNode:
    """The first graph that differs, of which `kind` and whether `forward` or `backward`, and the first `node` of it that does: a call
    of `call`, in the program's `source` line, off by what `numbers` say. Without a node, `note` says why there is none."""

    kind: str
    part: str
    node: str = ""
    call: str = ""
    source: str = ""
    numbers: Divergence | None = None
    note: str = RETURNED

    def __str__(self) -> str:
        named = f"{self.node} ({self.call}) is the first of its nodes that differs" if self.node else "no node is named"
        return f"{self.kind}, {self.part}: {named}; {self.note}"

    def as_row(self) -> dict[str, object]:
        """For `report.json`."""
        return {**dataclasses.asdict(self), "numbers": self.numbers and dataclasses.asdict(self.numbers)}


def first_node(question: Case, signature: Signature, oracle: SeeingOracle) -> FirstNode | None:
    """Where `question`, the one of the first rung that fails, first differs; None for a failure that is no wrong result. One query.
    Raises Stopped."""
    if signature.kind != "accuracy":
        return None
    if signature.family == "value" and backend_name(question) == "inductor":
        found = _among(oracle.graphs(question))
        if found is not None:
            return found
    return _in_captured(question, signature, oracle)


def _among(graphs: Iterable[GraphSeen]) -> FirstNode | None:
    """None where each graph does what it says: then what comes before Inductor is wrong."""
    for seen in graphs:
        if seen.wrong is not None:
            note = seen.why or RETURNED
            return FirstNode(ATEN, seen.part, seen.node, seen.call, seen.source, seen.numbers or seen.wrong, note)
    return None


def _in_captured(question: Case, signature: Signature, oracle: SeeingOracle) -> FirstNode | None:
    try:
        every = returning_all(question)
    except InvalidCandidate:
        return None
    verdict = oracle.judge(every, signature)
    rows = {row.where: row for row in counted(verdict.observation.divergences, signature)} if verdict.fails else {}
    for op in question.graph.ops:
        if row := rows.get(f"output:{op.name}"):
            return FirstNode(CAPTURED, "forward", op.name, op.target, numbers=row)
    if question.settings.backward:
        return FirstNode(CAPTURED, "backward", note="every value of the forward is right, each returned")
    return FirstNode(
        CAPTURED, "forward", note="with every value of it returned, which changes what is fused, it does not fail"
    )


def returning_all(case: Case) -> Case:
    """The forward of `case`, with the result of each of its calls for an output. Raises InvalidCandidate where none can be."""
    graph, settings = case.graph, dataclasses.replace(case.settings, backward="")
    wanted = Graph(graph.params, graph.ops, tuple(Ref(op.name) for op in graph.ops))
    return with_outputs(dataclasses.replace(case, settings=settings), wanted, "outputs")
