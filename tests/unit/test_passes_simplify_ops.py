"""Simpler calls in the place of complex ones; `test_complexity` runs the table of which there are."""

from __future__ import annotations

import pytest

from minify.case import Case, Input, Recipe, Recorded, Ref, Window, size, tensor_inputs
from minify.passes.contract import Site
from minify.passes.simplify_ops import SIMPLIFY_OPS
from minify.passes.wellformed import faults
from tests.cases import build, chain, given, op, several, show, tensor

R = Ref
F = "torch.nn.functional."
MEAN, EXP = "torch.mean(x, dim=-1, keepdim=True)", "torch.exp(x)"
TALL = tensor((8, 4), stride=(1, 8))
NORM = build(["x", "w", "b"], [op("a", F + "layer_norm", R("x"), (8,), R("w"), R("b"), 1e-5)], ["a"])
LINEAR = build(["x", given("w", tensor((6, 8))), "b"], [op("a", F + "linear", R("x"), R("w"), R("b"))], ["a"])
PAIR = build(["x"], [op("a", F + "gelu", R("x")), op("b", F + "silu", R("a")), op("c", "torch.neg", R("b"))], ["c"])
BEST = build(
    ["x"],
    [
        op("m", "torch.max", R("x"), 1, meta=several(tensor((4,)), tensor((4,), "int64"))),
        op("g", "operator.getitem", R("m"), 0, meta=tensor((4,))),
        op("e", "torch.exp", R("g"), meta=tensor((4,))),
    ],
    ["e", "g"],
)
IN_PLACE = build(
    ["x"],
    [
        op("a", "torch.relu", R("x"), meta=tensor(storage=3)),
        op("v", ".t", R("a"), meta=tensor((8, 4), stride=(1, 8), storage=3)),
        op("b", ".add_", R("a"), 1.0, meta=tensor(storage=3)),
        op("c", "torch.exp", R("a")),
        op("d", ".mul_", R("b"), R("v"), meta=tensor(storage=3)),
    ],
    ["a", "c", "v"],
)
BUFFER = build(["x"], [op("a", ".lerp_", R("x"), R("x"), 0.5, meta=tensor(storage=100))], [])

REWRITES: list[tuple[str, Case, tuple[Site, ...], str]] = [
    ("a piece", NORM, (("a", MEAN),), "x | a = torch.mean(x, dim=-1, keepdim=True) | a"),
    ("without an operand", NORM, (("a", "without weight"),), "x b | a = torch.nn.functional.layer_norm(x, (8), None, b, 1e-05) | a"),
    (
        "without several operands",
        NORM,
        (("a", "without weight, bias"),),
        "x | a = torch.nn.functional.layer_norm(x, (8), None, None, 1e-05) | a",
    ),
    (
        "an operand that is read elsewhere",
        build(["x"], [op("a", F + "linear", R("x"), R("x"), bias=R("x"))], ["a"]),
        (("a", "without bias"),),
        "x | a = torch.nn.functional.linear(x, x) | a",
    ),
    ("the last operand", LINEAR, (("a", "without bias"),), "x w | a = torch.nn.functional.linear(x, w) | a"),
    ("an operand turned", LINEAR, (("a", "torch.matmul(x, weight.mT)"),), "x w | a = torch.matmul(x, w) | a"),
    (
        "one of several results",
        BEST,
        (("m", "torch.amax(x, dim=dim, keepdim=keepdim)"),),
        "x | m = torch.amax(x, dim=1); e = torch.exp(m) | e m",
    ),
    (
        "no write: later readers see the result, earlier views what there was",
        IN_PLACE,
        (("b", "add"),),
        "x | a = torch.relu(x); v = .t(a); b = .add(a, 1.0); c = torch.exp(b); d = .mul_(b, v) | b c v",
    ),
    (
        "no write to what is returned",
        IN_PLACE,
        (("d", "mul"),),
        "x | a = torch.relu(x); v = .t(a); b = .add_(a, 1.0); c = torch.exp(a); d = .mul(b, v) | d c v",
    ),
    ("no write to what only the caller sees", BUFFER, (("a", "lerp"),), "x | a = .lerp(x, x, 0.5) | a"),
    (
        "an operator",
        chain("x", ("operator.iadd", 1.0)),
        (("a", "add"),),
        "x | a = operator.add(x, 1.0) | a",
    ),
    (
        "an ATen call",
        chain("x", ("torch.ops.aten.relu_.default",)),
        (("a", "relu"),),
        "x | a = torch.ops.aten.relu.default(x) | a",
    ),
    ("keywords", chain("x", (F + "softmax",)), (("a", EXP),), "x | a = torch.exp(x) | a"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "sites", "expected"), [row[1:] for row in REWRITES], ids=[row[0] for row in REWRITES])
