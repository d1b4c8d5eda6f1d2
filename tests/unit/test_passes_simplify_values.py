"""Replacing recorded data by rules, only ever toward plainer ones."""

from __future__ import annotations

import math

import pytest

from minify.case import Case, Derived, Input, Recipe, Recorded, TensorMeta, Value, size, tensor_inputs
from minify.passes.simplify_values import EVERY, SEED, SIMPLIFY_VALUES
from tests.cases import build, given, tensor, values

INDEX = Recorded("0" * 32, low=3.0, high=9.0)


def holding(value: Value, dtype: str = "float32", shape: tuple[int, ...] = (4, 8)) -> Case:
    return build([given("x", tensor(shape, dtype), value)], [], ["x"])


def offers(case: Case) -> list[str]:
    found = []
    for target, rule in SIMPLIFY_VALUES.find(case):
        if target == SEED:
            continue
        assert target == "x"
        assert isinstance(rule, Recipe)
        found.append(f"{rule.kind}{rule.args or ''}")
    return found


SPECIAL = ["full(inf,)", "full(-inf,)", "full(nan,)", "full(-0.0,)"]
OFFERS = [
    (
        "recorded floats",
        holding(Recorded("0" * 32, low=-2.5, high=7.0)),
        ["zeros", "ones", "arange", "randn", "full(-2.5,)", "full(7.0,)", *SPECIAL],
    ),
    (
        "floats that are never negative may be a probability",
        holding(Recorded("0" * 32, low=0.0, high=1.0)),
        ["zeros", "ones", "arange", "randn", "rand", *SPECIAL],
    ),
    ("random floats", holding(Recipe("randn")), ["zeros", "ones", "arange"]),
    ("a range", holding(Recipe("arange")), ["zeros", "ones", "full(31,)"]),
    ("one number", holding(Recipe("full", (math.inf,))), ["zeros", "ones"]),
    ("recorded indices", holding(INDEX, "int64"), ["zeros", "randint(3, 10)", "full(3,)", "full(9,)"]),
    (
        "indices from zero",
        holding(Recorded("0" * 32, low=0.0, high=9.0), "int64", (5,)),
        ["zeros", "ones", "arange", "randint(0, 10)", "full(9,)"],
    ),
    ("random indices", holding(Recipe("randint", (0, 3)), "int64"), ["zeros", "ones", "full(2,)"]),
    ("integers of unknown range", holding(Derived("b", "y"), "int32"), ["zeros", "ones", "randint(0, 2)"]),
    ("a mask", holding(Recorded("0" * 32, low=0.0, high=1.0), "bool"), ["zeros", "ones", "randint(0, 2)"]),
    ("complex numbers", holding(Recorded("0" * 32), "complex64"), ["ones", "randn"]),
]


@pytest.mark.parametrize(("case", "expected"), [row[1:] for row in OFFERS], ids=[row[0] for row in OFFERS])
def test_what_is_offered_for(case: Case, expected: list[str]) -> None:
    assert offers(case) == expected
    for site in SIMPLIFY_VALUES.find(case):
        assert size(SIMPLIFY_VALUES.rewrite(case, (site,))) < size(case)


NO_OPS = [
    ("zeros", holding(Recipe("zeros"))),
    ("a zero tensor", build([given("x", tensor(storage=-2, flags=("zerotensor",)))], [], ["x"])),
    (
        "one storage read as two dtypes",
        build([given("x", tensor(storage=3)), given("y", tensor(dtype="int32", storage=3))], [], ["x"]),
    ),
]


@pytest.mark.parametrize("case", [row[1] for row in NO_OPS], ids=[row[0] for row in NO_OPS])
def test_nothing_is_plainer_than(case: Case) -> None:
    assert SIMPLIFY_VALUES.find(case) == ()


def several_inputs() -> Case:
    inputs: list[Input] = [
        given("x", tensor(storage=1)),
        given("i", tensor((4,), "int64", storage=2), INDEX),
        given("m", tensor(dtype="bool", storage=3)),
        given("z", tensor(storage=4), Recipe("zeros")),
    ]
    return build(inputs, [], ["x"])


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("zeros", {"x": "zeros", "i": "zeros", "m": "zeros", "z": "zeros"}),
        ("ones", {"x": "ones", "i": "randint(3, 10)", "m": "ones", "z": "zeros"}),
        ("arange", {"x": "arange", "i": "randint(3, 10)", "m": "randint(0, 2)", "z": "zeros"}),
        ("randn", {"x": "randn", "i": "randint(3, 10)", "m": "randint(0, 2)", "z": "zeros"}),
    ],
)
def test_every_input_changes_at_once_within_its_own_limits(level: str, expected: dict[str, str]) -> None:
    case = several_inputs()
    assert (EVERY, level) in SIMPLIFY_VALUES.find(case)[:4]
    assert values(SIMPLIFY_VALUES.rewrite(case, ((EVERY, level),))) == expected


def test_a_level_that_changes_nothing_is_no_site() -> None:
    case = build([given("x", value=Recipe("randn")), given("y", value=Recipe("arange"))], [], ["x"])
    assert [site for site in SIMPLIFY_VALUES.find(case) if site[0] == EVERY] == [(EVERY, "zeros"), (EVERY, "ones")]


def test_inputs_in_one_storage_change_together() -> None:
    meta: TensorMeta = tensor(storage=3)
    case = build([given("x", meta), given("y", meta), given("z")], [], ["x"])
    assert {site[0] for site in SIMPLIFY_VALUES.find(case)} == {EVERY, "x", "z", SEED}
    assert values(SIMPLIFY_VALUES.rewrite(case, (("x", Recipe("ones")),))) == {
        "x": "ones",
        "y": "ones",
        "z": "recorded",
    }


def test_random_numbers_of_other_seeds_are_the_last_resort() -> None:
    case = holding(Recorded("0" * 32, low=-1.0, high=1.0))
    *_, one, two, three = SIMPLIFY_VALUES.find(case)
    assert (one, two, three) == (("seed", 1), ("seed", 2), ("seed", 3))
    changed = SIMPLIFY_VALUES.rewrite(case, (two,))
    assert (changed.settings.seed, tensor_inputs(changed)[0].value) == (2, Recipe("randn"))
    assert size(changed) < size(case)
    assert not any(site[0] == "seed" for site in SIMPLIFY_VALUES.find(changed))
