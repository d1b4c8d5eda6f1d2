"""The certificate: every single edit of every pass, put to the oracle on the final case, and what came of each.

`certify` asks; a case is 1-minimal when all edits were answered and none still fails. What the search asked of this very
case comes from the cache, so that after a search this costs next to nothing, and asked again without the cache it must
come out the same. Knows nothing of the search.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from minify import case as cases
from minify.case import Case, Derived, canonical
from minify.errors import InvalidCandidate
from minify.oracle import Oracle
from minify.passes.contract import Pass, Site
from minify.passes.wellformed import well_formed
from minify.verdict import Outcome, Signature

NO_CASE = "no case"  # the edit makes no sense here
NOT_SMALLER = "not smaller"
NOT_INTERESTING = "not interesting"  # by the user's own condition
ANSWERS = (
    Outcome.PASSES.value,
    Outcome.SLIPPED.value,
    Outcome.INVALID.value,
    Outcome.TIMED_OUT.value,
    NO_CASE,
    NOT_SMALLER,
    NOT_INTERESTING,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """One question: a pass, its site as text, the digest of the candidate ("" where there is none), the answer."""

    edit: str
    site: str
    digest: str
    answer: str


@dataclasses.dataclass(frozen=True)
class Certificate:
    """All questions, in the order of the passes and their sites."""

    asked: tuple[Asked, ...]

    @property
    def one_minimal(self) -> bool:
        """Whether each edit was answered and none of them still fails."""
        return all(one.answer in ANSWERS for one in self.asked)

    @property
    def smaller_ones(self) -> tuple[Asked, ...]:
        """The edits that still fail: the case is not minimal."""
        return tuple(one for one in self.asked if one.answer == Outcome.FAILS.value)

    @property
    def tried(self) -> int:
        """How many edits made a smaller case that was put to the oracle."""
        return sum(bool(one.digest) for one in self.asked)

    def counts(self) -> dict[str, dict[str, int]]:
        """For each pass how often each answer came; a pass without a site is there too, with none."""
        found: dict[str, Counter[str]] = {}
        for one in self.asked:
            found.setdefault(one.edit, Counter())[one.answer] += 1
        return {edit: {"sites": sum(counts.values()), **counts} for edit, counts in found.items()}


def certify(
    case: Case,
    signature: Signature,
    oracle: Oracle,
    passes: Sequence[Pass],
    save_base: Callable[[Case], object],
    interesting: Callable[[Case], bool] = lambda case: True,
) -> Certificate:
    """Ask every single edit of `case`. `save_base(case)` makes it available for candidates to derive values from; those that are
    not `interesting` are not asked.

    Raises Stopped."""
    asked: list[Asked] = []
    waiting: list[int] = []

    def candidates() -> Iterator[Case]:
        for edit in passes:
            for site in edit.find(case):
                candidate, why = _edited(case, edit, site)
                if candidate is not None and not interesting(candidate):
                    candidate, why = None, NOT_INTERESTING
                asked.append(
                    Asked(edit.name, canonical(site), "" if candidate is None else cases.digest(candidate), why)
                )
                if candidate is not None:
                    waiting.append(len(asked) - 1)
                    if any(isinstance(item.value, Derived) for item in cases.tensor_inputs(candidate)):
                        save_base(case)
                    yield candidate

    for turn, verdict in enumerate(oracle.judge_in_order(candidates(), signature)):
        place = waiting[turn]
        answer = verdict.outcome.value if verdict.answers(signature) else Outcome.BROKEN_WORKER.value
        asked[place] = dataclasses.replace(asked[place], answer=answer)
    return Certificate(tuple(asked))


def _edited(case: Case, edit: Pass, site: Site) -> tuple[Case | None, str]:
    """The candidate, or why there is none to ask."""
    try:
        candidate = edit.rewrite(case, (site,))
    except InvalidCandidate:
        return None, NO_CASE
    if not well_formed(candidate):
        return None, NO_CASE
    if cases.size(candidate) >= cases.size(case):
        return None, NOT_SMALLER
    return candidate, ""


def save(certificate: Certificate, path: Path) -> None:
    """Raises OSError."""
    rows = [dataclasses.asdict(one) for one in certificate.asked]
    cases.write_whole(path, (json.dumps(rows, indent=0) + "\n").encode())


def load(path: Path) -> Certificate:
    """Raises ValueError where the file is no certificate, and OSError."""
    try:
        return Certificate(tuple(Asked(**row) for row in json.loads(path.read_text())))
    except TypeError as error:  # other fields, or no rows at all
        raise ValueError(f"{path} is no certificate: {error}") from error


def differences(before: Certificate, now: Certificate) -> tuple[str, ...]:
    """The questions that two certificates of one case answer differently, in words."""
    known = {(one.edit, one.site): one.answer for one in before.asked}
    fresh = {(one.edit, one.site): one.answer for one in now.asked}
    return tuple(
        f"{edit} at {site}: {known.get((edit, site), 'not asked')} before, {fresh.get((edit, site), 'not asked')} now"
        for edit, site in dict.fromkeys((*known, *fresh))
        if known.get((edit, site)) != fresh.get((edit, site))
    )
