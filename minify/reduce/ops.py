"""Which ops does the failure need? Screen, outputs, then the abstract search over subsets of the ops (design §5, 0-3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from minify import case as cases
from minify.case import Case
from minify.passes.cut_ops import keep, neighbours, op_names
from minify.passes.wellformed import well_formed
from minify.reduce.screen import chunks, suspects, unlike_first, wrong_alone
from minify.reduce.search import SUSPECTS_TRIED_ALONE, localise
from minify.reduce.session import Session

SCREEN_FROM = 4  # with fewer ops, asking for each by itself is as cheap


def worth_a_screen(case: Case) -> bool:
    return len(op_names(case)) >= SCREEN_FROM


def first_screen(case: Case, save_base: Callable[[Case], object]) -> Case | None:
    """What `find_alone` asks first of a case whose values are described; None where it asks for nothing of that kind."""
    save_base(case)
    screen = next(_screens(case, cases.digest(case)), None)
    return screen if screen is not None and well_formed(screen) else None


def find_alone(session: Session, without: frozenset[str] = frozenset()) -> tuple[bool, tuple[str, ...]]:
    """Make the best case the one op that fails by itself, where a screen names one: whether it did, and the ops that screens
    named, `without` excepted. Asks nothing of the whole program, and so never compiles it."""
    case = session.best
    base = session.base_of_best()
    tester = _Subsets(session, case, base, "all_used")
    named: list[str] = []
    for screened in _screened(session, case, base):
        hints = tuple(name for name in screened if name not in without)
        named += hints
        if tester.first([frozenset([name]) for name in hints[:SUSPECTS_TRIED_ALONE]]) is not None:
            return True, tuple(named)
    return False, tuple(named)


def cut_down(session: Session, without: frozenset[str] = frozenset()) -> bool:
    """Leave the best case with a 1-minimal set of ops, its cut values still derived from the case it started from. Where that is to
    be `without` some of them: whether the others fail by themselves."""
    case = session.best
    names = tuple(name for name in op_names(case) if name not in without)
    if len(names) < 2 and not without:
        return True
    base = session.base_of_best()
    hints: tuple[str, ...] = ()
    if session.signature.kind == "accuracy" and worth_a_screen(case):
        found, hints = find_alone(session, without)
        if found:
            return True
    linked = neighbours(case)
    order = ("sinks", "all_used") if session.signature.kind == "crash" else ("all_used", "sinks")
    remaining, known = names, not without
    for consumers in order:
        tester = _Subsets(session, case, base, consumers)
        if not known and not tester(frozenset(remaining)):
            break
        localise(remaining, tester, neighbours=lambda name: linked.get(name, ()), suspects=hints)
        left = set(op_names(session.best))
        remaining, hints, known = tuple(name for name in names if name in left), (), False
        if len(remaining) < 2:
            break
    return session.best is not case


class _Subsets:
    """Answers the search: does the program of just these ops still fail? A candidate that does becomes the best case."""

    def __init__(self, session: Session, case: Case, base: str, consumers: str) -> None:
        self._session = session
        self._case = case
        self._base = base
        self._consumers = consumers

    def __call__(self, kept: frozenset[str]) -> bool:
        return self.first([kept]) is not None

    def first(self, candidates: Sequence[frozenset[str]]) -> int | None:
        builds = [lambda names=names: keep(self._case, names, self._base, self._consumers) for names in candidates]
        found = self._session.first("ops", builds, smaller=False)
        return None if found is None else found[0]


def _screens(case: Case, base: str) -> Iterator[Case]:
    return (part for some in unlike_first(case, op_names(case)) for part in chunks(case, some, base))


def _screened(session: Session, case: Case, base: str) -> Iterator[tuple[str, ...]]:
    """What each screen names, the likeliest first; screens that name nothing are passed over."""
    names = op_names(case)
    for part in _screens(case, base):
        verdict = session.glimpse("screen", part)
        if verdict is not None and verdict.observation.divergences:
            wrong = wrong_alone(verdict.observation.divergences, names)
            session.blamed |= {name: rows for name, rows in wrong.items() if name not in session.blamed}
            found = suspects(wrong, session.signature)
            if found:
                yield found