def test_simplifying_gives(case: Case, sites: tuple[Site, ...], expected: str) -> None:
    assert set(sites) <= set(SIMPLIFY_OPS.find(case))
    simpler = SIMPLIFY_OPS.rewrite(case, sites)
    assert show(simpler) == expected
    assert faults(simpler) == ()
    assert size(simpler) < size(case)


NO_OPS = [
    ("simple calls", chain("x", ("torch.relu",), ("torch.mean", -1), (".clone",), (".view", (8, 4)), ("operator.add", 1))),
    ("a custom op of the same name", chain("x", ("torch.ops.mine.gelu.default",), ("torch.ops.mine.add_.default",))),
    ("a write without a twin", chain("x", (".zero_",), (".copy_", R("x")), ("operator.setitem", 0, 1.0))),
    ("a write to several", build(["x"], [op("a", "torch._foreach_exp_", (R("x"),))], ["a"])),
    ("a maximum of two", chain("x", ("torch.max", R("x")))),
    (
        "several results that are all read",
        build(
            ["x"],
            [
                op("m", "torch.max", R("x"), 1, meta=several(tensor((4,)), tensor((4,), "int64"))),
                op("g", "operator.getitem", R("m"), 0, meta=tensor((4,))),
                op("h", "operator.getitem", R("m"), 1, meta=tensor((4,), "int64")),
            ],
            ["g", "h"],
        ),
    ),
    (
        "a product with what the program made",
        build(["x", "w"], [op("a", "torch.exp", R("w")), op("b", F + "linear", R("x"), R("a"))], ["b"]),
    ),
    ("a product with what is read elsewhere", build(["x"], [op("a", F + "linear", R("x"), R("x"))], ["a"])),
]  # fmt: skip


@pytest.mark.parametrize("case", [row[1] for row in NO_OPS], ids=[row[0] for row in NO_OPS])
def test_nothing_is_simplified(case: Case) -> None:
    assert SIMPLIFY_OPS.find(case) == ()


def test_first_choices_come_before_second_ones_and_pieces_before_operands() -> None:
    assert SIMPLIFY_OPS.find(PAIR) == (
        ("a", "torch.erf(x)"),
        ("b", "torch.sigmoid(x)"),
        ("a", "torch.tanh(x)"),
    )
    first, _, *others = (words for _, words in SIMPLIFY_OPS.find(NORM))
    assert [first, *others] == [MEAN, "without weight, bias", "without weight", "without bias"]


@pytest.mark.parametrize(
    ("item", "shape", "stride", "window"),
    [
        (given("w", tensor((6, 8)), Recipe("randn")), (8, 6), (1, 8), None),
        (
            given("w", tensor((2, 6, 8)), Recorded("0" * 32, Window((2, 6, 8), (1, 32, 2), 5)), dynamic=(0, 1)),
            (2, 8, 6),
            (48, 1, 8),
            Window((2, 8, 6), (1, 2, 32), 5),
        ),
    ],
)
def test_a_turned_input_lies_in_memory_as_it_did(
    item: Input, shape: tuple[int, ...], stride: tuple[int, ...], window: Window | None
) -> None:
    case = build(["x", item], [op("a", F + "linear", R("x"), R("w"))], ["a"])
    (site,) = SIMPLIFY_OPS.find(case)
    _, turned = tensor_inputs(SIMPLIFY_OPS.rewrite(case, (site,)))
    assert (turned.meta.shape, turned.meta.stride) == (shape, stride)
    assert getattr(turned.value, "window", None) == window
    assert {shape[dim] for dim in turned.dynamic_dims} == {item.meta.shape[dim] for dim in item.dynamic_dims}
    assert len(turned.dynamic_dims) == len(item.dynamic_dims)
