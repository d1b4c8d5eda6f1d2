"""Constants left out or made plainer: what is offered for which argument, and what a sweep comes to in how many questions."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from minify.case import (
    Arg,
    Case,
    Const,
    DictArg,
    Graph,
    ListArg,
    OpaqueMeta,
    Ref,
    ScalarMeta,
    SliceArg,
    Subgraph,
    canonical,
    size,
)
from minify.errors import InvalidCandidate
from minify.graph import literal_rank
from minify.passes.idiomatic_calls import LAST
from minify.passes.simplify_constants import SIMPLIFY_CONSTANTS
from minify.verdict import Outcome
from tests.cases import build, given, nothing, op, several, show_call, tensor
from tests.reducing import Answer, run_reduction

R = Ref
POOL: tuple[Arg, ...] = (R("x"), 3, 2, 0, True, True, None)


def calling(target: str, *args: Arg, **kwargs: Arg) -> Case:
    return build([given("x", tensor((4, 8))), "w"], [op("a", target, *args, **kwargs)], ["a"])


def shown(case: Case) -> str:
    return show_call(case.graph.ops[0])


def offered(case: Case) -> list[str]:
    """The arguments that each single site leads to, in order; each is smaller."""
    found = []
    for site in SIMPLIFY_CONSTANTS.find(case):
        try:
            candidate = SIMPLIFY_CONSTANTS.rewrite(case, (site,))
        except InvalidCandidate:
            continue
        assert size(candidate) < size(case)
        found.append(shown(candidate))
    return found


REWRITES: list[tuple[str, Case, list[str]]] = [
    ("a keyword", calling("torch.mean", R("x"), dim=-1, keepdim=True), ["x, keepdim=True", "x, dim=-1"]),
    ("a mode", calling("torch.div", R("x"), R("w"), rounding_mode="floor"), ["x, w"]),
    ("a dtype", calling("torch.sum", R("x"), dtype=Const("torch.float64")), ["x"]),
    ("a flag that is off", calling("torch.nn.functional.relu", R("x"), inplace=False), ["x"]),
    ("the last position", calling("torch.nn.functional.dropout", R("x"), 1.0, False), ["x, 1.0"]),
    ("an empty list", calling("torch.sum", R("x"), ()), ["x"]),
    ("a flag with others behind it", calling("f", R("x"), True, R("w")), ["x, False, w"]),
    ("an odd float", calling("torch.mul", R("x"), 0.35355339), ["x", "x, 1.0", "x, 0.0", "x, 0.4", "x, 0.354"]),
    ("a short float", calling("operator.mul", R("x"), 1.5), ["x, 1.0", "x, 0.0", "x, 2.0"]),
    ("a round float", calling("operator.mul", R("x"), 50.0), ["x, 1.0", "x, 0.0", "x, 2.0"]),
    ("a small float", calling("operator.add", R("x"), 1e-05), ["x, 1.0", "x, 0.0", "x, 0.5"]),
    ("a negative float", calling("operator.add", R("x"), -50.0), ["x, 1.0", "x, 0.0", "x, -1.0"]),
    ("a power of two", calling("operator.mul", R("x"), 2.0), ["x, 1.0"]),
    ("a negative zero", calling("operator.add", R("x"), -0.0), ["x, 1.0", "x, 0.0", "x, 0.5"]),
    ("an infinity", calling("operator.add", R("x"), math.inf), ["x, 1.0"]),
    ("no number", calling("operator.add", R("x"), math.nan), ["x, 1.0"]),
    ("a number that would round to infinity", calling("operator.add", R("x"), 1.79e308), ["x, 1.0", "x, 0.0"]),
    ("a complex number", calling("operator.mul", R("x"), 2 + 3j), ["x, 1.0", "x, 1j"]),
    ("an integer", calling("operator.add", R("x"), 7), ["x, 1", "x, 0", "x, 2"]),
    ("two", calling("operator.add", R("x"), 2), ["x, 1"]),
    ("a dim from the end", calling("operator.add", R("x"), -2), ["x, -1", "x, 0"]),
    ("a tuple as a whole", calling("f", R("x"), (3, 1), R("w")), ["x, (1, 1), w", "x, (0, 0), w"]),
    ("a dim in an index", calling("operator.getitem", R("x"), (SliceArg(None, None, None), 2)), [
        f"x, ({SliceArg(None, None, None)!r}, 1)"
    ]),
    ("a bound of a slice", calling("operator.getitem", R("x"), SliceArg(2, LAST, None)), [
        f"x, {SliceArg(1, LAST, None)!r}"
    ]),
    ("numbers among values", calling(".expand", R("x"), (R("w"), 7)), ["x, (w, 1)", "x, (w, 0)", "x, (w, 2)"]),
    ("a number in a dict", calling("f", R("x"), DictArg((("k", 2),)), R("w")), [f"x, {DictArg((('k', 1),))!r}, w"]),
    ("what is written", build(["x"], [op("a", "operator.setitem", R("x"), 0, 7.5, meta=nothing())], ["x"]), [
        "x, 0, 1.0", "x, 0, 0.0", "x, 0, 8.0"
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("case", "expected"), [row[1:] for row in REWRITES], ids=[row[0] for row in REWRITES])
def test_what_is_offered_for(case: Case, expected: list[str]) -> None:
    assert offered(case) == expected


NO_OPS: list[tuple[str, Case]] = [
    ("values alone", calling("torch.mm", R("x"), R("w"))),
    ("the plainest numbers", calling("operator.add", R("x"), 1)),
    ("the last dim", calling("operator.getitem", R("x"), -1)),
    ("a number of its own as the first position", calling("torch.zeros", 1)),
    ("a value by keyword", calling("torch.linalg.norm", x=R("x"))),
    ("a value in a list by keyword", calling("torch.cat", tensors=ListArg((R("x"), R("w"))))),
    ("a device by position", calling("torch.zeros", 1, Const("torch.device('cpu')"))),
    ("a device by keyword", calling("torch.zeros", 1, device="cuda")),
    ("the size of an input's dim", calling("operator.add", R("x"), 8)),
    ("an open end", calling("operator.getitem", R("x"), SliceArg(None, LAST, None))),
    ("an attribute", calling("builtins.getattr", R("x"), "T")),
    ("an operator's flag", calling("operator.eq", R("x"), True)),
    ("a context", build(["x"], [op("a", "f", "cpu", True, 7, meta=OpaqueMeta("autocast"))], ["x"])),
    ("a shape read", build(["x"], [op("a", ".size", R("x"), 5, meta=ScalarMeta(4))], ["x"])),
    (
        "an index into a tuple",
        build(
            ["x"],
            [op("s", ".split", R("x"), 1, R("x"), meta=several(tensor(), tensor())), op("a", "operator.getitem", R("s"), 7)],
            ["a"],
        ),
    ),
    ("a call with a subgraph", calling("torch.cond", Subgraph(Graph((), (op("b", "f", 7.5),), (R("b"),))), R("x"), k=7)),
]  # fmt: skip


@pytest.mark.parametrize("case", [row[1] for row in NO_OPS], ids=[row[0] for row in NO_OPS])
def test_nothing_is_offered_for(case: Case) -> None:
    assert SIMPLIFY_CONSTANTS.find(case) == ()


def test_all_sites_together_leave_what_most_calls_must_have() -> None:
    case = calling("torch.nn.functional.avg_pool2d", *POOL)
    assert shown(SIMPLIFY_CONSTANTS.rewrite(case, SIMPLIFY_CONSTANTS.find(case))) == "x, 1"


def test_a_position_goes_only_with_all_behind_it() -> None:
    case = calling("f", R("x"), 7, 7, "word")
    last, inner, *_ = SIMPLIFY_CONSTANTS.find(case)
    assert shown(SIMPLIFY_CONSTANTS.rewrite(case, (last,))) == "x, 7, 7"
    assert shown(SIMPLIFY_CONSTANTS.rewrite(case, (last, inner))) == "x, 7"
    with pytest.raises(InvalidCandidate):
        SIMPLIFY_CONSTANTS.rewrite(case, (inner,))


def test_a_number_keeps_its_type() -> None:
    for number in (7, 7.5):
        case = calling("operator.add", R("x"), number)
        for site in SIMPLIFY_CONSTANTS.find(case):
            assert type(SIMPLIFY_CONSTANTS.rewrite(case, (site,)).graph.ops[0].args[1]) is type(number)


PLAIN_TO_ODD: list[tuple[Arg, ...]] = [
    (0, 1, -1, 0.0, 1.0, None, False, "floor", Const("torch.float32")),
    (2, 0.5, 2.0, -1.0, True),
    (3, -2, 1000003, 0.1, 3.0, 1e-05, 0.25, 64.0, -0.0),
    (0.35, 1.5, 123.0),
    (0.35355339, 2.0**-20, math.inf, math.nan),
]


def test_literals_rank_from_plain_to_odd() -> None:
    for rank, row in enumerate(PLAIN_TO_ODD):
        assert {canonical(leaf): literal_rank(leaf) for leaf in row} == dict.fromkeys(map(canonical, row), rank)
    assert literal_rank(1j) < literal_rank(2 + 1j)


SIZES = [
    ("fewer arguments", calling("f", R("x"), 0.35355339), calling("f", R("x"), 1, 1)),
    ("a plainer number of the same length", calling("f", R("x"), 2), calling("f", R("x"), 7)),
    ("a plainer number that is longer", calling("f", R("x"), -1), calling("f", R("x"), 7)),
    ("two plain numbers", calling("f", (1, 1)), calling("f", (1, 2))),
    ("a flag that is off", calling("f", False, R("x")), calling("f", True, R("x"))),
]


@pytest.mark.parametrize(("smaller", "larger"), [row[1:] for row in SIZES], ids=[row[0] for row in SIZES])
def test_smaller_is(smaller: Case, larger: Case) -> None:
    assert size(smaller) < size(larger)


def test_constants_inside_a_subgraph_count() -> None:
    bodies = [Subgraph(Graph((), (op("b", "f", number),), (R("b"),))) for number in (2, 7)]
    smaller, larger = (calling("torch.cond", body) for body in bodies)
    assert size(smaller) < size(larger)


# --- sweeps: constants are all that is edited, eager turns down calls without what they must have, the failure needs some ---


def runs(least: int, fails: Callable[..., bool]) -> Answer:
    """Eager needs `least` positions; the failure shows where `fails` says so of the others and of the keywords."""

    def answer(case: Case) -> bool | Outcome:
        call = case.graph.ops[0]
        return fails(*call.args[1:], **dict(call.kwargs)) if len(call.args) >= least else Outcome.INVALID

    return answer


SWEEPS: list[tuple[str, Case, Answer, str, int]] = [
    ("none", calling("avg_pool", *POOL), runs(2, lambda *_: True), "x, 1", 2),
    ("a mode", calling("div", R("x"), R("w"), mode="floor"), runs(2, lambda w, mode="": mode == "floor"), "x, w, mode='floor'", 1),
    ("a dim", calling("mean", R("x"), dim=-1), runs(1, lambda dim=None: dim == -1), "x, dim=-1", 1),
    ("a factor", calling("mul", R("x"), 2.0), runs(2, lambda factor: factor == 2.0), "x, 2.0", 2),
    ("an odd bound", calling("ge", R("x"), 0.3), runs(2, lambda bound: 0 < bound < 0.6), "x, 0.5", 4),
    ("a sharp bound", calling("ge", R("x"), 0.123456), runs(2, lambda bound: 0.12 < bound < 0.13), "x, 0.123", 5),
    ("a flag", calling("avg_pool", *POOL), runs(2, lambda k, s=0, p=0, ceil=False, *_: ceil), "x, 1, 1, 0, True", 9),
    ("a flag and a window", calling("avg_pool", *POOL), runs(2, lambda *given: given[:4] == (3, 2, 0, True)), "x, 3, 2, 0, True", 10),
]  # fmt: skip


@pytest.mark.parametrize(
    ("case", "answer", "left", "most"), [row[1:] for row in SWEEPS], ids=[row[0] for row in SWEEPS]
)
def test_a_sweep_leaves_only_what_the_failure_needs(
    case: Case, answer: Answer, left: str, most: int, tmp_path: Path
) -> None:
    run = run_reduction(case, answer, tmp_path, passes=(SIMPLIFY_CONSTANTS,))
    assert run.reduction.one_minimal
    assert shown(run.reduction.case) == left
    assert run.oracle.queries <= most
