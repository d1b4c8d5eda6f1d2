"""What must stay and what need not: each property of the final case that a default program would not have, changed.

`find_facts` puts one question for each (`ROWS` says which), after the search has ended. Where the changed program passes,
the property is decisive; where it fails in the same way, it is not; any other answer says nothing. Most questions are
those that the search asked last, and are answered from the cache.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from minify import case as cases
from minify.case import Case, Derived, Recipe
from minify.decisive.rows import CALLS, ROWS, Change
from minify.errors import InvalidCandidate
from minify.oracle import Oracle
from minify.passes.wellformed import well_formed
from minify.verdict import Observation, Outcome, Signature, Verdict

REDRAWS = ("layout", "dtype", "size")  # changes after which a rule for random numbers gives others
DRAWN = ("rand", "randn", "randint")
DRAWS = "draw"  # the kind of fact that a call is which alone draws random numbers

__all__ = ["Change", "Fact", "find_facts", "told"]


@dataclasses.dataclass(frozen=True, slots=True)
class Fact:
    """A property and what came of changing it. `case` is the changed program, `verdict` the answer to it; `row` names the
    kind of property."""

    row: str
    change: Change
    case: Case
    verdict: Verdict

    @property
    def decisive(self) -> bool:
        return self.verdict.outcome is Outcome.PASSES

    def seen_beside(self, failing: Observation) -> Observation:
        """What a run of the changed program has to show where it is wrong after all: the divergences of the failing one."""
        rows = failing.divergences
        if self.row == "size":  # an element of the larger result may not be there
            rows = tuple(dataclasses.replace(row, index=()) for row in rows)
        seen = self.verdict.observation
        return dataclasses.replace(failing, divergences=rows, trace=seen.trace or failing.trace, random=seen.random)

    def __str__(self) -> str:
        does = "passes" if self.decisive else "fails as well" if self.verdict.fails else self.verdict.outcome.value
        return f"{self.change.what}; {self.change.instead} {does}"

    def as_row(self) -> dict[str, object]:
        """For `report.json`: the words, the answer, and the digest under which the question is on record."""
        return {
            "kind": self.row,
            "fact": self.change.what,
            "instead": self.change.instead,
            "outcome": self.verdict.outcome.value,
            "decisive": self.decisive,
            "query": cases.digest(self.case),
        }


def told(facts: Sequence[Fact]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The decisive ones in words, and those that are not. That every op is needed goes without saying. What a smaller and a
    larger size do is told together, and in one line for all dims of which it is true."""
    ends = {
        sized: end
        for sized in dict.fromkeys(fact.change.sized for fact in facts if fact.change.sized)
        if (end := _bound(sized[1], [fact for fact in facts if fact.change.sized == sized]))
    }
    decisive, others = list[str](), list[str]()
    for fact in facts:
        if fact.change.sized in ends:
            end = ends[fact.change.sized]
            decisive.append(f"{', '.join(place for place, size in ends if ends[place, size] == end)}: {end}")
        elif fact.decisive and fact.row != CALLS:
            decisive.append(str(fact))
        elif fact.verdict.fails:
            others.append(str(fact))
    return tuple(dict.fromkeys(decisive)), tuple(others)


def _bound(size: int, facts: Sequence[Fact]) -> str:
    """What was seen of a size and of others in its place, "" unless a smaller one passes."""
    less = next((fact.change.instead for fact in facts if fact.decisive and int(fact.change.instead) < size), "")
    more = next(
        (fact for fact in facts if int(fact.change.instead) > size and (fact.decisive or fact.verdict.fails)), None
    )
    if not less or more is None:
        return less and f"size {size}; {less} passes"
    if more.decisive:
        return f"size {size} exactly; {less} passes, {more.change.instead} passes"
    return f"size {size} or more ({more.change.instead} fails as well); {less} passes"


def find_facts(
    case: Case, signature: Signature, oracle: Oracle, *, random: bool, save_base: Callable[[Case], object]
) -> tuple[Fact, ...]:
    """All facts of `case`, which fails as `signature` says. `random` says that it draws random numbers; `save_base(case)`
    makes it available for others to derive values from. Raises Stopped."""
    changes = [(row, change) for row, changes in ROWS.items() for change in changes(case, random)]
    waiting = {place: _sound(change.cases) for place, (_, change) in enumerate(changes)}
    found: dict[int, Fact] = {}
    asked = {cases.digest(case)}
    while waiting:  # each round asks the next way of making a change, where the one before made no sense
        offered = {place: candidate for place, ways in waiting.items() if (candidate := next(ways, None)) is not None}
        fresh = {place: case for place, case in offered.items() if _unseen(case, asked)}
        if any(isinstance(item.value, Derived) for one in fresh.values() for item in cases.tensor_inputs(one)):
            save_base(case)
        verdicts = oracle.judge_in_order(fresh.values(), signature)
        for (place, candidate), verdict in zip(fresh.items(), verdicts, strict=True):
            if verdict.outcome is not Outcome.INVALID:
                row, change = changes[place]
                silenced = random and row == CALLS and not verdict.observation.random
                found[place] = (
                    _of_a_draw(change, candidate, verdict) if silenced else Fact(row, change, candidate, verdict)
                )
        waiting = {place: waiting[place] for place in fresh if place not in found}
    redrawn = {place: other for place, fact in found.items() if (other := _with_other_numbers(fact)) is not None}
    for place, verdict in zip(redrawn, oracle.judge_in_order(redrawn.values(), signature), strict=True):
        if verdict.outcome is not Outcome.PASSES:
            found[place] = dataclasses.replace(found[place], case=redrawn[place], verdict=verdict)
    return tuple(found[place] for place in sorted(found))


def _of_a_draw(change: Change, candidate: Case, verdict: Verdict) -> Fact:
    """Of a call without which nothing is drawn any more. It is told, other than that of any call: whoever records the numbers that
    a program draws, or does not reseed it, loses it."""
    told_of = dataclasses.replace(change, what=f"{change.what}, which draws random numbers")
    return Fact(DRAWS, told_of, candidate, verdict)


def _with_other_numbers(fact: Fact) -> Case | None:
    """The changed program once more with other random numbers, where the change drew new ones: that it passes may be theirs."""
    random = any(isinstance(item.value, Recipe) and item.value.kind in DRAWN for item in cases.tensor_inputs(fact.case))
    if not fact.decisive or fact.row not in REDRAWS or not random:
        return None
    settings = dataclasses.replace(fact.case.settings, seed=fact.case.settings.seed + 1)
    return dataclasses.replace(fact.case, settings=settings)


def _unseen(case: Case, asked: set[str]) -> bool:
    """Whether nothing like it was asked; two changes may come to the same."""
    digest = cases.digest(case)
    fresh = digest not in asked
    asked.add(digest)
    return fresh


def _sound(ways: tuple[Callable[[], Case], ...]) -> Iterator[Case]:
    for build in ways:
        try:
            candidate = build()
        except InvalidCandidate:
            continue
        if well_formed(candidate):
            yield candidate
