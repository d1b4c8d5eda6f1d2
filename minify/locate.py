"""The first divergent stage of a script's failure, and what inside it: capture a region, confirm it, climb the ladder, look in.

Reduces nothing. What is found is left in the run's folder as the beginning of a run that does.
"""

from __future__ import annotations

import dataclasses
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from minify import baseline
from minify import case as cases
from minify.attempt import SECONDS_PER_STEP, Attempt, attempt
from minify.baseline import Baseline
from minify.capture.script import Suspect, watch_script
from minify.case import Case
from minify.confirmation import graver
from minify.diagnosis import Diagnosis, diagnose, in_this_folder
from minify.errors import (
    EXIT_NO_FAILURE,
    EXIT_REDUCED,
    EXIT_STOPPED_EARLY,
    EXIT_UNSTABLE,
    FailsInDynamo,
    NoFailure,
    Unstable,
)
from minify.localize import Rung
from minify.progress import Progress
from minify.report import Report, measure, worst_rows
from minify.runs import Request, RunFolder, StopFlag
from minify.verdict import Outcome, Signature

WORDS = {"accuracy": "wrong results", "crash": "crashes"}
# What a healthy program is asked for.
NONE = {"accuracy": Signature("accuracy", "value", "value"), "crash": Signature("crash", "exception")}


@dataclasses.dataclass(frozen=True)
class Judged:
    """A region and what workers say of it: a confirmed failure, or why there is none."""

    kind: str
    suspect: Suspect
    case: Case
    said: Baseline | NoFailure | Unstable


def locate(request: Request, kinds: Sequence[str], folder: RunFolder, stop: StopFlag, progress: Progress) -> Report:
    """The report of a ladder: of the first region that fails in one of `kinds`, or of a healthy one.

    Raises NoFailure and Unstable where there is no case to climb with, UsageError, Stopped and OSError."""
    started = time.monotonic()
    with folder.held():
        try:
            report = first_judged(request, kinds, folder, stop, progress, _climbed)
        except FailsInDynamo as error:
            report = _before_graph(request, folder, error)
    report = dataclasses.replace(report, seconds=round(time.monotonic() - started, 1))
    report.write()
    return report


def first_judged(
    request: Request,
    kinds: Sequence[str],
    folder: RunFolder,
    stop: StopFlag,
    progress: Progress,
    then: Callable[[Attempt, Judged], Report],
) -> Report:
    """What `then` makes of the first region that fails in one of `kinds`, or of a healthy one. A script is watched for one kind
    after another, but for the next only if something raised or died in it.

    Raises as `locate` does, and FailsInDynamo."""
    reasons: list[NoFailure | Unstable] = []
    healthy: list[Judged] = []
    for kind in kinds:
        asked = dataclasses.replace(request, kind=kind)
        progress.step(f"running {Path(request.script).name} under watch for {WORDS[kind]}")
        plan = dataclasses.replace(asked.plan(folder.path), keep=True)
        try:
            watched = watch_script(plan, request.timeout or SECONDS_PER_STEP, stop, progress.step)
        except FailsInDynamo:
            raise
        except (NoFailure, Unstable) as reason:
            reasons.append(reason)
            continue
        with attempt(asked, folder, stop, progress) as this:
            for suspect in watched.suspects:
                judged = _judged(this, suspect)
                if isinstance(judged.said, Baseline):
                    return then(this, judged)
                reasons.append(judged.said)
                healthy += [judged] if isinstance(judged.said, NoFailure) else []
            if healthy and not watched.troubled and not _unstable(reasons):
                return then(this, healthy[0])
    if not healthy or _unstable(reasons):
        raise graver(reasons)
    asked = dataclasses.replace(request, kind=healthy[0].kind)
    with attempt(asked, folder, stop, progress) as this:
        return then(this, healthy[0])


def _unstable(reasons: Sequence[NoFailure | Unstable]) -> bool:
    return any(isinstance(reason, Unstable) for reason in reasons)


def _judged(this: Attempt, suspect: Suspect) -> Judged:
    case = cases.load(suspect.case)
    this.progress.step(f"{suspect}: does it fail alone, in a fresh process?")
    said: Baseline | NoFailure | Unstable
    try:
        said = baseline.confirm(case, suspect, this.oracle)
        case = said.case
    except (NoFailure, Unstable) as reason:
        said = reason
    return Judged(this.request.kind, suspect, case, said)


def signature_of(judged: Judged) -> Signature:
    """The failure to ask for: of a healthy region any wrong value, or any exception."""
    return judged.said.signature if isinstance(judged.said, Baseline) else NONE[judged.kind]


def _climbed(this: Attempt, judged: Judged) -> Report:
    said, suspect, oracle = judged.said, judged.suspect, this.oracle
    failing = said if isinstance(said, Baseline) else None
    this.progress.step(
        f"{suspect}: {failing.signature if failing else 'no failure'}; asking each stage of the compile chain"
    )
    found = diagnose(this, judged.case, signature_of(judged), failing.rate if failing else 0.0)
    outcome, code, message = _ended(said, found)
    known = dataclasses.replace(this.request, region=suspect.region, part=suspect.part, sure=suspect.sure)
    if failing:
        cases.save(judged.case, this.folder.case_file)
        this.folder.save_request(known)
    report = Report(
        outcome,
        code,
        judged.kind,
        this.folder.path,
        signature=failing.signature if failing else None,
        original=measure(judged.case),
        queries=oracle.queries,
        cache_hits=oracle.cache_hits,
        rate=oracle.rate,
        timeout=oracle.timeout,
        divergences=worst_rows(failing.observation) if failing else (),
        message=message,
        region=suspect.region,
        part=suspect.part,
    )
    report = found.told(report, known)
    return report if failing else dataclasses.replace(report, stage="", stage_pair={})


def _ended(said: Baseline | NoFailure | Unstable, found: Diagnosis) -> tuple[str, int, str]:
    """The outcome, the exit code and one line why."""
    located = found.located
    if not isinstance(said, Baseline):
        healthy = bool(located.rungs) and located.rungs[-1].passes
        also = f"; yet {located.stage} alone diverges" if located.stage else ""
        return "no divergence" if healthy else "no failure", EXIT_NO_FAILURE, f"{said.message}{also}"
    if not located.stage:
        why = located.notes[-1] if located.notes else "no rung of the ladder does"
        return "unstable", EXIT_UNSTABLE, f"the region fails, but {why}"
    if said.rate < 1:
        return "unstable", EXIT_UNSTABLE, f"the region fails in {said.failed} of {said.runs} runs"
    if found.stopped:
        return (
            "stopped early",
            EXIT_STOPPED_EARLY,
            f"stopped ({found.stopped}) before it was known what of {located.stage}",
        )
    return "localised", EXIT_REDUCED, ""


def _before_graph(request: Request, folder: RunFolder, error: FailsInDynamo) -> Report:
    """A script that fails in Dynamo's own hands is its own two questions: run as it is, and with the compiler off."""
    command = shlex.join(["python", request.script, *request.args])
    without = f"TORCHDYNAMO_DISABLE=1 {command}"
    rungs = (
        Rung("eager", Outcome.PASSES.value),
        Rung("Dynamo", Outcome.FAILS.value, raised="Dynamo", why=error.message),
    )
    return Report(
        "localised",
        EXIT_REDUCED,
        "crash",
        folder.path,
        stage="Dynamo",
        stage_pair={"fails": command, "passes": without},
        ladder=tuple(
            rung.as_row() | {"replay": in_this_folder(words)}
            for rung, words in zip(rungs, (without, command), strict=True)
        ),
        message=str(error),
    )
