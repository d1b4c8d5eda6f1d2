"""Putting the body of a higher-order op in its place."""

from __future__ import annotations

import pytest

from minify.case import Arg, Case, Graph, Ref, SequenceMeta
from minify.errors import InvalidCandidate
from minify.graph import Subgraph
from minify.passes.contract import Site
from minify.passes.inline_bodies import INLINE_BODIES
from minify.passes.wellformed import faults
from tests.cases import build, op, show, tensor

R = Ref
PAIR = SequenceMeta((tensor(), tensor()))
LONG = Subgraph(
    Graph(("t", "u"), (op("m", "torch.relu", R("t")), op("y", "torch.add", R("m"), R("u"))), (R("y"), R("m")))
)
SHORT = Subgraph(Graph(("t", "u"), (op("m", "torch.cos", R("t")),), (R("m"), R("u"))))


def program(*calls: Arg, target: str = "torch.cond", outputs: tuple[str, ...] = ("z",)) -> Case:
    return build(
        ["x", "m"],
        [
            op("p", "torch.exp", R("x")),
            op("c", target, *calls, meta=PAIR),
            op("first", "operator.getitem", R("c"), 0),
            op("second", "operator.getitem", R("c"), 1),
            op("z", "torch.mul", R("first"), R("second")),
        ],
        list(outputs),
    )


COND = program(R("p"), SHORT, LONG, (R("x"), R("m")))
REWRITES: list[tuple[str, Case, Site, str]] = [
    (
        "the longer branch, its names made free",
        COND,
        ("c", 1),
        "x m | m_1 = torch.relu(x); y = torch.add(m_1, m); z = torch.mul(y, m_1) | z",
    ),
    (
        "the other branch, which passes an operand on",
        COND,
        ("c", 0),
        "x m | m_1 = torch.cos(x); z = torch.mul(m_1, m) | z",
    ),
    (
        "operands one by one after other arguments",
        program(LONG, "name", R("x"), R("p"), target="torch.ops.higher_order.invoke_subgraph"),
        ("c", 0),
        "x | p = torch.exp(x); m_1 = torch.relu(x); y = torch.add(m_1, p); z = torch.mul(y, m_1) | z",
    ),
    (
        "an item that is returned",
        program(R("p"), SHORT, LONG, (R("x"), R("m")), outputs=("first",)),
        ("c", 1),
        "x m | m_1 = torch.relu(x); y = torch.add(m_1, m) | y",
    ),
]


@pytest.mark.parametrize(("case", "site", "expected"), [row[1:] for row in REWRITES], ids=[row[0] for row in REWRITES])
def test_inlining_gives(case: Case, site: Site, expected: str) -> None:
    assert site in INLINE_BODIES.find(case)
    smaller = INLINE_BODIES.rewrite(case, (site,))
    assert show(smaller) == expected
    assert faults(smaller) == ()


def test_the_body_with_more_ops_comes_first() -> None:
    assert INLINE_BODIES.find(COND) == (("c", 1), ("c", 0))


def test_a_program_without_bodies_and_a_body_that_wants_more_have_no_site() -> None:
    assert INLINE_BODIES.find(build(["x"], [op("a", "torch.relu", R("x"))], ["a"])) == ()
    assert INLINE_BODIES.find(program(R("p"), LONG, SHORT, (R("x"),))) == ()


def test_a_result_used_as_a_whole_stays() -> None:
    case = program(R("p"), SHORT, LONG, (R("x"), R("m")), outputs=("c",))
    with pytest.raises(InvalidCandidate, match="as a whole"):
        INLINE_BODIES.rewrite(case, (("c", 1),))
