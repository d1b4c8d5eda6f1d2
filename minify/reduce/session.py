"""One reduction under way: the gate every candidate goes through, the best case so far, and the counts.

Nothing is accepted that is not strictly smaller in the size order and seen to fail the same way. Each acceptance is on
disk before the search goes on. Knows nothing of torch, nor which pass or strategy a candidate comes from.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from minify import case as cases
from minify.case import Case, Derived, Op, ValueMeta
from minify.errors import InvalidCandidate, PassBug
from minify.oracle import Oracle
from minify.passes.wellformed import well_formed
from minify.sizes import Sizes
from minify.verdict import Divergence, Observation, Outcome, Signature, Verdict, loudness

Build = Callable[[], Case]
T = TypeVar("T")


@dataclasses.dataclass
class Count:
    """What one pass cost and brought. `invalid` candidates were turned down before any compile; `queries` are the answers that
    were not on record."""

    tried: int = 0
    queries: int = 0
    accepted: int = 0
    invalid: int = 0
    slipped: int = 0
    timed_out: int = 0
    seconds: float = 0.0


@dataclasses.dataclass
class _Offered:
    """Candidates given to the oracle so far, with their positions among the `built`, and the bug that ended them."""

    candidates: list[tuple[int, Case]] = dataclasses.field(default_factory=list)
    built: int = 0
    bug: PassBug | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class SetAside:
    """The case that a search ended with, what was seen of it, and the failure that it was held to."""

    case: Case
    observation: Observation
    signature: Signature


class Session:
    """Holds the best case. `save_base(case)` makes a case available for others to derive values from; `trace(case)` runs
    it eagerly, for what its values are like; `sizes(case)` finds out how its sizes hang together; what is not `interesting(case)`
    counts as no candidate. `unanswered` are the digests of candidates that no worker could answer for, since it was last
    cleared. `blamed` are the ops that screens showed to be wrong by themselves, the worst first, with what of their results
    was; `start` is the case begun with. `set_aside` are the results of searches that ended with another failure."""

    def __init__(
        self,
        case: Case,
        observation: Observation,
        signature: Signature,
        oracle: Oracle,
        folder: Path,
        save_base: Callable[[Case], object],
        tell: Callable[[Session], None] = lambda session: None,
        trace: Callable[[Case], Observation] = lambda case: Observation(""),
        interesting: Callable[[Case], bool] = lambda case: True,
        sizes: Callable[[Case], Sizes | None] = lambda case: None,
    ) -> None:
        self._trace = trace
        self._sizes = sizes
        self._measured = ""
        self._interesting = interesting
        self.best = self.start = self._described(case, observation)
        self.observation = self._first_seen = observation
        self.set_aside: list[SetAside] = []
        self.signature = self._asked_for = signature
        self.oracle = oracle
        self.counts: dict[str, Count] = {}
        self.slipped: dict[Signature, Case] = {}
        self.unanswered: set[str] = set()
        self.blamed: dict[str, tuple[Divergence, ...]] = {}
        self.working_on = ""
        self._folder = folder
        self._save_base = save_base
        self._tell = tell
        self._accepted = 0
        self._started = time.monotonic()

    def first(
        self, name: str, builds: Iterable[Build], *, smaller: bool = True, edited: Case | None = None
    ) -> tuple[int, Verdict] | None:
        """The position and verdict of the first candidate that still fails; it becomes the best case if it is smaller.

        `builds` make the candidates; those that make no sense are passed over. `name` says whose idea they were. With
        `smaller` False a candidate may be asked that is no smaller than the best; it is then not accepted. `edited` is the case
        that the candidates are made of, and may derive values from, where that is not the best any more."""
        count = self.counts.setdefault(name, Count())
        self.working_on = name
        started, offered, looked = time.monotonic(), _Offered(), 0
        try:
            asked = self._candidates(builds, offered, smaller, self.best if edited is None else edited)
            verdicts = self.oracle.judge_in_order(asked, self.signature)
            for turn, verdict in enumerate(verdicts):
                position, case = offered.candidates[turn]
                count.invalid += position - looked
                looked = position + 1
                self._note(count, verdict, case)
                if verdict.fails:
                    if cases.size(case) < cases.size(self.best):
                        self._accept(count, case, verdict, name)
                    return position, verdict
            count.invalid += offered.built - looked
            if offered.bug is not None:
                raise offered.bug from offered.bug.__cause__
            return None
        finally:
            count.seconds += time.monotonic() - started

    def glimpse(self, name: str, case: Case) -> Verdict | None:
        """What one run of a candidate shows, whatever its size; None where it is malformed. Accepts nothing."""
        count = self.counts.setdefault(name, Count())
        self.working_on = name
        if not well_formed(case):
            return None
        started = time.monotonic()
        verdict = self.oracle.glimpse(case, self.signature)
        count.seconds += time.monotonic() - started
        self._note(count, verdict, case)
        return verdict

    def replace_best(self, case: Case) -> None:
        """Exchange the best case for the same one with its derived values recorded."""
        self.best = case
        self._write(case, "recorded")

    def begin_again(self) -> None:
        """Set the best case aside, which has turned out to be another failure, and search from the start. What its error has to keep
        was told by that failure, and a louder one asks for more than the one that is looked for may show."""
        self.set_aside.append(SetAside(self.best, self.observation, self.signature))
        self.best, self.observation, self.signature = self.start, self._first_seen, self._asked_for
        self._write(self.best, "begun again")

    def take_back(self) -> None:
        """Let what was set aside first be the best case again: there is none that is more to the point."""
        first = self.set_aside[0]
        self.best, self.observation, self.signature = first.case, first.observation, first.signature
        self.set_aside.clear()
        self._write(self.best, "taken back")

    def hold_to_loudness(self) -> None:
        """Where the user's metric chose the best case, let what it lets pass be no failure from here on: the metric has no say in
        cases that have no place in the original any more, and a small error is easily found beside a large one."""
        if self.observation.metric is not None:
            least = loudness(self.observation.divergences)
            self.signature = dataclasses.replace(self.signature, least=least)

    def measure(self) -> None:
        """Have the best case say how its sizes hang together, where that can be found out and is not known already."""
        digest = cases.digest(self.best)
        known = self.best.sizes is not None and self.best.sizes.of == digest
        if not known and digest != self._measured:
            self.best = dataclasses.replace(self.best, sizes=self._sizes(self.best))
            self._measured = digest

    def base_of_best(self) -> str:
        """The digest under which candidates may derive values from the best case."""
        self._save_base(self.best)
        return cases.digest(self.best)

    def trusting(self, name: str, action: Callable[[], T]) -> T:
        """What `action` of the pass `name` returns. Raises PassBug, with the best case saved, for all it raises but
        InvalidCandidate."""
        try:
            return action()
        except InvalidCandidate:
            raise
        except Exception as error:
            path = self._folder / "pass-bug.case"
            cases.save(self.best, path)
            text = f"pass {name!r} raised {type(error).__name__}: {error}"
            raise PassBug(text, f"please report it with {path}") from error

    def _candidates(self, builds: Iterable[Build], offered: _Offered, smaller: bool, edited: Case) -> Iterator[Case]:
        """The cases worth asking. A bug ends them, and is raised only once all before it were answered, so that looking
        ahead never meets a bug that asking one by one would not."""
        limit = cases.size(self.best)
        for position, build in enumerate(builds):
            try:
                case = self.trusting(self.working_on, build)
            except InvalidCandidate:
                offered.built += 1
                continue
            except PassBug as bug:
                offered.bug = bug
                return
            offered.built += 1
            too_large = smaller and cases.size(case) >= limit
            if too_large or not well_formed(case) or not self._interesting(case):
                continue
            if any(isinstance(item.value, Derived) for item in cases.tensor_inputs(case)):
                self._save_base(edited)
            offered.candidates.append((position, case))
            yield case

    def _note(self, count: Count, verdict: Verdict, case: Case) -> None:
        count.tried += verdict.outcome is not Outcome.INVALID
        count.queries += not verdict.cached
        count.invalid += verdict.outcome is Outcome.INVALID
        count.slipped += verdict.outcome is Outcome.SLIPPED
        count.timed_out += verdict.outcome is Outcome.TIMED_OUT
        if not verdict.answers(self.signature):
            self.unanswered.add(cases.digest(case))
        if (
            verdict.outcome is Outcome.SLIPPED
            and verdict.signature is not None
            and not self._hardly_off(verdict.signature)
        ):
            known = self.slipped.get(verdict.signature)
            if known is None or cases.size(case) < cases.size(known):
                self.slipped[verdict.signature] = case
        self._tell(self)

    def _hardly_off(self, seen: Signature) -> bool:
        """Whether a candidate that slipped shows the same failure and nearly none of it: that is drift, and no other failure."""
        return seen.family == self.signature.family == "value"

    def _accept(self, count: Count, case: Case, verdict: Verdict, name: str) -> None:
        self._write(case, name)
        count.accepted += 1
        self.best = self._described(case, verdict.observation)
        self.observation = verdict.observation
        self._tell(self)

    def _described(self, case: Case, observation: Observation) -> Case:
        """`case` with its values described. A process that died told nothing of them, so eager alone is asked."""
        return annotated(case, observation if observation.trace else self._trace(case))

    def _write(self, case: Case, name: str) -> None:
        self._accepted += 1
        cases.save(case, self._folder / "accepted" / f"{self._accepted:04d}.case")
        line = {
            "accepted": self._accepted,
            "pass": name,
            "digest": cases.digest(case),
            "size": cases.size(case),
            "queries": self.oracle.queries,
            "seconds": round(time.monotonic() - self._started, 3),
        }
        with (self._folder / "journal.jsonl").open("a") as stream:
            stream.write(json.dumps(line) + "\n")


def annotated(case: Case, observation: Observation) -> Case:
    """`case` with each op's `meta` as the run behind `observation` noted it."""
    noted: dict[str, ValueMeta] = dict(observation.trace)
    ops: Sequence[Op] = case.graph.ops
    fresh = tuple(dataclasses.replace(op, meta=noted.get(op.name, op.meta)) for op in ops)
    graph = dataclasses.replace(case.graph, ops=fresh)
    return dataclasses.replace(case, program=dataclasses.replace(case.program, graph=graph))
