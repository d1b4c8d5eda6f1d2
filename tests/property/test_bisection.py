"""Bisection with skips: sound whatever is unclear, and no more questions than halving takes."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from minify.across.bisection import Answer, Boundary, WrongEnds, bisect

WORLDS = st.integers(2, 200).flatmap(
    lambda count: st.tuples(
        st.just(count), st.integers(1, count - 1), st.sets(st.integers(1, max(1, count - 2)), max_size=count)
    )
)


def asked_of(count: int, first_bad: int, unclear: set[int]) -> tuple[Boundary[int] | WrongEnds, list[int]]:
    asked: list[int] = []

    def answer(place: int) -> Answer:
        asked.append(place)
        if place in unclear and 0 < place < count - 1:
            return Answer.UNCLEAR
        return Answer.BAD if place >= first_bad else Answer.GOOD

    return bisect(range(count), answer), asked


@given(WORLDS)
def test_the_first_bad_one_lies_between_what_is_named(world: tuple[int, int, set[int]]) -> None:
    found, asked = asked_of(*world)
    count, first_bad, unclear = world
    assert isinstance(found, Boundary)
    assert found.good < first_bad <= found.bad and set(found.unclear) == set(range(found.good + 1, found.bad))
    assert set(found.unclear) <= unclear and len(set(asked)) == len(asked)
    skipped = sum(place in unclear and 0 < place < count - 1 for place in asked)
    assert len(asked) - skipped <= 2 + math.log2(count) + 1
    assert asked[:2] == [0, count - 1]


@given(st.integers(2, 50), st.sampled_from(list(Answer)), st.sampled_from(list(Answer)))
def test_ends_that_are_not_as_said_are_all_that_is_asked(count: int, first: Answer, last: Answer) -> None:
    asked: list[int] = []

    def answer(place: int) -> Answer:
        asked.append(place)
        return first if place == 0 else last if place == count - 1 else Answer.GOOD

    found = bisect(range(count), answer)
    if (first, last) == (Answer.GOOD, Answer.BAD):
        assert isinstance(found, Boundary) and (found.good, found.bad) == (count - 2, count - 1)
    else:
        assert found == WrongEnds(first, last) and len(asked) == 2
