"""From a failing case to a small one: the ops first, then every pass until none applies any more.

Knows sites, sizes and verdicts; nothing of torch.compile.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial

from minify.case import Case, Derived, tensor_inputs
from minify.errors import Stopped
from minify.passes.contract import Between, Pass, Site
from minify.passes.cut_ops import op_names
from minify.reduce.ops import cut_down, find_alone, first_screen, worth_a_screen
from minify.reduce.search import sweep_sites
from minify.reduce.session import Session

__all__ = ["Reduction", "Session", "find_alone", "first_screen", "reduce", "worth_a_screen"]

MOST_IN_FRONT = 3  # failures louder than the one asked for, whose ops are looked past


@dataclasses.dataclass(frozen=True)
class Reduction:
    """The result: `one_minimal` when no single site of any pass could be edited any more. Else `stopped_by` says why not, or
    some candidates of the last round were never answered: `unanswered` counts them. `explains` is what was said of the ops that
    the search ended with: whether they alone make the original wrong, None where that could not be told."""

    case: Case
    one_minimal: bool
    stopped_by: str = ""
    search_queries: int = 0
    unanswered: int = 0
    explains: bool | None = None


def reduce(
    session: Session,
    passes: Sequence[Pass],
    record: Callable[[Case], Case],
    explains: Callable[[Case], bool | None] = lambda case: None,
) -> Reduction:
    """Shrink the session's case. `record(case)` returns it with derived values recorded; `explains(case)` is asked of the ops
    that the search ends with, before any pass changes what they are given; where they do not make the original wrong, others are
    looked for. Never raises Stopped."""
    before, stopped_by = session.oracle.queries, ""
    searched, explained = 0, None
    try:
        try:
            cut_down(session)
        finally:
            searched = session.oracle.queries - before
        explained = explains(session.best)
        if explained is False:
            explained = _cut_to_another(session, explains)
        session.hold_to_loudness()
        _record(session, record)
        while _round(session, passes, record):
            pass
    except Stopped as stop:
        stopped_by = stop.reason
    unanswered = len(session.unanswered)
    return Reduction(session.best, not stopped_by and not unanswered, stopped_by, searched, unanswered, explained)


def _cut_to_another(session: Session, explains: Callable[[Case], bool | None]) -> bool | None:
    """The ops found do not make the original wrong: look for others that do, without them. What `explains` says of the best case then,
    which is what was found first where there are none. Raises Stopped, with that for the best case as well."""
    found: frozenset[str] = frozenset()
    try:
        for _ in range(MOST_IN_FRONT):
            found |= frozenset(op_names(session.best))
            session.begin_again()
            if not cut_down(session, found):
                break
            if (explained := explains(session.best)) is not False:
                return explained
    except Stopped:
        session.take_back()
        raise
    session.take_back()
    return False


def _round(session: Session, passes: Sequence[Pass], record: Callable[[Case], Case]) -> bool:
    """Every pass once; whether any changed anything. What an earlier round left unanswered this one asks again."""
    changed = False
    session.unanswered.clear()
    for edit in passes:
        applied = _alternatives(session, edit) if edit.alternatives else _additive(session, edit)
        changed |= applied
        if applied:
            _record(session, record)
    return changed


def _record(session: Session, record: Callable[[Case], Case]) -> None:
    """Give the best case its values, so that passes can see and change them."""
    if any(isinstance(item.value, Derived) for item in tensor_inputs(session.best)):
        session.replace_best(record(session.best))


def _alternatives(session: Session, edit: Pass) -> bool:
    """Sites one by one in order. After each success those behind it come first, since those before it were just turned down, and
    then all the others, since one edit opens the way for others."""
    changed, start = False, 0
    while True:
        if edit.sized:
            session.measure()
        case = session.best
        sites = session.trusting(edit.name, lambda case=case: edit.find(case))  # type: ignore[misc]
        start = start % max(len(sites), 1)
        order = (*sites[start:], *sites[:start])
        builds = [lambda site=site, case=case: edit.rewrite(case, (site,)) for site in order]
        found = session.first(edit.name, builds)
        if found is None:
            return changed
        if edit.between:
            _narrow(session, edit, edit.between, case, order[: found[0] + 1])
        changed, start = True, start + found[0]


def _narrow(session: Session, edit: Pass, between: Between, case: Case, asked: Sequence[Site]) -> None:
    """Bisect between the last of the sites of `case` that were `asked`, which was accepted, and those turned down before it."""
    *turned_down, accepted = asked
    while True:
        middle = session.trusting(edit.name, partial(between, tuple(turned_down), accepted))
        if middle is None:
            return
        if session.first(edit.name, [partial(edit.rewrite, case, (middle,))], edited=case) is None:
            turned_down.append(middle)
        else:
            accepted = middle


def _additive(session: Session, edit: Pass) -> bool:
    """All sites together, then halves, then singles."""
    case = session.best
    sites = session.trusting(edit.name, lambda: edit.find(case))
    return bool(sweep_sites(sites, _Sites(session, edit, case, sites)))


class _Sites:
    """Answers the sweep: does the case with just these sites edited still fail?"""

    def __init__(self, session: Session, edit: Pass, case: Case, sites: Sequence[Site]) -> None:
        self._session = session
        self._edit = edit
        self._case = case
        self._order = {site: position for position, site in enumerate(sites)}

    def __call__(self, kept: frozenset[Site]) -> bool:
        return self.first([kept]) is not None

    def first(self, candidates: Sequence[frozenset[Site]]) -> int | None:
        chosen = [tuple(sorted(sites, key=self._order.__getitem__)) for sites in candidates]
        builds = [lambda sites=sites: self._edit.rewrite(self._case, sites) for sites in chosen]
        found = self._session.first(self._edit.name, builds, edited=self._case)
        return None if found is None else found[0]
