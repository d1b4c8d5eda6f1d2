"""Merging inputs that are alike: fewer tensors, read in more places."""

from __future__ import annotations

import dataclasses

import pytest

from minify.case import Case, Derived, Input, Recipe, Ref, ScalarInput, size
from minify.passes.contract import Site
from minify.passes.merge_inputs import MERGE_INPUTS
from minify.passes.pieces import pieces
from minify.passes.wellformed import faults
from tests.cases import build, given, op, show, tensor, values

R = Ref
ZEROS, RANDN = Recipe("zeros"), Recipe("randn")


def reading(*inputs: Input | ScalarInput | str) -> Case:
    names = [item if isinstance(item, str) else item.name for item in inputs]
    return build(inputs, [op("a", "torch.cat", tuple(R(name) for name in names))], ["a"])


TWO, THREE, FIVE = reading("x", "y"), reading("x", "y", "z"), reading(*"vwxyz")
CLASSES = reading("x", given("m", tensor((2, 2))), "y", given("n", tensor((2, 2))))
RETURNED = build(["x", "y"], [op("a", "torch.add", R("x"), R("y"))], ["x", "a", "y"])

REWRITES: list[tuple[str, Case, tuple[Site, ...], str]] = [
    ("two inputs", TWO, (("x", "y"),), "x | a = torch.cat((x, x)) | a"),
    ("one of three", THREE, (("x", "z"),), "x y | a = torch.cat((x, y, x)) | a"),
    ("a pair without the first", THREE, (("y", "z"),), "x y | a = torch.cat((x, y, y)) | a"),
    ("all of three", THREE, (("x", "y"), ("x", "z"), ("y", "z")), "x | a = torch.cat((x, x, x)) | a"),
    ("two pairs that overlap", THREE, (("x", "y"), ("y", "z")), "x | a = torch.cat((x, x, x)) | a"),
    ("all of five", FIVE, MERGE_INPUTS.find(FIVE), "v | a = torch.cat((v, v, v, v, v)) | a"),
    ("two classes", CLASSES, MERGE_INPUTS.find(CLASSES), "x m | a = torch.cat((x, m, x, m)) | a"),
    ("two outputs that become one", RETURNED, (("x", "y"),), "x | a = torch.add(x, x) | x a"),
]


@pytest.mark.parametrize(("case", "sites", "expected"), [row[1:] for row in REWRITES], ids=[row[0] for row in REWRITES])
def test_merging_gives(case: Case, sites: tuple[Site, ...], expected: str) -> None:
    assert set(sites) <= set(MERGE_INPUTS.find(case))
    smaller = MERGE_INPUTS.rewrite(case, sites)
    assert show(smaller) == expected
    assert faults(smaller) == ()
    assert size(smaller) < size(case)


def written_through(*inputs: Input) -> Case:
    case = reading(*inputs)
    write = op("w", ".add_", R(inputs[0].name), 1, meta=inputs[0].meta)
    graph = dataclasses.replace(case.graph, ops=(write, *case.graph.ops))
    return dataclasses.replace(case, program=dataclasses.replace(case.program, graph=graph))


NO_OPS = [
    ("one input", reading("x")),
    ("another shape", reading("x", given("y", tensor((8, 4))))),
    ("another dtype", reading("x", given("y", tensor(dtype="float16")))),
    ("other strides", reading("x", given("y", tensor(stride=(1, 4))))),
    ("an offset", reading("x", given("y", tensor(offset=1)))),
    ("another device", reading("x", given("y", dataclasses.replace(tensor(), device="cuda:0")))),
    ("a gradient", reading("x", given("y", tensor(requires_grad=True)))),
    ("a lazy tensor", reading("x", given("y", tensor(flags=("neg",))))),
    ("a dynamic dim", reading("x", given("y", dynamic=(0,)))),
    ("one memory", reading(given("x", tensor(storage=3)), given("y", tensor(storage=3)))),
    ("an input that is written to", written_through(given("x", tensor(storage=3)), given("y", tensor(storage=4)))),
    ("values that are not recorded yet", reading("x", given("y", value=Derived("b", "y")))),
    ("numbers", reading(ScalarInput("m", 2, dynamic=True), ScalarInput("n", 2, dynamic=True))),
]


@pytest.mark.parametrize("case", [row[1] for row in NO_OPS], ids=[row[0] for row in NO_OPS])
def test_inputs_stay_apart_where_it_is(case: Case) -> None:
    assert MERGE_INPUTS.find(case) == ()


def test_how_much_memory_lies_behind_an_input_makes_no_difference() -> None:
    roomy = dataclasses.replace(tensor(), storage_size=100)
    assert MERGE_INPUTS.find(reading("x", given("y", roomy))) == (("x", "y"),)


def test_the_least_plain_values_stay() -> None:
    case = reading(given("x", value=ZEROS), given("y", value=RANDN), given("z", value=ZEROS))
    assert MERGE_INPUTS.find(case) == (("y", "x"), ("y", "z"), ("x", "z"))
    merged = MERGE_INPUTS.rewrite(case, MERGE_INPUTS.find(case))
    assert values(merged) == {"y": "randn"}


def test_many_inputs_alike_have_few_sites() -> None:
    names = [f"x{number}" for number in range(90)]
    sites = MERGE_INPUTS.find(reading(*names))
    assert len(sites) == 4
    assert sorted(str(name) for _, *merged in sites for name in merged) == sorted(names[1:])


@pytest.mark.parametrize(
    ("count", "most", "lengths"), [(0, 4, []), (3, 4, [1, 1, 1]), (4, 4, [1] * 4), (9, 4, [2, 2, 2, 3]), (5, 1, [5])]
)
def test_pieces_cover_all_items_in_order(count: int, most: int, lengths: list[int]) -> None:
    found = pieces(range(count), most)
    assert [item for piece in found for item in piece] == list(range(count))
    assert [len(piece) for piece in found] == lengths
