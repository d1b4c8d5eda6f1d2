"""Climb the ladder: put each rung to the oracle, and read off the first divergent stage and the pair of answers behind it.

Owns what a ladder's answers mean. Does not know which rungs there are, nor how a question is answered.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from minify import case as cases
from minify.case import Case
from minify.localize.raised import raised_in
from minify.localize.stages import Stage, ladder
from minify.oracle import Oracle
from minify.verdict import Divergence, Outcome, Signature, Verdict, accuracy_signature


@dataclasses.dataclass(frozen=True, slots=True)
class Rung:
    """What one rung showed: the oracle's answer, the failure seen (the one asked for, or another), the numbers of the worst
    float, what it took, and the digest under which the question is on record. `part_of` is the stage's, `raised` the step of the
    compile chain that an exception came from, `why` says in a line why the rung could not be run."""

    stage: str
    outcome: str
    signature: Signature | None = None
    numbers: Divergence | None = None
    seconds: float = 0.0
    cached: bool = False
    digest: str = ""
    part_of: str = ""
    raised: str = ""
    why: str = ""

    @property
    def fails(self) -> bool:
        return self.outcome == Outcome.FAILS.value

    @property
    def passes(self) -> bool:
        return self.outcome == Outcome.PASSES.value

    def as_row(self) -> dict[str, object]:
        """For `report.json`."""
        worst = self.numbers
        numbers = worst and {
            "where": worst.where,
            "max_abs": worst.max_abs,
            "max_rel": worst.max_rel,
            "excess": worst.excess,
            "eager_abs": worst.eager_abs,
        }
        return {
            "stage": self.stage,
            "outcome": self.outcome,
            "signature": None if self.signature is None else dataclasses.asdict(self.signature),
            "numbers": numbers,
            "seconds": round(self.seconds, 3),
            "cached": self.cached,
            "digest": self.digest,
            "raised_in": self.raised,
            "why": self.why,
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Localised:
    """The first divergent stage, "" where there is none, and all rungs, the lowest first; the last is the case itself.

    A stage is named by two rungs only: `failing`, the first that fails, and `passing`, the last below it that passes. What lies
    between was not settled, and is named as well. `notes` say what else the ladder shows."""

    stage: str = ""
    rungs: tuple[Rung, ...] = ()
    failing: Rung | None = None
    passing: Rung | None = None
    notes: tuple[str, ...] = ()

    def pair(self) -> dict[str, str]:
        """For `report.json`: the digests of the two questions that name the stage."""
        if self.failing is None or self.passing is None:
            return {}
        return {"fails": self.failing.digest, "passes": self.passing.digest}

    def rows(self) -> tuple[dict[str, object], ...]:
        return tuple(rung.as_row() for rung in self.rungs)


def first_stage(case: Case, signature: Signature, oracle: Oracle) -> Localised:
    """The first rung that shows the same failure. Raises Stopped."""
    rungs: list[Rung] = []
    questions = ladder(case)
    verdicts = oracle.judge_in_order([question for _, question in questions], signature)
    for (stage, question), verdict in zip(questions, verdicts, strict=True):
        rungs.append(seen_at(stage, question, verdict))
        if verdict.fails and signature.family == "hang":
            break  # each rung above would take the whole timeout to say the same
    return _read(tuple(rungs))


def seen_at(stage: Stage, question: Case, verdict: Verdict) -> Rung:
    """The rung of a stage, by the verdict on the question that it asks."""
    seen = verdict.observation
    rows = seen.divergences or seen.drift or ((seen.within,) if seen.within else ())
    return Rung(
        stage.name,
        verdict.outcome.value,
        seen.crash or accuracy_signature(seen.divergences) or verdict.signature,
        max(rows, key=lambda row: row.excess, default=None),
        seen.seconds,
        verdict.cached,
        cases.digest(question),
        stage.part_of,
        raised_in(seen.frames),
        seen.invalid or seen.worker_lost,
    )


def _read(rungs: tuple[Rung, ...]) -> Localised:
    first = next((place for place, rung in enumerate(rungs) if rung.fails), None)
    if first is None:
        return Localised("", rungs, notes=_otherwise(rungs))
    below = next((place for place in reversed(range(first)) if rungs[place].passes), None)
    if below is None:
        return Localised("", rungs, rungs[first], notes=("no rung below passes, so that no stage is to blame",))
    unsettled = [rung.part_of or rung.stage for rung in rungs[below + 1 : first]]
    stage = " or ".join(dict.fromkeys((*unsettled, rungs[first].stage)))
    notes = (*_otherwise(rungs[:first]), *_later(rungs[first], rungs[first + 1 :]), *_raised(rungs[first], stage))
    return Localised(stage, rungs, rungs[first], rungs[below], notes)


def _otherwise(rungs: Sequence[Rung]) -> tuple[str, ...]:
    """Of rungs that do not show the failure: which of them show another."""
    return tuple(f"at {rung.stage} another failure shows: {rung.signature}" for rung in rungs if rung.signature)


def _later(first: Rung, above: Sequence[Rung]) -> tuple[str, ...]:
    """What of the rungs above the first that fails is not to be expected: that they pass, or show another failure."""
    told = []
    for rung in above:
        if rung.passes:
            told.append(f"it passes again at {rung.stage}")
        elif rung.signature is not None and rung.signature != first.signature:
            told.append(f"at {rung.stage} it shows as {rung.signature}")
    return tuple(told)


def _raised(first: Rung, stage: str) -> tuple[str, ...]:
    """Where the exception was raised, if that is not what the ladder says."""
    if not first.raised or first.raised in stage:
        return ()
    frame = f" ({first.signature.frame})" if first.signature and first.signature.frame else ""
    return (f"raised in {first.raised}{frame}",)
