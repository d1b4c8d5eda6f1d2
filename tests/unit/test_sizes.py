"""The arithmetic of sizes: what equations between names leave free, and what all others become when a free one changes."""

from __future__ import annotations

from fractions import Fraction

import pytest

from minify.sizes import (
    Atom,
    Quotient,
    Sizes,
    Sum,
    add,
    atom,
    multiply,
    names,
    number,
    power,
    solve,
    substituted,
    value,
)

ORDER = ("x0", "x1", "x2", "w0", "n0", "n1")
NUMBERS = frozenset(("n0", "n1"))
VALUES = {"x0": 4, "x1": 6, "x2": 3, "w0": 12, "n0": 8, "n1": 2}


def total(*terms: tuple[int, str]) -> Sum:
    """`(2, "x0 x1")` is 2 * x0 * x1."""
    return add(*(multiply(number(factor), *map(atom, part.split())) for factor, part in terms))


def shown(of: Sum) -> str:
    def factor(base: Atom, exponent: int) -> str:
        text = base if isinstance(base, str) else f"[{shown(base.dividend)} // {shown(base.divisor)}]"
        return text if exponent == 1 else f"{text}^{exponent}"

    terms = ("*".join(([] if n == 1 and f else [str(n)]) + [factor(*one) for one in f]) for f, n in of)
    return " + ".join(sorted(terms)) or "0"


FLOOR = atom(Quotient(total((1, "x1"), (-1, "x2")), number(2)))
SOLUTIONS = [
    ("nothing known", [], {}),
    ("equal dims: the later follows", [total((1, "x1"), (-1, "w0"))], {"w0": "x1"}),
    ("a number follows the dim it equals", [total((1, "n0"), (-1, "x1"))], {"n0": "x1"}),
    ("in a chain all follow one", [total((1, "x0"), (-1, "x1")), total((1, "x1"), (-1, "n0"))], {"x1": "x0", "n0": "x0"}),
    ("a product of dims", [total((1, "n0"), (-1, "x0 x1"))], {"n0": "x0*x1"}),
    ("a dim that numbers take apart", [total((1, "x1"), (-1, "n0 n1"))], {"x1": "n0*n1"}),
    ("what both sides have goes", [total((1, "x0 x1"), (-1, "x0 n0"))], {"n0": "x1"}),
    (
        "a sum, rather than what is left of it",
        [total((1, "x0"), (1, "x1"), (-1, "w0"))],
        {"w0": "x0 + x1"},
    ),
    ("two numbers, one of them free", [total((1, "x0 x1"), (-1, "n0 n1"))], {"n1": "n0^-1*x0*x1"}),
    (
        "one of several that the rest decides",
        [total((1, "x0 x1 x2"), (-1, "n0 n1")), total((1, "n1"), (-1, "x2"))],
        {"n1": "x2", "n0": "x0*x1"},
    ),
    ("a number that is one", [add(total((1, "n0")), number(-8))], {"n0": "8"}),
    ("a multiple rather than a fraction", [total((2, "n0"), (-1, "x0"))], {"x0": "2*n0"}),
    ("a fraction where there must be one", [total((2, "x0"), (-3, "x1"))], {"x1": "2/3*x0"}),
    ("what a window leaves", [add(atom("w0"), multiply(number(-1), FLOOR))], {"w0": "[-1*x2 + x1 // 2]"}),
    (
        "a plain product rather than a division rounded down",
        [
            add(atom("n1"), multiply(number(-1), atom(Quotient(total((1, "x0 x1")), atom("n0"))))),
            total((1, "x0 x1"), (-1, "n0 n1")),
        ],
        {"n1": "n0^-1*x0*x1"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("equations", "expected"), [row[1:] for row in SOLUTIONS], ids=[row[0] for row in SOLUTIONS])
def test_what_equations_leave_of_names(equations: list[Sum], expected: dict[str, str]) -> None:
    known, _ = solve(equations, ORDER, NUMBERS)
    assert {name: shown(of) for name, of in known.items()} == expected
    assert not any(names(of) & known.keys() for of in known.values())


def test_an_equation_that_says_nothing_of_a_single_name_is_left() -> None:
    rounded = add(atom(Quotient(atom("x0"), atom("n0"))), number(-2))
    known, left = solve([rounded, total((1, "x0"), (-1, "x1"))], ORDER, NUMBERS)
    assert (set(known), left) == ({"x1"}, (rounded,))


def test_a_division_by_a_sum_is_not_undertaken() -> None:
    """`n0 * x0 = x1`, where `x0` turns out to be a sum."""
    first, second = total((1, "n0 x0"), (-1, "x1")), total((1, "x2"), (1, "w0"), (-1, "x0"))
    known, _ = solve([first, second], ORDER, NUMBERS)
    assert shown(known["x0"]) == "w0 + x2"
    with pytest.raises(ValueError):
        power(known["x0"], -1)


def test_a_sum_is_its_number() -> None:
    assert value(total((2, "x0 x1"), (-1, "n0")), VALUES) == 40
    assert value(multiply(total((1, "x0 x1")), power(atom("n0"), -1)), VALUES) == 3
    assert value(FLOOR, VALUES) == 1
    assert value((), VALUES) == 0
    with pytest.raises(ValueError):
        value(power(atom("x0"), -1), {"x0": 0})
    with pytest.raises(ValueError):
        value(atom(Quotient(number(1), atom("x0"))), {"x0": 0})


def test_substituting_reaches_into_divisions() -> None:
    once = substituted(FLOOR, "x1", total((2, "x0")))
    assert shown(once) == "[-1*x2 + 2*x0 // 2]"
    assert substituted(substituted(once, "x0", number(4)), "x2", number(3)) == number(2)


def test_equal_sums_are_one_whatever_their_order() -> None:
    assert total((1, "x0 x1"), (3, "x2")) == total((3, "x2"), (1, "x1 x0"))
    assert total((1, "x0"), (-1, "x0")) == ()
    assert number(Fraction(0)) == ()


SIZES = Sizes(
    (("x0", 4), ("x1", 6), ("n0", 8)),
    ((("x", 0), atom("x0")), (("w", 1), total((1, "x0 x1"))), (("v", 2), multiply(total((1, "x0 x1")), power(atom("n0"), -1)))),
)  # fmt: skip


def test_all_that_hangs_on_a_free_size_changes_with_it() -> None:
    assert SIZES.at({}) == {("x", 0): 4, ("w", 1): 24, ("v", 2): 3}
    assert SIZES.at({"x1": 2}) == {("x", 0): 4, ("w", 1): 8, ("v", 2): 1}
    assert SIZES.at({"x1": 2, "n0": 2}) == {("x", 0): 4, ("w", 1): 8, ("v", 2): 4}


@pytest.mark.parametrize("changes", [{"x1": 1}, {"n0": 5}, {"n0": 0}])
def test_what_is_no_whole_number_is_no_size(changes: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        SIZES.at(changes)


def test_what_is_below_zero_is_no_size() -> None:
    less = Sizes((("x0", 4),), ((("x", 0), add(atom("x0"), number(-2))),))
    assert less.at({"x0": 2}) == {("x", 0): 0}
    with pytest.raises(ValueError):
        less.at({"x0": 1})
