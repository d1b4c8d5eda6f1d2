"""How the sizes of a program hang together: dims of inputs and numbers in calls as sums of products of the few that are free.

Owns that arithmetic: `solve` turns equations between named sizes into what each of them comes to, `Sizes` says what all
others become where some free ones change. Which equations a program has is for a worker to find out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

Place: TypeAlias = tuple[
    str, int
]  # a dim of an input, a leaf among the arguments of an op, or a number that is an input (at 0)


@dataclasses.dataclass(frozen=True, slots=True)
class Quotient:
    """A division rounded down: what a window leaves of a dim."""

    dividend: Sum
    divisor: Sum


Atom: TypeAlias = "str | Quotient"
Factors: TypeAlias = "tuple[tuple[Atom, int], ...]"  # each with its power
Sum: TypeAlias = "tuple[tuple[Factors, Fraction], ...]"  # products with their coefficients, in order; () is 0


@dataclasses.dataclass(frozen=True, slots=True)
class Sizes:
    """`free` sizes with the numbers they are now; what each place comes to, where a free size of a dim has a part in it; and the
    numbers in calls that none has a part in, with the free size that a call holds them against (a slice, its dim). `of` is the
    digest of the case that all this is true of."""

    free: tuple[tuple[str, int], ...]
    places: tuple[tuple[Place, Sum], ...]
    beside: tuple[tuple[str, Place], ...] = ()
    of: str = ""

    @staticmethod
    def name(place: Place) -> str:
        """What a size that appears first at `place` is called."""
        return f"{place[0]}.{place[1]}"

    def at(self, changes: Mapping[str, int]) -> dict[Place, int]:
        """What every place comes to once some free sizes are others. Raises ValueError where that is no size."""
        values = {**dict(self.free), **changes}
        return {place: _size(value(total, values)) for place, total in self.places}


def _size(number: Fraction) -> int:
    if number.denominator != 1 or number < 0:
        raise ValueError(f"{number} is no size")
    return int(number)


# --- arithmetic ----------------------------------------------------------------------------------------------------------


def number(value: int | Fraction) -> Sum:
    return (((), Fraction(value)),) if value else ()


def atom(of: Atom) -> Sum:
    return ((((of, 1),), Fraction(1)),)


def add(*sums: Sum) -> Sum:
    found: dict[Factors, Fraction] = {}
    for factors, coefficient in (term for one in sums for term in one):
        found[factors] = found.get(factors, Fraction(0)) + coefficient
    return tuple(sorted(((factors, number) for factors, number in found.items() if number), key=repr))


def multiply(*sums: Sum) -> Sum:
    product = number(1)
    for one in sums:
        product = add(*(((_merged(a, b), x * y),) for a, x in product for b, y in one))
    return product


def power(base: Sum, exponent: int) -> Sum:
    """Raises ValueError for 1 divided by what is no single product."""
    if exponent >= 0:
        return multiply(*[base] * exponent)
    if len(base) != 1:
        raise ValueError("no single product to divide by")
    ((factors, coefficient),) = base
    return ((tuple((of, up * exponent) for of, up in factors), coefficient**exponent),)


def _merged(one: Factors, other: Factors) -> Factors:
    powers = dict(one)
    for of, exponent in other:
        powers[of] = powers.get(of, 0) + exponent
    return tuple(sorted(((of, exponent) for of, exponent in powers.items() if exponent), key=repr))


def value(total: Sum, values: Mapping[str, int]) -> Fraction:
    """The number that a sum is. Raises ValueError for a division by 0."""
    result = Fraction(0)
    for factors, coefficient in total:
        term = coefficient
        for of, exponent in factors:
            base = Fraction(values[of]) if isinstance(of, str) else _floor(of, values)
            if not base and exponent < 0:
                raise ValueError("a division by 0")
            term *= base**exponent
        result += term
    return result


def _floor(quotient: Quotient, values: Mapping[str, int]) -> Fraction:
    divisor = value(quotient.divisor, values)
    if not divisor:
        raise ValueError("a division by 0")
    return Fraction(value(quotient.dividend, values) // divisor)


def names(total: Sum) -> frozenset[str]:
    return frozenset(name for factors, _ in total for of, _ in factors for name in _atom_names(of))


def _atom_names(of: Atom) -> Iterator[str]:
    if isinstance(of, str):
        yield of
    else:
        yield from names(of.dividend) | names(of.divisor)


def substituted(total: Sum, name: str, by: Sum) -> Sum:
    """Raises ValueError where that would divide by what is no single product."""
    if name not in names(total):
        return total
    return add(
        *(
            multiply(number(coefficient), *(power(_replaced(of, name, by), exponent) for of, exponent in factors))
            for factors, coefficient in total
        )
    )


def _replaced(of: Atom, name: str, by: Sum) -> Sum:
    if isinstance(of, str):
        return by if of == name else atom(of)
    dividend, divisor = substituted(of.dividend, name, by), substituted(of.divisor, name, by)
    if names(dividend) | names(divisor):
        return atom(Quotient(dividend, divisor))
    return number(_floor(Quotient(dividend, divisor), {}))


# --- equations -----------------------------------------------------------------------------------------------------------


def solve(
    equations: Iterable[Sum], order: Sequence[str], numbers: frozenset[str]
) -> tuple[dict[str, Sum], tuple[Sum, ...]]:
    """What names come to in terms of those left free, and the equations that say nothing more. Each of `equations` is a sum that
    is 0. Where there is a choice, one of `numbers` follows from the others, then a name late in `order`."""
    left, known = [one for one in equations if one], dict[str, Sum]()
    rank = {name: turn for turn, name in enumerate(reversed(order))}
    while True:
        for name, by in _choices(left, numbers, rank):
            try:
                others = {other: substituted(total, name, by) for other, total in known.items()}
                rest = [substituted(one, name, by) for one in left]
            except ValueError:
                continue
            known, left = {**others, name: by}, [one for one in rest if one]
            break
        else:
            return known, tuple(left)


def _choices(equations: Iterable[Sum], numbers: frozenset[str], rank: Mapping[str, int]) -> Iterator[tuple[str, Sum]]:
    """Names that one of `equations` says all about, with what they come to: plain sums as they are met, then all others by how
    little one would like to have them so."""
    put_off = []
    for equation in equations:
        for name, by in _isolated(equation):
            put_off.append((_awkwardness(by), name not in numbers, rank[name], name, by))
        put_off.sort(key=lambda choice: choice[:3])
        while put_off and not any(put_off[0][0]):
            yield put_off.pop(0)[3:]
    yield from (choice[3:] for choice in put_off)


def _isolated(equation: Sum) -> Iterator[tuple[str, Sum]]:
    """Each name that stands in one product only, by itself, and what it then comes to."""
    for factors, coefficient in equation:
        for name, exponent in factors:
            rest = tuple(term for term in equation if term != (factors, coefficient))
            others = tuple(factor for factor in factors if factor != (name, exponent))
            if not isinstance(name, str) or exponent != 1 or name in names(rest):
                continue
            if all(isinstance(of, str) for of, _ in others):
                yield name, multiply(rest, power(((others, -coefficient),), -1))


def _awkwardness(total: Sum) -> tuple[bool, bool, int]:
    """How a sum departs from a plain one: divisions rounded down, others, differences and fractions."""
    powers = [factor for factors, _ in total for factor in factors]
    rounds = any(isinstance(of, Quotient) for of, _ in powers)
    uneven = sum(number < 0 or number.denominator != 1 for _, number in total)
    return rounds, any(exponent < 0 for _, exponent in powers), uneven
