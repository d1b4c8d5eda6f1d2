"""Dropping outputs and what only they needed, and dropping inputs that nothing reads."""

from __future__ import annotations

import dataclasses

import pytest

from minify.case import Case, OpaqueMeta, Ref, tensor_inputs
from minify.errors import InvalidCandidate
from minify.passes.drop_inputs import DROP_INPUTS
from minify.passes.drop_outputs import DROP_OUTPUTS
from minify.passes.prune import prune, written_inputs
from minify.passes.wellformed import faults
from tests.cases import build, chain, given, nothing, op, several, show, tensor

R = Ref
TWO = build(
    ["x", "w"],
    [op("a", "torch.relu", R("x")), op("b", "torch.exp", R("a")), op("c", "torch.mm", R("a"), R("w"))],
    ["b", "c"],
)
WRITING = build(
    [given("x", tensor(storage=3))],
    [op("a", ".add_", R("x"), 1, meta=tensor(storage=3)), op("b", "torch.exp", R("x"))],
    ["b"],
)
SAME_TWICE = build(["x"], [op("a", "torch.relu", R("x")), op("b", "torch.exp", R("a"))], ["a", "a", "b"])

REWRITES = [
    ("the first output", TWO, (0,), "x w | a = torch.relu(x); c = torch.mm(a, w) | c"),
    ("the second output and the input only it read", TWO, (1,), "x | a = torch.relu(x); b = torch.exp(a) | b"),
    ("the last output of a program that writes to its input", WRITING, (0,), "x | a = .add_(x, 1) | "),
    ("one of two equal outputs", SAME_TWICE, (0,), "x | a = torch.relu(x); b = torch.exp(a) | a b"),
    ("two of three outputs", SAME_TWICE, (0, 2), "x | a = torch.relu(x) | a"),
]


@pytest.mark.parametrize(
    ("case", "places", "expected"), [row[1:] for row in REWRITES], ids=[row[0] for row in REWRITES]
)
def test_dropping_gives(case: Case, places: tuple[int, ...], expected: str) -> None:
    sites = DROP_OUTPUTS.find(case)
    smaller = DROP_OUTPUTS.rewrite(case, tuple(sites[place] for place in places))
    assert show(smaller) == expected
    assert faults(smaller) == ()


def test_a_single_output_stays() -> None:
    assert DROP_OUTPUTS.find(chain("x", ("torch.relu",), ("torch.exp",))) == ()


def test_not_every_output_can_go() -> None:
    with pytest.raises(InvalidCandidate):
        DROP_OUTPUTS.rewrite(TWO, DROP_OUTPUTS.find(TWO))


