"""The first bad one of things in order, by bisection with skips. Runs nothing, and knows nothing of torch."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Answer(enum.Enum):
    """What can be said of one: the bug does not show, it shows, or nobody can tell."""

    GOOD = "good"
    BAD = "bad"
    UNCLEAR = "cannot tell"


@dataclasses.dataclass(frozen=True)
class Boundary(Generic[T]):
    """`good` is good and `bad`, after it, is bad. All that lie between are `unclear`: where there is one, the bug came with `bad` or
    with any of those."""

    good: T
    bad: T
    unclear: tuple[T, ...] = ()


@dataclasses.dataclass(frozen=True)
class WrongEnds:
    """The ends are not what they were said to be. `first` is the answer of the one said to be good."""

    first: Answer
    last: Answer


def bisect(ordered: Sequence[T], answer: Callable[[T], Answer]) -> Boundary[T] | WrongEnds:
    """Where good turns to bad between the first, said to be good, and the last, said to be bad. Both are asked before all others.

    The median of what is neither asked nor ruled out comes next. Each answer rules out half of that; one that is unclear only
    itself, as `git bisect skip` does. So of n between the ends at most log2(n) + 1 are asked, and one more for each that is
    unclear. None is asked twice. Where good and bad alternate, the boundary found is one of several. `ordered` holds two or more.
    """
    ends = WrongEnds(answer(ordered[0]), answer(ordered[-1]))
    if (ends.first, ends.last) != (Answer.GOOD, Answer.BAD):
        return ends
    good, bad = 0, len(ordered) - 1
    unclear: set[int] = set()
    while open_ones := [place for place in range(good + 1, bad) if place not in unclear]:
        place = open_ones[len(open_ones) // 2]
        said = answer(ordered[place])
        if said is Answer.GOOD:
            good = place
        elif said is Answer.BAD:
            bad = place
        else:
            unclear.add(place)
    return Boundary(ordered[good], ordered[bad], tuple(ordered[good + 1 : bad]))
