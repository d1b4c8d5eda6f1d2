"""Bypassing an op by an operand of the same shape, dtype and device."""

from __future__ import annotations

import pytest

from minify.case import Case, Const, Ref
from minify.errors import InvalidCandidate
from minify.passes.bypass import BYPASS
from minify.passes.contract import Site
from minify.passes.wellformed import faults
from tests.cases import build, chain, given, nothing, op, show, tensor

R = Ref
CHAIN = chain("x", ("torch.exp",), ("torch.neg",), ("torch.neg",), ("torch.relu",))
ADD = build(
    ["x", "y"],
    [op("a", "torch.exp", R("x")), op("b", "torch.add", R("y"), R("a")), op("c", "torch.relu", R("b"))],
    ["c"],
)
IN_PLACE = build(
    [given("x", tensor(storage=3))],
    [op("a", ".add_", R("x"), 1, meta=tensor(storage=3)), op("b", "torch.relu", R("a")), op("c", "torch.exp", R("b"))],
    ["c"],
)
SETITEM = build(
    ["x"],
    [
        op("a", "torch.relu", R("x")),
        op("s", "operator.setitem", R("a"), 0, 1.0, meta=nothing()),
        op("b", "torch.exp", R("a")),
    ],
    ["b"],
)
FLAT = tensor((32,), storage=5)
VIEWED = build(
    ["x"],
    [
        op("a", "torch.exp", R("x"), meta=tensor(storage=5)),
        op("v", ".view", R("a"), 32, meta=FLAT),
        op("s", "operator.getitem", R("v"), 3, meta=tensor((), storage=5, offset=3)),
        op("b", "torch.neg", R("s"), meta=tensor(())),
    ],
    ["b", "v"],
)
TWO_OUTPUTS = build(["x"], [op("a", "torch.relu", R("x")), op("b", "torch.neg", R("a"))], ["a", "b"])

REWRITES: list[tuple[str, Case, tuple[Site, ...], str]] = [
    ("one op", CHAIN, (("b", "a"),), "x | a = torch.exp(x); c = torch.neg(a); d = torch.relu(c) | d"),
    ("a run of ops", CHAIN, (("b", "a"), ("c", "b")), "x | a = torch.exp(x); d = torch.relu(a) | d"),
    ("the first operand", ADD, (("b", "y"),), "y | c = torch.relu(y) | c"),
    ("the second operand", ADD, (("b", "a"),), "x | a = torch.exp(x); c = torch.relu(a) | c"),
    ("the first of two sites wins", ADD, (("b", "y"), ("b", "a")), "y | c = torch.relu(y) | c"),
    ("a returned op", CHAIN, (("d", "c"),), "x | a = torch.exp(x); b = torch.neg(a); c = torch.neg(b) | c"),
    ("an in-place op", IN_PLACE, (("a", "x"),), "x | b = torch.relu(x); c = torch.exp(b) | c"),
    ("an output that would be an input goes", TWO_OUTPUTS, (("a", "x"),), "x | b = torch.neg(x) | b"),
    ("a write that returns nothing", SETITEM, (("s", "a"),), "x | a = torch.relu(x); b = torch.exp(a) | b"),
    (
        "a view of another shape",
        VIEWED,
        (("v", "a"),),
        "x | a = torch.exp(x); s = operator.getitem(a, 3); b = torch.neg(s) | b a",
    ),
    ("a view of a view", VIEWED, (("s", "v"), ("v", "a")), "x | a = torch.exp(x); b = torch.neg(a) | b a"),
    ("two outputs that become one", TWO_OUTPUTS, (("b", "a"),), "x | a = torch.relu(x) | a"),
]


@pytest.mark.parametrize(("case", "sites", "expected"), [row[1:] for row in REWRITES], ids=[row[0] for row in REWRITES])
def test_bypassing_gives(case: Case, sites: tuple[Site, ...], expected: str) -> None:
    assert set(sites) <= set(BYPASS.find(case))
    smaller = BYPASS.rewrite(case, sites)
    assert show(smaller) == expected
    assert faults(smaller) == ()


NO_OPS = [
    ("another shape", build(["x"], [op("a", "torch.sum", R("x"), 0, meta=tensor((8,)))], ["a"])),
    ("another dtype", build(["x"], [op("a", ".half", R("x"), meta=tensor(dtype="float16"))], ["a"])),
    (
        "a view as another dtype",
        build(
            [given("x", tensor(storage=3))],
            [op("a", ".view", R("x"), Const("torch.int16"), meta=tensor((4, 16), "int16", storage=3))],
            ["a"],
        ),
    ),
    (
        "a write that gives another shape",
        build([given("x", tensor(storage=3))], [op("a", ".squeeze_", R("x"), meta=tensor((32,), storage=3))], ["a"]),
    ),
    ("no operand", build([], [op("a", "torch.zeros", 3)], ["a"])),
    ("no result", build(["x"], [op("a", "torch.check", R("x"), meta=nothing())], [])),
]


@pytest.mark.parametrize("case", [row[1] for row in NO_OPS], ids=[row[0] for row in NO_OPS])
def test_nothing_to_bypass_with(case: Case) -> None:
    assert BYPASS.find(case) == ()


def test_first_operands_come_before_second_ones() -> None:
    assert BYPASS.find(ADD) == (("a", "x"), ("b", "y"), ("c", "b"), ("b", "a"))


def test_views_of_another_shape_come_last() -> None:
    assert BYPASS.find(VIEWED) == (("a", "x"), ("b", "s"), ("v", "a"), ("s", "v"))


def test_a_transposed_operand_will_do() -> None:
    case = build(
        [given("x", tensor((4, 4), stride=(1, 4)))], [op("a", "torch.relu", R("x"), meta=tensor((4, 4)))], ["a"]
    )
    assert BYPASS.find(case) == (("a", "x"),)


def test_not_every_op_can_be_bypassed() -> None:
    with pytest.raises(InvalidCandidate):
        BYPASS.rewrite(CHAIN, BYPASS.find(CHAIN))
