"""How the sizes of small programs hang together, as torch's own shape rules have it. Fake tensors: nothing is computed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from minify.case import Case, Input, ListArg, Op, Recipe, Ref, ScalarInput, SliceArg, digest
from minify.propagation import propagated
from minify.sizes import Sizes, atom, names
from tests.cases import build, given, op, tensor
from tests.unit.test_sizes import shown

R = Ref
RANDN = Recipe("randn")
ALL = SliceArg(None, None, None)


def program(ops: Sequence[Op], *more: Input | ScalarInput, **shapes: tuple[int, ...]) -> Case:
    """A program of some inputs that returns the last result."""
    return build([*(given(name, tensor(shape), RANDN) for name, shape in shapes.items()), *more], ops, [ops[-1].name])


def call(target: str, *args: object, **kwargs: object) -> list[Op]:
    return [op("y", target, *args, **kwargs)]  # type: ignore[arg-type]


def told(sizes: Sizes) -> str:
    """The free sizes that some place depends on, and the places that follow from others: `x.0 x.1 | w.0 = x.1`."""
    used = dict.fromkeys(name for _, total in sizes.places for name in sorted(names(total)))
    rows = ((sizes.name(place), total) for place, total in sizes.places)
    return f"{' '.join(used)} | {'; '.join(f'{name} = {shown(total)}' for name, total in rows if total != atom(name))}"


def then(target: str, *args: object, **shapes: tuple[int, ...]) -> Case:
    """A call on `x`, and its result times `w`."""
    return program([op("r", target, *args), *call("torch.mul", R("r"), R("w"))], **shapes)  # type: ignore[arg-type]


PROGRAMS = [
    ("no op that ties", program(call("torch.softmax", R("x"), dim=-1), x=(17, 17)), "x.0 x.1 | "),
    ("a matrix product", program(call("torch.mm", R("x"), R("w")), x=(4, 4), w=(4, 4)), "x.0 x.1 w.1 | w.0 = x.1"),
    ("broadcasting", program(call("torch.add", R("x"), R("b")), x=(4, 8), b=(8,)), "x.0 x.1 | b.0 = x.1"),
    ("a dim of 1", program(call("torch.add", R("x"), R("b")), x=(4, 8), b=(1, 8)), "x.0 x.1 | b.1 = x.1"),
    ("a literal that is a dim", program(call(".expand", R("x"), 4, 6), x=(1, 6)), "x.1 | y.2 = x.1"),
    ("a product", program(call(".view", R("x"), 32, 6), x=(4, 8, 6)), "x.0 x.1 x.2 | y.1 = x.0*x.1; y.2 = x.2"),
    ("a dim taken apart", program(call(".view", R("x"), 8, 2, 3), x=(8, 6)), "x.0 y.2 y.3 | x.1 = y.2*y.3; y.1 = x.0"),
    ("an axis is no size", program(call("torch.sum", R("x"), dim=2), x=(4, 5, 2)), "x.0 x.1 x.2 | "),
    ("repeats", then(".repeat", R("x"), 3, 1, x=(4, 7), w=(12, 7)), "x.0 x.1 r.1 | w.0 = r.1*x.0; w.1 = x.1"),
    (
        "a sum",
        then("torch.cat", (R("x"), R("z")), 1, x=(4, 8), z=(4, 5), w=(13,)),
        "x.0 x.1 z.1 | z.0 = x.0; w.0 = x.1 + z.1",
    ),
    ("windows", then("torch.nn.functional.avg_pool1d", R("x"), 2, x=(1, 3, 9), w=(4,)), "x.1 x.2 | w.0 = [x.2 // 2]"),
    ("padding", then("torch.nn.functional.pad", R("x"), (1, 1), x=(3, 4), w=(6,)), "x.0 x.1 | w.0 = 2 + x.1"),
    (
        "a number given",
        program(call(".view", R("x"), R("n"), -1), ScalarInput("n", 4), x=(4, 8)),
        "x.0 x.1 | n.0 = x.0",
    ),
    (
        "a size that is read",
        program([op("s", ".size", R("x"), 1), *call(".reshape", R("x"), R("s"), 4)], x=(4, 8)),
        "x.0 x.1 | y.2 = x.0",
    ),
    (
        "ATen calls",
        program(call("torch.ops.aten.view.default", R("x"), ListArg((32, 6))), x=(4, 8, 6)),
        "x.0 x.1 x.2 | y.1 = x.0*x.1; y.2 = x.2",
    ),
]


@pytest.mark.parametrize(("case", "expected"), [row[1:] for row in PROGRAMS], ids=[row[0] for row in PROGRAMS])
def test_what_follows_from_what(case: Case, expected: str) -> None:
    found = propagated(case)
    assert told(found) == expected
    assert found.of == digest(case)


HELD = [
    ("a slice", program(call("operator.getitem", R("x"), (ALL, SliceArg(2, 5, None))), x=(4, 8)), {("x.1", "y.4"), ("x.1", "y.5")}),
    ("a narrowed dim", program(call(".narrow", R("x"), 1, 2, 6), x=(4, 8)), {("x.1", "y.2"), ("x.1", "y.3")}),
    ("the largest few", program(call("torch.topk", R("x"), 3), x=(4, 8)), {("x.1", "y.1")}),
    ("parts of a length", program(call(".split", R("x"), 4, 1), x=(4, 8)), {("x.1", "y.1")}),
    ("a factor is no size", program(call("torch.mul", R("x"), 8), x=(4, 8)), set()),
]  # fmt: skip


@pytest.mark.parametrize(("case", "held"), [row[1:] for row in HELD], ids=[row[0] for row in HELD])
def test_numbers_that_a_call_holds_against_a_dim(case: Case, held: set[tuple[str, str]]) -> None:
    assert {(name, Sizes.name(place)) for name, place in propagated(case).beside} == held


@pytest.mark.parametrize(
    ("target", "args"), [("torch.linalg.cross", (R("z"),)), ("torch.nn.functional.max_pool1d", (2,))]
)
def test_a_rule_that_takes_a_size_for_its_number_leaves_it_out(target: str, args: tuple[object, ...]) -> None:
    found = propagated(program(call(target, R("x"), *args), x=(4, 3), z=(4, 3)))
    assert ("x", 0) in dict(found.places) and ("x", 1) not in dict(found.places)


def test_an_op_that_takes_no_symbols_is_given_the_numbers() -> None:
    index = given("i", tensor((5,), "int64"), Recipe("zeros"))
    ops = [op("h", "torch.nn.functional.one_hot", R("i"), 6), *call("torch.add", R("h"), R("x"))]
    assert told(propagated(program(ops, index, x=(5, 1)))) == "x.0 | i.0 = x.0"


@pytest.mark.parametrize("stride", [(1, 8), (0, 1), (40, 2), (9, 1)])
def test_any_layout_has_sizes(stride: tuple[int, ...]) -> None:
    case = program(
        call("torch.mm", R("w"), R("x")), given("x", tensor((8, 4), stride=stride, offset=3), RANDN), w=(3, 8)
    )
    assert told(propagated(case)) == "w.0 w.1 x.1 | x.0 = w.1"


def test_in_place_writes_to_leaves_that_require_grad_are_nobodys_business() -> None:
    case = program(call(".add_", R("x"), R("z")), given("z", tensor((8,), requires_grad=True), RANDN), x=(4, 8))
    assert told(propagated(case)) == "x.0 x.1 | z.0 = x.1"


def test_values_need_not_be_recorded() -> None:
    case = build([given("x", tensor((4, 8))), given("z", tensor((8,)))], call("torch.add", R("x"), R("z")), ["y"])
    assert told(propagated(case)) == "x.0 x.1 | z.0 = x.1"


def test_what_depends_on_values_has_no_sizes() -> None:
    with pytest.raises(Exception, match=r".+"):
        propagated(program([op("s", ".sum", R("x")), *call("operator.getitem", R("x"), R("s"))], x=(4, 8)))