view = tensor((32,), storage=3)
PRUNED = [
    (
        "an unread random op goes",
        build(["x"], [op("r", "torch.rand_like", R("x")), op("a", "torch.relu", R("x"))], ["a"]),
        "x | a = torch.relu(x) | a",
    ),
    (
        "a write to an input stays",
        build(["x"], [op("s", "operator.setitem", R("x"), 0, 1.0, meta=nothing()), op("a", "torch.zeros", 3)], ["a"]),
        "x | s = operator.setitem(x, 0, 1.0); a = torch.zeros(3) | a",
    ),
    (
        "a write through a view of what is returned stays",
        build(
            ["x"],
            [
                op("a", "torch.relu", R("x"), meta=tensor(storage=3)),
                op("v", ".view", R("a"), 32, meta=view),
                op("f", ".fill_", R("v"), 1.0, meta=view),
            ],
            ["a"],
        ),
        "x | a = torch.relu(x); v = .view(a, 32); f = .fill_(v, 1.0) | a",
    ),
    (
        "a write to what nobody reads goes, and what it wrote to as well",
        build(
            ["x"],
            [
                op("y", "torch.exp", R("x"), meta=tensor(storage=3)),
                op("f", ".add_", R("y"), 1.0, meta=tensor(storage=3)),
                op("a", "torch.relu", R("x")),
            ],
            ["a"],
        ),
        "x | a = torch.relu(x) | a",
    ),
    (
        "a write after the last read goes",
        build(
            ["x"],
            [
                op("y", "torch.exp", R("x"), meta=tensor(storage=3)),
                op("a", "torch.relu", R("y")),
                op("f", ".add_", R("y"), 1.0, meta=tensor(storage=3)),
            ],
            ["a"],
        ),
        "x | y = torch.exp(x); a = torch.relu(y) | a",
    ),
    (
        "a foreach write to inputs stays",
        build(
            ["x", "y"],
            [op("f", "torch._foreach_div_", (R("x"), R("y")), 2.0, meta=nothing()), op("a", "torch.zeros", 3)],
            ["a"],
        ),
        "x y | f = torch._foreach_div_((x, y), 2.0); a = torch.zeros(3) | a",
    ),
    (
        "a relu in place stays",
        build(["x"], [op("f", "torch.nn.functional.relu", R("x"), True), op("a", "torch.zeros", 3)], ["a"]),
        "x | f = torch.nn.functional.relu(x, True); a = torch.zeros(3) | a",
    ),
    (
        "running statistics are written in training",
        build(
            ["x", "m", "v"],
            [
                op("n", "torch.nn.functional.batch_norm", R("x"), R("m"), R("v"), None, None, True),
                op("a", "torch.zeros", 3),
            ],
            ["a"],
        ),
        "x m v | n = torch.nn.functional.batch_norm(x, m, v, None, None, True); a = torch.zeros(3) | a",
    ),
    (
        "an autocast context stays",
        build(
            ["x"],
            [
                op("e", "torch.enter", meta=OpaqueMeta("ctx")),
                op("a", "torch.relu", R("x")),
                op("q", "torch.quit", R("e"), meta=nothing()),
            ],
            ["a"],
        ),
        "x | e = torch.enter(); a = torch.relu(x); q = torch.quit(e) | a",
    ),
    (
        "what is written through out= stays",
        build(["x", "y"], [op("n", "torch.exp", R("x"), out=R("y")), op("a", "torch.zeros", 3)], ["a"]),
        "x y | n = torch.exp(x, out=y); a = torch.zeros(3) | a",
    ),
    (
        "an unused result of a multi-output op goes",
        build(
            ["x"],
            [
                op("s", ".split", R("x"), 2, meta=several(tensor(), tensor())),
                op("g", "operator.getitem", R("s"), 0),
                op("h", "operator.getitem", R("s"), 1),
            ],
            ["g"],
        ),
        "x | s = .split(x, 2); g = operator.getitem(s, 0) | g",
    ),
]


@pytest.mark.parametrize(("case", "expected"), [row[1:] for row in PRUNED], ids=[row[0] for row in PRUNED])
def test_pruning_gives(case: Case, expected: str) -> None:
    assert show(prune(case)) == expected


def test_pruning_numbers_the_storages_that_stay_from_zero() -> None:
    case = build([given("x", tensor(storage=4)), given("y", tensor(storage=9))], [op("a", "torch.relu", R("y"))], ["a"])
    assert [item.meta.storage for item in tensor_inputs(prune(case))] == [0]


def test_a_write_through_a_view_is_a_write_to_the_input() -> None:
    case = build(
        [given("x", tensor(storage=3)), "y"],
        [op("v", ".view", R("x"), 32, meta=view), op("f", ".fill_", R("v"), 1.0, meta=view)],
        [],
    )
    assert written_inputs(case) == {"x"}


def test_unread_inputs_go_and_returned_ones_stay() -> None:
    case = dataclasses.replace(TWO, inputs=(*TWO.inputs, given("u"), given("r")))
    graph = dataclasses.replace(TWO.graph, params=("x", "w", "u", "r"), outputs=(*TWO.graph.outputs, R("r")))
    case = dataclasses.replace(case, program=dataclasses.replace(case.program, graph=graph))
    assert DROP_INPUTS.find(case) == (("u",),)
    smaller = DROP_INPUTS.rewrite(case, (("u",),))
    assert smaller.graph.params == ("x", "w", "r")
    assert faults(smaller) == ()


def test_no_input_goes_from_a_program_that_reads_them_all() -> None:
    assert DROP_INPUTS.find(TWO) == ()
