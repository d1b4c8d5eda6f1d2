"""Shrinking dims by classes of equal size, with the literals that follow and the layout that must not be lost."""

from __future__ import annotations

import pytest

from minify.case import (
    Case,
    Derived,
    Input,
    ListArg,
    Recipe,
    Recorded,
    Ref,
    ScalarInput,
    TensorMeta,
    Window,
    contiguous_stride,
    element_count,
    tensor_inputs,
)
from minify.passes.layout import extent, resized
from minify.passes.shrink_dims import SHRINK_DIMS, Scope, Shrink, smaller_sizes
from tests.cases import build, given, op, show, tensor

R = Ref
MATMUL = build(
    [given("x", tensor((4, 8)), Recipe("randn")), given("w", tensor((8, 3)), Recipe("randn"))],
    [
        op("a", "torch.mm", R("x"), R("w")),
        op("v", ".view", R("a"), (2, 6)),
        op("z", ".reshape", R("x"), ListArg((4, 32))),
    ],
    ["v", "z"],
)


def shapes(case: Case) -> dict[str, tuple[int, ...]]:
    return {item.name: item.meta.shape for item in tensor_inputs(case)}


def edit(case: Case, old: int, new: int, scope: Scope, last: bool = False) -> Case:
    site = (Shrink(((old, new),), scope, last),)
    assert site in SHRINK_DIMS.find(case)
    smaller = SHRINK_DIMS.rewrite(case, (site,))
    assert element_count(smaller) < element_count(case)
    return smaller


def test_a_class_shrinks_in_every_input_and_no_literal_changes() -> None:
    smaller = edit(MATMUL, 8, 2, "dims alone")
    assert shapes(smaller) == {"x": (4, 2), "w": (2, 3)}
    assert smaller.graph == MATMUL.graph


def test_equal_literals_follow() -> None:
    smaller = edit(MATMUL, 4, 2, "equal literals")
    assert show(smaller).endswith(".view(a, (2, 6)); z = .reshape(x, ListArg(items=(2, 32))) | v z")


def test_multiples_follow_in_literals_and_dims() -> None:
    smaller = edit(MATMUL, 4, 2, "multiples")
    assert shapes(smaller) == {"x": (2, 4), "w": (4, 3)}
    assert smaller.graph.ops[2].args == (R("x"), ListArg((2, 16)))


def test_every_class_at_once_comes_first() -> None:
    first, second = SHRINK_DIMS.find(MATMUL)[:2]
    assert first == (Shrink(((8, 2), (4, 2), (3, 2)), "equal literals"),)
    assert second == (Shrink(((8, 2), (4, 2), (3, 2)), "dims alone"),)
    assert shapes(SHRINK_DIMS.rewrite(MATMUL, (second,))) == {"x": (2, 2), "w": (2, 2)}


@pytest.mark.parametrize(
    ("old", "least", "expected"),
    [
        (2, 1, (1,)),
        (3, 1, (1, 2)),
        (8, 1, (1, 2, 4, 7)),
        (17, 2, (2, 4, 8, 16)),
        (64, 1, (1, 2, 8, 16, 17, 32, 33, 63)),
        (100, 1, (1, 2, 8, 16, 17, 32, 50, 99)),
    ],
)
def test_sizes_to_try_below(old: int, least: int, expected: tuple[int, ...]) -> None:
    assert smaller_sizes(old, least) == expected


NO_OPS = [
    ("dims of size 1 or 0", build([given("x", tensor((1, 0)))], [], ["x"])),
    ("a number", build([given("x", tensor(()))], [], ["x"])),
    ("a value that is not recorded yet", build([given("x", value=Derived("b", "y"))], [], ["x"])),
    ("inputs in one storage", build([given("x", tensor(storage=3)), given("y", tensor(storage=3))], [], ["x"])),
    ("a dynamic dim of 2", build([given("x", tensor((2,)), dynamic=(0,))], [], ["x"])),
]


@pytest.mark.parametrize("case", [row[1] for row in NO_OPS], ids=[row[0] for row in NO_OPS])
def test_nothing_shrinks_in(case: Case) -> None:
    assert SHRINK_DIMS.find(case) == ()


def test_a_class_that_touches_shared_memory_is_left_alone() -> None:
    case = build([given("x", tensor(storage=3)), given("y", tensor(storage=3)), given("z", tensor((8, 5)))], [], ["x"])
    assert {site[0].sizes[0][0] for site in SHRINK_DIMS.find(case) if isinstance(site[0], Shrink)} == {5}


def test_a_symbolic_number_follows_the_dim_it_equals() -> None:
    case = build([ScalarInput("n", 4), given("x", tensor((4, 8)))], [op("a", ".view", R("x"), R("n"), -1)], ["a"])
    assert edit(case, 4, 2, "equal literals").inputs[0] == ScalarInput("n", 2)


def test_random_indices_follow_the_dim_they_index() -> None:
    case = build(
        [given("w", tensor((64, 4))), given("i", tensor((5,), "int64"), Recipe("randint", (0, 64)))],
        [op("e", "torch.nn.functional.embedding", R("i"), R("w"))],
        ["e"],
    )
    smaller = edit(case, 64, 2, "equal literals")
    assert [item.value for item in tensor_inputs(smaller)][1] == Recipe("randint", (0, 2))


