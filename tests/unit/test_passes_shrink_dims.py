"""Shrinking what is one size, with what follows from it, and the layout that must not be lost. Where nobody knows how sizes hang
together, all dims of one size are taken to be one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction

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
    digest,
    element_count,
    tensor_inputs,
)
from minify.errors import InvalidCandidate
from minify.passes.contract import Site
from minify.passes.layout import extent, resized
from minify.passes.resize import shrink
from minify.passes.shrink_dims import SHRINK_DIMS, between, sizes_below
from minify.passes.size_classes import Key, Scope, Shrink, SizeClass, size_classes
from minify.sizes import Place, Sizes, Sum, add, atom, multiply, number
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


def edits(case: Case) -> list[Shrink]:
    return [site[0] for site in SHRINK_DIMS.find(case)]  # type: ignore[misc]


def edit(case: Case, old: Key, new: int, scope: Scope, last: bool = False) -> Case:
    site = (Shrink(((old, new),), scope, last),)
    assert site in SHRINK_DIMS.find(case)
    smaller = SHRINK_DIMS.rewrite(case, (site,))
    assert element_count(smaller) < element_count(case)
    return smaller


def test_a_class_shrinks_in_every_input_and_no_literal_changes() -> None:
    smaller = edit(MATMUL, 8, 2, "alone")
    assert shapes(smaller) == {"x": (4, 2), "w": (2, 3)}
    assert smaller.graph == MATMUL.graph


def test_equal_literals_follow() -> None:
    smaller = edit(MATMUL, 4, 2, "numbers")
    assert show(smaller).endswith(".view(a, (2, 6)); z = .reshape(x, ListArg(items=(2, 32))) | v z")


def test_multiples_follow_in_literals_and_dims() -> None:
    smaller = edit(MATMUL, 4, 2, "multiples")
    assert shapes(smaller) == {"x": (2, 4), "w": (4, 3)}
    assert smaller.graph.ops[2].args == (R("x"), ListArg((2, 16)))


def test_every_class_at_once_comes_first() -> None:
    first, second, third, fourth = SHRINK_DIMS.find(MATMUL)[:4]
    assert first == (Shrink(((8, 1), (4, 1), (3, 1)), "numbers"),)
    assert second == (Shrink(((8, 1), (4, 1), (3, 1)), "alone"),)
    assert third == (Shrink(((8, 2), (4, 2), (3, 2)), "numbers"),)
    assert fourth == (Shrink(((8, 2), (4, 2), (3, 2)), "alone"),)
    assert shapes(SHRINK_DIMS.rewrite(MATMUL, (second,))) == {"x": (1, 1), "w": (1, 1)}


def test_at_once_a_dynamic_dim_becomes_no_less_than_2() -> None:
    case = build([given("x", tensor((4, 8)), dynamic=(0,))], [], ["x"])
    assert edits(case)[0].sizes == ((8, 1), (4, 2))


def test_each_class_is_made_1_and_then_2_before_larger_sizes_are_asked() -> None:
    case = build([given("x", tensor((64, 5)), Recipe("randn"))], [], ["x"])
    alone = [one.sizes[0] for one in edits(case) if len(one.sizes) == 1]
    assert alone == [(64, 1), (5, 1), (64, 2), (5, 2), (64, 8), (64, 32), (64, 63), (5, 4)]


@pytest.mark.parametrize(
    ("old", "least", "expected"),
    [
        (2, 1, (1,)),
        (3, 1, (1, 2)),
        (8, 1, (1, 2, 4, 7)),
        (17, 2, (2, 8, 16)),
        (64, 1, (1, 2, 8, 32, 63)),
        (100, 1, (1, 2, 8, 32, 50, 99)),
    ],
)
def test_sizes_to_try_below(old: int, least: int, expected: tuple[int, ...]) -> None:
    assert sizes_below(SizeClass((old,), old, least, ())) == expected


def threshold(turned_down: Sequence[int], accepted: int, *, enough: int) -> tuple[int, list[int]]:
    """Where bisecting ends up, and what it asks, if any size from `enough` up fails."""

    def site(size: int) -> Site:
        return (Shrink(((100, size),), "alone"),)

    failed, asked = [site(size) for size in turned_down], []
    while (middle := between(failed, site(accepted))) is not None:
        (size,) = (new for _, new in middle[0].sizes)  # type: ignore[attr-defined]
        asked.append(size)
        if size >= enough:
            accepted = size
        else:
            failed.append(site(size))
    return accepted, asked


@pytest.mark.parametrize(
    ("turned_down", "accepted", "enough", "asked"),
    [
        ((1, 2), 3, 3, []),
        ((), 2, 1, []),
        ((1, 2), 7, 5, [4, 5]),
        ((1, 2, 8), 20, 9, [17, 16, 9]),
        ((1, 2, 8), 20, 13, [17, 16, 9, 12, 14, 13]),
        ((1, 2, 8), 32, 17, [17, 16]),
        ((32, 1, 8, 2), 50, 33, [33]),
        ((32, 1, 8, 2), 50, 40, [33, 41, 37, 39, 40]),
        ((1, 2, 8, 32, 500), 999, 700, [749, 624, 686, 717, 701, 693, 697, 699, 700]),
    ],
)
def test_between_two_sizes_the_least_that_is_enough_is_found(
    turned_down: tuple[int, ...], accepted: int, enough: int, asked: list[int]
) -> None:
    assert threshold(turned_down, accepted, enough=enough) == (accepted if not asked else enough, asked)


def test_what_was_turned_down_of_another_kind_says_nothing() -> None:
    accepted = (Shrink(((100, 7),), "alone"),)
    others = [
        (Shrink(((100, 6),), "numbers"),),
        (Shrink(((100, 6),), "alone", last=True),),
        (Shrink(((64, 6),), "alone"),),
        (Shrink(((100, 6), (64, 6)), "alone"),),
    ]
    assert between(others, accepted) == (Shrink(((100, 4),), "alone"),)
    assert between([*others, (Shrink(((100, 6),), "alone"),)], accepted) is None


def test_nothing_lies_between_two_edits_of_several_sizes() -> None:
    case = build([given("x", tensor((4, 8)), dynamic=(0,))], [], ["x"])
    assert between((), (edits(case)[0],)) is None


NO_OPS = [
    ("dims of size 1 or 0", build([given("x", tensor((1, 0)))], [], ["x"])),
    ("a number", build([given("x", tensor(()))], [], ["x"])),
    ("a value that is not recorded yet", build([given("x", value=Derived("b", "y"))], [], ["x"])),
    ("inputs in one storage", build([given("x", tensor(storage=3)), given("y", tensor(storage=3))], [], ["x"])),
    ("a dynamic dim of 2", build([given("x", tensor((2,)), dynamic=(0,))], [], ["x"])),
    ("two dynamic dims of 2", build([given("x", tensor((2, 2)), dynamic=(0, 1))], [], ["x"])),
]


@pytest.mark.parametrize("case", [row[1] for row in NO_OPS], ids=[row[0] for row in NO_OPS])
def test_nothing_shrinks_in(case: Case) -> None:
    assert SHRINK_DIMS.find(case) == ()


def test_a_class_that_touches_shared_memory_is_left_alone() -> None:
    case = build([given("x", tensor(storage=3)), given("y", tensor(storage=3)), given("z", tensor((8, 5)))], [], ["x"])
    assert {one.sizes[0][0] for one in edits(case)} == {5}


def test_a_symbolic_number_follows_the_dim_it_equals() -> None:
    case = build([ScalarInput("n", 4), given("x", tensor((4, 8)))], [op("a", ".view", R("x"), R("n"), -1)], ["a"])
    assert edit(case, 4, 2, "numbers").inputs[0] == ScalarInput("n", 2)


def test_random_indices_follow_the_dim_they_index() -> None:
    case = build(
        [given("w", tensor((64, 4))), given("i", tensor((5,), "int64"), Recipe("randint", (0, 64)))],
        [op("e", "torch.nn.functional.embedding", R("i"), R("w"))],
        ["e"],
    )
    smaller = edit(case, 64, 2, "numbers")
    assert [item.value for item in tensor_inputs(smaller)][1] == Recipe("randint", (0, 2))


def recorded_window(case: Case) -> Window | None:
    (item,) = tensor_inputs(case)
    assert isinstance(item.value, Recorded)
    return item.value.window


def test_recorded_data_keeps_its_first_or_its_last_part() -> None:
    case = build([given("x", tensor((4, 8)))], [], ["x"])
    assert recorded_window(edit(case, 8, 4, "alone")) == Window((4, 4), (8, 1), 0)
    assert recorded_window(edit(case, 8, 4, "alone", last=True)) == Window((4, 4), (8, 1), 4)
    halves = edit(edit(case, 4, 2, "alone", last=True), 8, 7, "alone", last=True)
    assert recorded_window(halves) == Window((2, 7), (8, 1), 17)


def test_the_end_of_the_data_is_offered_from_half_the_size_up() -> None:
    case = build([given("x", tensor((16,)))], [], ["x"])
    ends = [one for one in edits(case) if one.last]
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
    (item,) = tensor_inputs(edit(build([given("x")], [], ["x"]), 8, 1, "alone"))
    assert isinstance(item, Input)
    assert isinstance(item.value, Recorded)
    assert (item.value.low, item.value.high) == (-2.0, 2.0)


def test_dims_that_are_equal_by_accident_shrink_alone_at_last() -> None:
    case = build([given("x", tensor((17, 17)), Recipe("randn")), given("y", tensor((17,)), Recipe("randn"))], [], ["x"])
    singles = [one for one in edits(case) if isinstance(one.sizes[0][0], tuple)]
    assert edits(case)[-len(singles) :] == singles
    found = [tuple(item.meta.shape for item in tensor_inputs(shrink(case, one))) for one in singles]
    for size in (1, 8, 16):
        for alone in (((size, 17), (17,)), ((17, size), (17,)), ((17, 17), (size,))):
            assert alone in found


def test_a_dim_that_is_the_only_one_of_its_size_has_no_site_of_its_own() -> None:
    case = build([given("x", tensor((17, 3)), Recipe("randn"))], [], ["x"])
    assert not any(isinstance(one.sizes[0][0], tuple) for one in edits(case))


# --- where it is known how sizes hang together ---------------------------------------------------------------------------


def sized(case: Case, free: dict[str, int], places: dict[Place, Sum], *beside: tuple[str, Place]) -> Case:
    return dataclasses.replace(case, sizes=Sizes(tuple(free.items()), tuple(places.items()), beside, digest(case)))


HEADS = build(
    [given("x", tensor((4, 6)), Recipe("randn")), given("w", tensor((6, 4)), Recipe("randn"))],
    [op("a", "torch.mm", R("x"), R("w")), op("v", ".view", R("x"), 4, 2, 3), op("n", ".narrow", R("w"), 1, 0, 4)],
    ["a", "v", "n"],
)
TOGETHER = multiply(atom("v.2"), atom("v.3"))
KNOWN = sized(
    HEADS,
    {"x.0": 4, "w.1": 4, "v.2": 2, "v.3": 3, "n.3": 4},
    {
        ("x", 0): atom("x.0"),
        ("x", 1): TOGETHER,
        ("w", 0): TOGETHER,
        ("w", 1): atom("w.1"),
        ("v", 1): atom("x.0"),
        ("v", 2): atom("v.2"),
        ("v", 3): atom("v.3"),
    },
    ("w.1", ("n", 3)),
)
REWRITES: list[tuple[str, Key, int, Scope, str]] = [
    ("a dim and the number that is it", "x.0", 2, "alone", "(2, 6) (6, 4) v(2, 2, 3) n(4)"),
    ("a factor of dims", "v.3", 1, "alone", "(4, 2) (2, 4) v(4, 2, 1) n(4)"),
    ("a dim equal by accident stays", "w.1", 2, "alone", "(4, 6) (6, 2) v(4, 2, 3) n(4)"),
    ("a number held against it follows", "w.1", 2, "numbers", "(4, 6) (6, 2) v(4, 2, 3) n(2)"),
]


@pytest.mark.parametrize(
    ("key", "new", "scope", "text"), [row[1:] for row in REWRITES], ids=[row[0] for row in REWRITES]
)
def test_what_follows_from_a_free_size_changes_with_it(key: Key, new: int, scope: Scope, text: str) -> None:
    smaller = edit(KNOWN, key, new, scope)
    view, narrow = smaller.graph.ops[1].args[1:], smaller.graph.ops[2].args[3]
    assert f"{shapes(smaller)['x']} {shapes(smaller)['w']} v{view} n({narrow})" == text


def test_a_number_held_against_a_dim_changes_in_proportion() -> None:
    case = build([given("x", tensor((4, 9)), Recipe("randn"))], [op("k", "torch.topk", R("x"), 3)], ["k"])
    case = sized(case, {"x.1": 9, "k.1": 3}, {("x", 1): atom("x.1")}, ("x.1", ("k", 1)))
    assert [shrink(case, Shrink((("x.1", new),), "numbers")).graph.ops[0].args[1] for new in (8, 4, 1)] == [2, 1, 1]


@pytest.mark.parametrize(("size", "scopes"), [(2, ("alone",)), (3, ("numbers", "alone"))])
def test_a_2_in_a_call_is_taken_for_no_size(size: int, scopes: tuple[Scope, ...]) -> None:
    case = build([given("x", tensor((size,)), Recipe("randn"))], [op("y", "torch.mul", R("x"), size)], ["y"])
    case = sized(case, {"x.0": size, "y.1": size}, {("x", 0): atom("x.0")})
    assert [one.scopes for one in size_classes(case)] == [scopes]


def test_the_smaller_case_knows_its_sizes_as_well() -> None:
    smaller = edit(KNOWN, "v.3", 1, "alone")
    assert smaller.sizes is not None and smaller.sizes.of == digest(smaller)
    assert dict(smaller.sizes.free)["v.3"] == 1
    assert shapes(edit(smaller, "v.2", 1, "alone")) == {"x": (4, 1), "w": (1, 4)}


def test_sizes_of_another_case_are_not_believed() -> None:
    other = dataclasses.replace(KNOWN, settings=dataclasses.replace(KNOWN.settings, seed=3))
    assert {key for one in size_classes(other) for key in one.keys} == {4, 6}
    assert {key for one in size_classes(KNOWN) for key in one.keys} == {"x.0", "w.1", "v.2", "v.3"}


def test_a_dim_that_no_free_size_has_a_part_in_shrinks_with_its_equals() -> None:
    case = sized(HEADS, {"x.0": 4, "w.1": 4}, {("x", 0): atom("x.0"), ("w", 1): atom("w.1")})
    assert [one.keys for one in size_classes(case)] == [(6,), ("x.0",), ("w.1",)]
    assert shapes(edit(case, 6, 2, "alone")) == {"x": (4, 2), "w": (2, 4)}


def test_free_sizes_that_are_equal_shrink_together_at_last() -> None:
    """A shape rule may leave out what the kernel asks for."""
    groups = [one.sizes for one in edits(KNOWN) if {key for key, _ in one.sizes} == {"x.0", "w.1"}]
    assert list(dict.fromkeys(groups)) == [tuple((key, new) for key in ("x.0", "w.1")) for new in (1, 2, 3)]
    assert not any(isinstance(key, tuple) for one in edits(KNOWN) for key, _ in one.sizes)


@pytest.mark.parametrize("new", [1, 3])
def test_a_size_of_which_something_else_would_be_no_size_makes_no_case(new: int) -> None:
    half = multiply(atom("x.0"), number(Fraction(1, 2)))
    case = sized(HEADS, {"x.0": 4}, {("x", 0): atom("x.0"), ("v", 1): half})
    with pytest.raises(InvalidCandidate):
        shrink(case, Shrink((("x.0", new),), "alone"))
    assert shrink(case, Shrink((("x.0", 2),), "alone")).graph.ops[1].args[1] == 1


def test_a_dim_that_would_vanish_makes_no_case() -> None:
    case = sized(HEADS, {"w.1": 4}, {("w", 1): atom("w.1"), ("x", 0): add(atom("w.1"), number(-1))})
    with pytest.raises(InvalidCandidate):
        shrink(case, Shrink((("w.1", 1),), "alone"))


def test_a_free_size_of_an_input_in_shared_memory_is_left_alone() -> None:
    case = build([given("x", tensor(storage=3)), given("y", tensor(storage=3)), given("z", tensor((8, 5)))], [], ["x"])
    case = sized(case, {"x.1": 8, "z.1": 5}, {("x", 1): atom("x.1"), ("z", 0): atom("x.1"), ("z", 1): atom("z.1")})
    assert [one.keys for one in size_classes(case)] == [("z.1",)]


def test_a_free_size_of_a_dynamic_dim_becomes_no_less_than_2() -> None:
    case = build([given("x", tensor((4, 6)), Recipe("randn"), dynamic=(0, 1))], [], ["x"])
    case = sized(case, {"x.0": 4, "v.2": 2, "v.3": 3}, {("x", 0): atom("x.0"), ("x", 1): TOGETHER})
    assert [(one.keys, one.least) for one in size_classes(case)] == [(("x.0",), 2), (("v.3",), 1), (("v.2",), 1)]
    assert shapes(shrink(case, Shrink((("v.3", 1),), "alone"))) == {"x": (4, 2)}
    with pytest.raises(InvalidCandidate):
        shrink(case, Shrink((("v.2", 1), ("v.3", 1)), "alone"))
