"""One row of a ladder or of an ablation table asked again, of a script or a repro: does it fail with that left out of the compiler?

Owns what its answer is taken for, as exit codes that `git bisect run` reads: 0 passes, 1 fails, 125 cannot tell.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from functools import partial

from minify import case as cases
from minify.ablation import RUN, WATCHED, Ablation, combined, parse
from minify.attempt import Attempt
from minify.baseline import Baseline
from minify.case import Case
from minify.errors import CHECK_BAD, CHECK_CANNOT_TELL, CHECK_GOOD, NoFailure, Stopped, Unstable, UsageError
from minify.localize import ladder, seen_at
from minify.localize.inside import KINDS, Row, seen_without
from minify.locate import Judged, first_judged, signature_of
from minify.progress import Progress
from minify.report import Report, measure, worst_rows
from minify.runs import Request, RunFolder, StopFlag
from minify.verdict import Outcome, Verdict

CODES = {Outcome.PASSES: CHECK_GOOD, Outcome.FAILS: CHECK_BAD}
CANNOT_TELL = "cannot tell"


@dataclasses.dataclass(frozen=True, slots=True)
class Chosen:
    """What is asked: the program compiled up to `rung`, "" for as it compiles itself, with `ablation` left out."""

    rung: str = ""
    ablation: Ablation = WATCHED


def chosen(rung: str, words: Sequence[tuple[str, str]]) -> Chosen:
    """What `--rung` and pairs of words such as `--off fusion` say. Raises UsageError."""
    known = [*(kind.name for kind in KINDS), RUN]
    try:
        ablations = [parse(*pair) for pair in words]
        for each in ablations:
            if each.kind not in known:
                raise ValueError(f"nothing is known of a {each.kind!r}; give one of {', '.join(known)}")
        return Chosen(rung, combined(ablations))
    except ValueError as error:
        raise UsageError(str(error)) from error


def rerun(
    request: Request, kinds: Sequence[str], asked: Chosen, folder: RunFolder, stop: StopFlag, progress: Progress
) -> Report:
    """The report of one answer, that of the first region that fails in one of `kinds`. Raises UsageError and OSError."""
    started = time.monotonic()
    with folder.held():
        try:
            report = first_judged(request, kinds, folder, stop, progress, partial(_answered, asked))
        except (NoFailure, Unstable) as reason:
            report = _cannot_tell(request.kind, folder, str(reason))
        except Stopped as stopped:
            report = _cannot_tell(request.kind, folder, f"stopped ({stopped.reason})")
    report = dataclasses.replace(report, seconds=round(time.monotonic() - started, 1))
    report.write()
    return report


def _cannot_tell(kind: str, folder: RunFolder, why: str) -> Report:
    return Report(CANNOT_TELL, CHECK_CANNOT_TELL, kind, folder.path, message=why)


def _answered(asked: Chosen, this: Attempt, judged: Judged) -> Report:
    """Raises UsageError where the program has no such rung, and none with such a name to leave out; Stopped."""
    signature = signature_of(judged)
    rungs = {stage.name.lower(): (stage, question) for stage, question in ladder(judged.case)}
    stage, question = rungs.get(asked.rung.lower(), next(reversed(rungs.values())))
    if asked.rung and asked.rung.lower() != stage.name.lower():
        raise UsageError(f"no rung {asked.rung!r}", f"it has {', '.join(stage.name for stage, _ in rungs.values())}")
    this.progress.step(f"{judged.suspect}: compiled up to {stage.name}, with {asked.ablation}")
    whole, *rest = this.oracle.judge_ablated(question, dict.fromkeys((WATCHED, asked.ablation)), signature)
    verdict = rest[0] if rest else whole
    rows = tuple(_rows(question, (whole, *rest), asked.ablation))
    failing = isinstance(judged.said, Baseline)
    report = Report(
        verdict.outcome.value,
        CODES.get(verdict.outcome, CHECK_CANNOT_TELL),
        judged.kind,
        this.folder.path,
        signature=signature if failing else None,
        ladder=() if rest else (seen_at(stage, question, verdict).as_row(),),
        ablations=tuple(row.as_row() for row in rows) if rest else (),
        original=measure(judged.case),
        queries=this.oracle.queries,
        cache_hits=this.oracle.cache_hits,
        rate=this.oracle.rate,
        timeout=this.oracle.timeout,
        divergences=worst_rows(verdict.observation),
        message=verdict.observation.invalid or verdict.observation.worker_lost,
        region=judged.suspect.region,
        part=judged.suspect.part,
    )
    why = _means_nothing(asked.ablation, whole) if rest else ""
    if not failing and rest:
        why = str(judged.said)
    if not why:
        return report
    return dataclasses.replace(report, outcome=CANNOT_TELL, exit_code=CHECK_CANNOT_TELL, message=why)


def _rows(question: Case, verdicts: Sequence[Verdict], ablation: Ablation) -> list[Row]:
    digest = cases.digest(question)
    return [seen_without(left, seen, digest) for left, seen in zip((WATCHED, ablation), verdicts, strict=False)]


def _means_nothing(ablation: Ablation, whole: Verdict) -> str:
    """Why the answer says nothing of what was left out: without that it does not fail either, or there is no such thing."""
    if not whole.fails:
        return f"with nothing left out it does not fail: {whole.outcome.value}"
    listed = {listing.kind: listing for listing in whole.observation.applications}
    for part in ablation.parts:
        known = listed.get(part.kind)
        if known is not None and (unknown := [name for name in part.names if name not in known.names]):
            there = ", ".join(known.names) or "none"
            return f"the compiler came to no {part.kind} {', '.join(unknown)}; there are: {there}"
    return ""
