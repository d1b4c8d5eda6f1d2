"""Whatever equations hold of a program's sizes: what they are solved into holds as well, and so do they once free sizes change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minify.sizes import Quotient, Sum, add, atom, multiply, names, number, solve, value

BASES = ("a", "b", "c", "d")
sizes = st.integers(2, 5)


@st.composite
def sums(draw: st.DrawFn, of: tuple[str, ...]) -> Sum:
    """A product of a few names, a sum of two such, or what a window leaves of one."""
    product = multiply(*map(atom, draw(st.lists(st.sampled_from(of), min_size=1, max_size=3))))
    kind = draw(st.sampled_from(["product", "product", "sum", "window"]))
    if kind == "window":
        return atom(Quotient(product, number(2)))
    return add(product, number(draw(st.integers(1, 3))), atom(draw(st.sampled_from(of)))) if kind == "sum" else product


@st.composite
def systems(draw: st.DrawFn) -> tuple[dict[str, int], tuple[Sum, ...], frozenset[str]]:
    """Names with their numbers, equations that hold of these, and which of the names are numbers in calls."""
    values = {name: draw(sizes) for name in BASES}
    equations = []
    for turn in range(draw(st.integers(1, 5))):
        total = draw(sums(tuple(values)))
        name = f"n{turn}"
        values[name] = int(value(total, values))
        equation = add(atom(name), multiply(number(-1), total))
        equations.append(multiply(equation, atom(draw(st.sampled_from(BASES)))) if draw(st.booleans()) else equation)
    chosen = draw(st.sets(st.sampled_from(sorted(values))))
    return values, tuple(draw(st.permutations(equations))), frozenset(chosen)


@given(systems(), st.data())
def test_equations_hold_whatever_free_sizes_become(
    system: tuple[dict[str, int], tuple[Sum, ...], frozenset[str]], data: st.DataObject
) -> None:
    values, equations, numbers = system
    known, left = solve(equations, list(values), numbers)
    assert all(value(total, values) == values[name] for name, total in known.items())
    assert not any(names(total) & known.keys() for total in known.values())
    changed = {name: data.draw(st.integers(1, 6)) for name in values if name not in known}
    whole = changed | {name: value(total, changed) for name, total in known.items()}
    if all(number.denominator == 1 for number in whole.values()) and not left:
        everything = {name: int(number) for name, number in whole.items()}
        assert all(value(equation, everything) == 0 for equation in equations)