def recorded_window(case: Case) -> Window | None:
    (item,) = tensor_inputs(case)
    assert isinstance(item.value, Recorded)
    return item.value.window


def test_recorded_data_keeps_its_first_or_its_last_part() -> None:
    case = build([given("x", tensor((4, 8)))], [], ["x"])
    assert recorded_window(edit(case, 8, 4, "dims alone")) == Window((4, 4), (8, 1), 0)
    assert recorded_window(edit(case, 8, 4, "dims alone", last=True)) == Window((4, 4), (8, 1), 4)
    halves = edit(edit(case, 4, 2, "dims alone", last=True), 8, 7, "dims alone", last=True)
    assert recorded_window(halves) == Window((2, 7), (8, 1), 17)


def test_the_end_of_the_data_is_offered_from_half_the_size_up() -> None:
    case = build([given("x", tensor((16,)))], [], ["x"])
    ends = [site[0] for site in SHRINK_DIMS.find(case) if isinstance(site[0], Shrink) and site[0].last]
    assert [end.sizes for end in ends] == [((16, 8),), ((16, 15),)]


LAYOUTS: list[tuple[str, TensorMeta, tuple[int, ...], tuple[int, ...]]] = [
    ("contiguous", tensor((4, 8)), (2, 3), (3, 1)),
    ("transposed", tensor((8, 4), stride=(1, 8)), (3, 2), (1, 3)),
    ("channels last", tensor((2, 3, 4, 5), stride=(60, 1, 15, 3)), (1, 2, 2, 2), (8, 1, 4, 2)),
    ("expanded", tensor((4, 8), stride=(0, 1)), (2, 3), (0, 1)),
    ("padded rows", tensor((4, 3), stride=(6, 1)), (2, 2), (4, 1)),
    ("a gap that would close", tensor((4, 8), stride=(9, 1)), (2, 1), (2, 1)),
    ("every other element", tensor((4, 4), stride=(8, 2)), (2, 2), (4, 2)),
    ("overlapping windows", tensor((6, 3), stride=(1, 1)), (2, 2), (1, 1)),
    ("a dim of 1 laid outside", tensor((4, 1), stride=(1, 4)), (2, 1), (1, 2)),
    ("a dim of 1 laid inside", tensor((4, 1), stride=(1, 1)), (2, 1), (1, 1)),
    ("an empty tensor", tensor((4, 0), stride=(1, 1)), (2, 0), (1, 1)),
]


@pytest.mark.parametrize(("meta", "shape", "stride"), [row[1:] for row in LAYOUTS], ids=[row[0] for row in LAYOUTS])
def test_a_layout_stays_what_it_is(meta: TensorMeta, shape: tuple[int, ...], stride: tuple[int, ...]) -> None:
    smaller = resized(meta, shape)
    assert smaller.stride == stride
    assert smaller.storage_size == extent(smaller)


@pytest.mark.parametrize("meta", [row[1] for row in LAYOUTS], ids=[row[0] for row in LAYOUTS])
def test_a_layout_of_the_same_size_is_the_same(meta: TensorMeta) -> None:
    assert resized(meta, meta.shape) == meta


def test_an_offset_stays_and_memory_behind_the_last_element_shrinks() -> None:
    meta = TensorMeta((4, 8), (8, 1), 3, "float32", "cpu", False, 0, 67)
    smaller = resized(meta, (2, 8))
    assert (smaller.offset, smaller.stride, smaller.storage_size) == (3, contiguous_stride((2, 8)), 19 + 16)


def test_the_range_of_recorded_data_stays_known() -> None:
    (item,) = tensor_inputs(edit(build([given("x")], [], ["x"]), 8, 1, "dims alone"))
    assert isinstance(item, Input)
    assert isinstance(item.value, Recorded)
    assert (item.value.low, item.value.high) == (-2.0, 2.0)


def test_dims_that_are_equal_by_accident_shrink_alone_at_last() -> None:
    case = build([given("x", tensor((17, 17)), Recipe("randn")), given("y", tensor((17,)), Recipe("randn"))], [], ["x"])
    singles = [site for site in SHRINK_DIMS.find(case) if site[0].only]  # type: ignore[attr-defined]
    assert SHRINK_DIMS.find(case)[-len(singles) :] == tuple(singles)
    shapes = [tuple(item.meta.shape for item in tensor_inputs(SHRINK_DIMS.rewrite(case, (site,)))) for site in singles]
    for size in (1, 2, 8):
        for alone in (((size, 17), (17,)), ((17, size), (17,)), ((17, 17), (size,))):
            assert alone in shapes


def test_a_dim_that_is_the_only_one_of_its_size_has_no_site_of_its_own() -> None:
    case = build([given("x", tensor((17, 3)), Recipe("randn"))], [], ["x"])
    assert not any(site[0].only for site in SHRINK_DIMS.find(case))  # type: ignore[attr-defined]
