"""Which application inside a stage does the failure need? `KINDS` is what the compiler can be made to leave out, as data.

`look_inside` asks of each kind whether the failure goes with all of it, then minimises the set of applications that must be on
for the failure, and confirms it pairwise: with it fails, without it passes, alone fails. Knows nothing of torch.

The kinds stand in the order in which the compiler comes to them. A fault in one of them is cured there, or before it, where what
is left out keeps the compiler from ever coming to it, but not after it: so of the kinds that cure, the last holds the fault. That
is the ladder's own rule: of all kinds up to one on and the later ones off, it is the first that fails.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from minify import ablation as ablations
from minify import case as cases
from minify.ablation import COMPILED, WATCHED, Ablation, Application, Listing, alone, without
from minify.case import Case
from minify.reduce.search import localise
from minify.verdict import Divergence, Outcome, Signature, Verdict, accuracy_signature

QUESTIONS = 26  # at most, so that they, the 8 rungs, and the 6 compiles of first node, kernel and evidence make 40
CONFIRMING = 2  # of them, kept back from a search for what has to be asked of its result
NOT_HERE = "not available here"
NONE_MET = "none met"


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """A sort of thing that the compiler does in each of `stages`, by the name that `torch_internals` has for it.

    `what` is what a reader calls one, `config` how torch's own configs do without all of it, where they can. One that `settles`
    is asked first, and if it cures, no other is. `note` is said wherever it is to blame."""

    name: str
    stages: tuple[str, ...]
    what: str
    config: tuple[str, ...] = ()
    settles: bool = False
    note: str = ""


_AOT, _DECOMPOSITIONS, _INDUCTOR = "AOTAutograd", "decompositions", "Inductor"
_CONFIG = "torch._inductor.config"
_THRESHOLDS = ("opcount", "reads", "acc_reads")
KINDS: tuple[Kind, ...] = (
    Kind("functionalization", (_AOT, _DECOMPOSITIONS), "step"),
    Kind("decomposition", (_DECOMPOSITIONS,), "decomposition"),
    Kind("partitioning", (_AOT, _DECOMPOSITIONS, _INDUCTOR), "partitioning"),
    Kind("cse", (_AOT, _DECOMPOSITIONS, _INDUCTOR), "step", ("torch._functorch.config.cse = False",)),
    Kind(
        "precision",
        (_INDUCTOR,),
        "precision",
        settles=True,
        note="it is rounding and no logic: with the casts that eager makes it passes",
    ),
    Kind("pass", (_INDUCTOR,), "pass"),
    Kind("pattern", (_INDUCTOR,), "pattern match", (f"{_CONFIG}.pattern_matcher = False",)),
    Kind("layout", (_INDUCTOR,), "layout"),
    Kind(
        "lowering",
        (_INDUCTOR,),
        "lowering",
        (f"{_CONFIG}.fallback_by_default = True",),
        note="what is not lowered is not fused and has no code generated either: the fault lies in the lowering, or in the code "
        "generated for it, where no option cures it",
    ),
    Kind("inlining", (_INDUCTOR,), "inlining", tuple(f"{_CONFIG}.realize_{of}_threshold = 0" for of in _THRESHOLDS)),
    Kind("fusion", (_INDUCTOR,), "fusion", (f"{_CONFIG}.max_fusion_size = 1",)),
    Kind("memory", (_INDUCTOR,), "memory"),
    Kind("codegen", (_INDUCTOR,), "code generation"),
)
_KIND = {kind.name: kind for kind in KINDS}


class AblatingOracle(Protocol):
    """What of an oracle is used here."""

    queries: int

    def judge_ablated(self, case: Case, ablations: Iterable[Ablation], signature: Signature) -> Iterator[Verdict]:
        """Verdicts on one case, each with another part of the compiler left out, in order. Raises `Stopped`."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One line of the ablation table: what was left out, the answer, the failure seen, the numbers of the worst float, and the
    digest of the question, "" where nothing had to be asked; `answer` then says why."""

    ablation: Ablation
    answer: str
    signature: Signature | None = None
    numbers: Divergence | None = None
    seconds: float = 0.0
    digest: str = ""
    cached: bool = False

    @property
    def fails(self) -> bool:
        return self.answer == Outcome.FAILS.value

    @property
    def passes(self) -> bool:
        return self.answer == Outcome.PASSES.value

    def as_row(self) -> dict[str, object]:
        """For `report.json`. `config` does about the same by torch's own switches, where there are such."""
        kind = _KIND.get(self.ablation.kind)
        return {
            "left_out": str(self.ablation),
            "outcome": self.answer,
            "signature": None if self.signature is None else dataclasses.asdict(self.signature),
            "numbers": None if self.numbers is None else dataclasses.asdict(self.numbers),
            "seconds": round(self.seconds, 3),
            "cached": self.cached,
            "digest": self.digest,
            "config": list(kind.config) if kind and self.ablation == alone(kind.name) else [],
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Culprit:
    """The applications of one kind that the failure needs, and the questions that show it.

    All of a group are needed together, and each group suffices by itself; mostly there is one. No group: the kind as a whole,
    since its applications are not known. `beside` are applications without which the program does not even come so far as to
    fail. `minimal` is False where questions ran out before each was tried without."""

    kind: str
    groups: tuple[tuple[Application, ...], ...]
    confirmations: tuple[Row, ...]
    minimal: bool = True
    beside: tuple[Application, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def applications(self) -> tuple[Application, ...]:
        return tuple(application for group in self.groups for application in group)

    def __str__(self) -> str:
        groups = [" and ".join(map(_told, group)) for group in self.groups]
        return f"{_KIND[self.kind].what} {'; or '.join(groups) or 'as a whole'}"


@dataclasses.dataclass(frozen=True, slots=True)
class Inside:
    """What was found, None where nothing was confirmed; all that was asked; and how many answers of it were not on record."""

    culprit: Culprit | None
    table: tuple[Row, ...]
    queries: int
    notes: tuple[str, ...] = ()


def has_parts(stage: str) -> bool:
    """Whether there is anything inside `stage` that can be left out."""
    return any(stage in kind.stages for kind in KINDS)


def look_inside(
    case: Case, signature: Signature, oracle: AblatingOracle, stage: str = _INDUCTOR, questions: int = QUESTIONS
) -> Inside:
    """The applications inside `stage` that the failure of `case` needs; the case fails, and is the question of that stage's rung.

    Asks at most `questions`. Raises Stopped."""
    kinds = [kind for kind in KINDS if stage in kind.stages]
    ask = _Asker(case, signature, oracle, questions)
    if not kinds:
        return ask.conclude(None, f"there is no part of {stage} that can be left out")
    try:
        return _looked(kinds, ask)
    except _Spent:
        return ask.conclude(None, f"{questions} questions did not suffice")


def _looked(kinds: Sequence[Kind], ask: _Asker) -> Inside:
    (watched,) = ask([WATCHED])
    if not watched.fails:
        return ask.conclude(None, f"watched, the compiler's answer is another: {watched.answer}")
    if not ask.listed:  # the process died of it, and lived to list nothing
        next(ask([COMPILED]))
    listed = {listing.kind: listing for listing in ask.listed}
    notes: list[str] = []
    for kind, off in _suspects(kinds, listed, ask):
        found = _culprit(kind, listed.get(kind.name), (watched, off), ask)
        if isinstance(found, Culprit):
            return ask.conclude(dataclasses.replace(found, notes=_said_of(kind, kinds, ask)), *notes)
        notes.append(found)
    return ask.conclude(None, *(notes or ("nothing that can be left out of it cures it",)))


class _Spent(Exception):
    """No more questions may be asked."""


class _Asker:
    """Puts questions to the oracle, none of them twice, and keeps the table. `reserve` of them are kept back."""

    def __init__(self, case: Case, signature: Signature, oracle: AblatingOracle, questions: int) -> None:
        self.listed: tuple[Listing, ...] = ()
        self.reserve = 0
        self._case = case
        self._digest = cases.digest(case)
        self._signature = signature
        self._oracle = oracle
        self._questions = questions
        self._before = oracle.queries
        self._rows: dict[Ablation, Row] = {}

    def __call__(self, asked: Sequence[Ablation]) -> Iterator[Row]:
        """The answers, in order. Raises _Spent in place of one that may not be asked."""
        fresh = [ablation for ablation in asked if ablation not in self._rows]
        left = self._questions - self.reserve - sum(bool(row.digest) for row in self._rows.values())
        verdicts = self._oracle.judge_ablated(self._case, fresh[: max(0, left)], self._signature)
        for ablation in asked:
            if ablation not in self._rows:
                verdict = next(verdicts, None)
                if verdict is None:
                    raise _Spent
                self.listed = self.listed or verdict.observation.applications
                self.note(seen_without(ablation, verdict, self._digest))
            yield self._rows[ablation]

    def note(self, row: Row) -> None:
        self._rows.setdefault(row.ablation, row)

    def cured(self) -> tuple[str, ...]:
        """The kinds without which it passes."""
        return tuple(kind for kind in _KIND if (row := self._rows.get(alone(kind))) and row.passes)

    def conclude(self, culprit: Culprit | None, *notes: str) -> Inside:
        """The table has kinds as a whole first, in the compiler's order."""
        order = {WATCHED: -1, COMPILED: 0} | {alone(kind): place for place, kind in enumerate(_KIND, 1)}
        table = sorted(self._rows.values(), key=lambda row: order.get(row.ablation, len(order)))
        return Inside(culprit, tuple(table), self._oracle.queries - self._before, notes)


def seen_without(ablation: Ablation, verdict: Verdict, case: str) -> Row:
    """The row of what was left out of the case of that digest, by the verdict on it."""
    seen = verdict.observation
    rows = seen.divergences or seen.drift or ((seen.within,) if seen.within else ())
    return Row(
        ablation,
        NOT_HERE if seen.invalid.startswith(NOT_HERE) else verdict.outcome.value,
        seen.crash or accuracy_signature(seen.divergences),
        max(rows, key=lambda row: row.excess, default=None),
        seen.seconds,
        ablations.digest(case, ablation),
        verdict.cached,
    )


def _suspects(kinds: Sequence[Kind], listed: dict[str, Listing], ask: _Asker) -> list[tuple[Kind, Row]]:
    """The kinds without which it passes, the last first; after them those without which it fails otherwise, and may well pass if
    less is left out. A kind of which nothing was met is not asked; where the compiler itself dies, nothing is known of any."""
    rows: dict[bool, list[tuple[Kind, Row]]] = {True: [], False: []}
    worth = []
    for kind in kinds:
        listing = listed.get(kind.name, Listing(kind.name))
        if listed and not listing.applications:
            ask.note(Row(alone(kind.name), NOT_HERE if listing.missing else NONE_MET))
        else:
            worth.append(kind)
    for settles in (True, False):
        some = [kind for kind in worth if kind.settles is settles]
        for kind, row in zip(some, ask([alone(kind.name) for kind in some]), strict=True):
            if row.passes or row.answer == Outcome.SLIPPED.value:
                rows[row.passes].insert(0, (kind, row))
        if settles and rows[True]:
            return rows[True]
    return rows[True] + rows[False]


def _culprit(kind: Kind, listing: Listing | None, seen: tuple[Row, Row], ask: _Asker) -> Culprit | str:
    """What of the kind is to blame, or why that is not confirmed. `seen` are the answers with the kind and without."""
    if listing is None:
        return Culprit(kind.name, (), seen) if seen[1].passes else f"without any {kind.what} it fails otherwise"
    groups: list[tuple[Application, ...]] = []
    minimal, rest = True, listing.applications
    while True:
        group, surely = _smallest_group(kind, rest, ask)
        groups.append(group)
        minimal = minimal and surely
        rest = tuple(application for application in rest if application not in group)
        (gone,) = ask([without(kind.name, _names(*groups))])
        if gone.passes:
            break
        # What is off may have made room for what was never listed, another fusion say: nothing but the rest.
        (left,) = ask([alone(kind.name, _names(rest))])
        if not left.fails:
            gone = left if left.passes else gone
            break
    lone = list(ask([alone(kind.name, _names(group)) for group in groups]))
    if not all(row.fails for row in lone):
        return f"{kind.what} {', '.join(_names(*groups))}: alone it does not fail"
    if gone.passes:
        return Culprit(kind.name, tuple(groups), (seen[0], gone, *lone), minimal)
    if len(groups) == 1 and (some := _without_what_it_takes(kind, groups[0], ask)):
        chosen, gone = some
        beside = tuple(application for application in groups[0] if application not in chosen)
        return Culprit(kind.name, (chosen,), (seen[0], gone, *lone), minimal, beside)
    return f"{kind.what} {', '.join(_names(*groups))}: without it the answer is {gone.answer!r}"


def _without_what_it_takes(
    kind: Kind, group: Sequence[Application], ask: _Asker
) -> tuple[tuple[Application, ...], Row] | None:
    """Of a group without which the program does not pass but, say, compiles no more: those of it without which it passes."""
    rows = ask([without(kind.name, [application.name]) for application in group])
    chosen = tuple(application for application, row in zip(group, rows, strict=True) if row.passes)
    (gone,) = ask([without(kind.name, _names(chosen))]) if chosen else [None]
    return (chosen, gone) if gone and gone.passes else None


def _names(*groups: Sequence[Application]) -> list[str]:
    return [application.name for group in groups for application in group]


def _smallest_group(
    kind: Kind, applications: Sequence[Application], ask: _Asker
) -> tuple[tuple[Application, ...], bool]:
    """The fewest applications found that fail with no other of their kind on, and whether it is known that none of them can go."""
    tester = _Applications(kind.name, _names(applications), ask)
    busy = _names([application for application in applications if not application.idle])
    ask.reserve = CONFIRMING
    try:
        kept: Iterable[str] = localise(
            tester.names, tester, neighbours=lambda name: (), suspects=busy if len(busy) < len(applications) else ()
        )
        minimal = True
    except _Spent:
        kept, minimal = tester.smallest, False
    finally:
        ask.reserve = 0
    return tuple(application for application in applications if application.name in set(kept)), minimal


class _Applications:
    """Answers the search: does it fail with just these applications of the kind? `smallest` are the fewest seen to."""

    def __init__(self, kind: str, names: Sequence[str], ask: _Asker) -> None:
        self.names = tuple(names)
        self.smallest = frozenset(names)
        self._kind = kind
        self._ask = ask

    def __call__(self, kept: frozenset[str]) -> bool:
        return self.first([kept]) is not None

    def first(self, candidates: Sequence[frozenset[str]]) -> int | None:
        asked = [alone(self._kind, [name for name in self.names if name in kept]) for kept in candidates]
        for place, row in enumerate(self._ask(asked)):
            if row.fails:
                self.smallest = min(self.smallest, candidates[place], key=len)
                return place
        return None


def _said_of(kind: Kind, kinds: Sequence[Kind], ask: _Asker) -> tuple[str, ...]:
    """What has to be said with a culprit of this kind: what it may stand for, and which other kinds cure as well."""
    others = [other.what for other in kinds[: kinds.index(kind)] if other.name in ask.cured()]
    also = f"it passes without any {' or any '.join(others)} as well, which comes before" if others else ""
    return tuple(filter(None, (kind.note, also)))


def _told(application: Application) -> str:
    return f"{application.name} ({application.about})" if application.about else application.name
