"""The whole story: capture a case, make sure it fails, reduce it, find the stage, write the repro, verify it.

Reads top to bottom as design §9 does. Prints nothing: `Progress` is told what goes on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from minify import case as cases
from minify import certificate as certificates
from minify import store
from minify.ahead import asking_ahead
from minify.attempt import SECONDS_PER_STEP, Attempt, attempt
from minify.baseline import Baseline
from minify.beside import found_beside
from minify.capture.script import Suspect, watch_script
from minify.case import Case, Derived
from minify.certificate import Certificate, certify
from minify.conclusion import concluded
from minify.confirmation import Confirmed, confirmed_first
from minify.decisive import Fact, find_facts, told
from minify.diagnosis import Diagnosis, diagnose
from minify.emit import (
    EXACT,
    Facts,
    Verification,
    emit,
    inline_values,
    plainer_literals,
    verifying,
    with_plainer_literals,
    write_data,
)
from minify.errors import (
    EXIT_REDUCED,
    Stopped,
    UsageError,
)
from minify.interesting import condition
from minify.passes import PASSES
from minify.passes.effects import written
from minify.progress import Progress, counted
from minify.reduce import Reduction, Session, reduce
from minify.report import Report, measure, unjudged, versions, worst_rows
from minify.runs import Request, RunFolder, StopFlag
from minify.tolerance import Tolerance
from minify.verdict import Verdict, matches

MORE_IS_WRONG = (
    "With the results of these calls in place of eager's the original is right within its tolerance: something else in it is "
    "wrong too."
)


@dataclasses.dataclass(frozen=True)
class Written:
    """The case that a repro prints, and which digits of its literals stand."""

    case: Case
    way: str = EXACT


@dataclasses.dataclass(frozen=True)
class Found:
    """What a search and the questions after it came to; `beside` are other failures, in words. A run that was stopped has no
    certificate, no facts and no diagnosis."""

    reduction: Reduction
    certificate: Certificate | None
    facts: tuple[Fact, ...]
    beside: tuple[str, ...]
    written: Written
    diagnosis: Diagnosis = dataclasses.field(default_factory=Diagnosis)

    @property
    def unasked(self) -> bool:
        """Whether there are answers that only a run that was not told to stop has."""
        return not (self.certificate and self.diagnosis.located.stage) or bool(self.diagnosis.stopped)


def run(
    request: Request, folder: RunFolder, stop: StopFlag, progress: Progress, suspects: tuple[Suspect, ...] = ()
) -> Report:
    """Minify the failure that `request` describes. `suspects` are regions captured already.

    Raises MinifyError for everything that is not a report."""
    started = time.monotonic()
    with folder.held(), attempt(request, folder, stop, progress) as this:
        confirmed = confirmed_first(this, suspects or _watched(this))
        suspect, first, session = confirmed.suspect, confirmed.first, confirmed.session
        reduction = _reduced(this, confirmed)
        first = dataclasses.replace(first, signature=session.signature)
        certificate, facts = _certified(this, session, reduction), _facts(this, session, reduction)
        beside = () if reduction.stopped_by else found_beside(this, session)
        written = _plain_values(this, session, reduction)
        found = Found(reduction, certificate, facts, beside, written)
        with _verifying(this, confirmed, found) as outcome:
            found = dataclasses.replace(found, diagnosis=_diagnosed(this, written.case, first, reduction))
            checked = outcome()
        _conclude_repro(this, confirmed, found, checked)
        report = _report(this, confirmed, found)
    report = dataclasses.replace(
        concluded(report, request, first, reduction, checked, stop.reason if found.unasked else ""),
        passing=folder.passing if checked.passing else None,
        region=suspect.region,
        part=suspect.part,
        signature=first.signature,
        metric=first.observation.metric,
        original=measure(session.start),
        search_queries=confirmed.searched + reduction.search_queries,
        seconds=round(time.monotonic() - started, 1),
    )
    report.write()
    return report


def _watched(this: Attempt) -> tuple[Suspect, ...]:
    """Regions that may fail: the case of an earlier attempt, or what running the script under watch shows."""
    request, folder = this.request, this.folder
    if folder.captured() is not None:
        return (Suspect(request.region or 0, folder.case_file, True, part=request.part, sure=request.sure),)
    if request.kind != "accuracy" or request.metric or this.oracle.workers < 2:
        return watch(request, folder, this.stop, this.progress)
    with asking_ahead(this) as compiles:
        return watch(request, folder, this.stop, this.progress, compiles)


def watch(
    request: Request,
    folder: RunFolder,
    stop: StopFlag,
    progress: Progress,
    compiles: Callable[[Path], None] | None = None,
) -> tuple[Suspect, ...]:
    """The regions that may fail, in the order to be asked. `compiles` is told of one that is about to be compiled. Raises
    UsageError, NoFailure and Stopped."""
    if not Path(request.script).is_file():
        raise UsageError(
            f"no script at {request.script}", "it is needed: the run ended before its failure was confirmed"
        )
    progress.step(f"running {Path(request.script).name} under watch")
    plan, timeout = request.plan(folder.path), request.timeout or SECONDS_PER_STEP
    if compiles is None:
        return watch_script(plan, timeout, stop, progress.step).suspects
    return watch_script(dataclasses.replace(plan, ahead=True), timeout, stop, progress.step, compiles).suspects


def _reduced(this: Attempt, confirmed: Confirmed) -> Reduction:
    """Shrink the confirmed case as far as it goes; its session then holds what stands without the values of any larger one."""
    session = confirmed.session
    this.progress.step(f"reducing {counted(cases.op_count(session.best.graph), 'op')}: {session.signature}")
    reduction = reduce(session, PASSES, this.oracle.materialise, partial(_explains, this, confirmed))
    if any(isinstance(item.value, Derived) for item in cases.tensor_inputs(session.best)):  # stopped early, then
        with this.stop.overruled():
            session.replace_best(this.oracle.materialise(session.best))
    return reduction


def _explains(this: Attempt, confirmed: Confirmed, part: Case) -> bool | None:
    """Whether what these few ops get wrong is enough to make the original wrong: run in eager, with their compiled results in
    place of its own. None where that cannot be told, of gradients and of what is written in place above all."""
    whole, wanted = confirmed.session.start, confirmed.suspect.sure or confirmed.first.signature
    rows = [row for row in confirmed.session.observation.divergences if row.where.startswith("output:")]
    if (
        part.settings.replays
        or this.request.kind != "accuracy"
        or wanted.family != "value"
        or not rows
        or any(map(written, whole.graph.ops))
    ):
        return None
    if cases.op_count(part.graph) >= cases.op_count(whole.graph):
        return None
    seen = this.oracle.patched(part, whole)
    return matches(seen, wanted) if seen.phase == "compare" else None


def _plain_values(this: Attempt, session: Session, reduction: Reduction) -> Written:
    """The final case with small recorded values written out as literals, of few digits if it then still fails."""
    this.progress.step("writing the repro")
    final, wanted = session.best, condition(this.request.interesting)
    literal = inline_values(final, this.folder.store)
    if reduction.stopped_by:
        return Written(literal)
    ways = [way for way in (*plainer_literals(literal), EXACT) if wanted(with_plainer_literals(literal, way))]
    try:
        for way in ways:
            plain = with_plainer_literals(literal, way)
            if plain == final:
                break
            verdict: Verdict = this.oracle.judge(plain, session.signature)
            if verdict.fails:
                session.observation = verdict.observation
                return Written(plain, way)
    except Stopped:
        return Written(literal)
    return Written(final)


def _diagnosed(this: Attempt, final: Case, first: Baseline, reduction: Reduction) -> Diagnosis:
    if reduction.stopped_by:
        return Diagnosis()
    try:
        return diagnose(
            this, final, first.signature, first.rate, into_kernels=False
        )  # builds take longer than all else
    except Stopped:
        return Diagnosis()


def _certified(this: Attempt, session: Session, reduction: Reduction) -> Certificate | None:
    """Every single edit asked of the final case; the search has asked most of them."""
    this.folder.certificate_file.unlink(missing_ok=True)
    cases.save(session.best, this.folder.reduced_file)
    if reduction.stopped_by:
        return None
    try:
        found = certify(
            session.best,
            session.signature,
            this.oracle,
            PASSES,
            partial(store.save_base, this.folder.store),
            condition(this.request.interesting),
        )
    except Stopped:
        return None
    certificates.save(found, this.folder.certificate_file)
    return found


def _facts(this: Attempt, session: Session, reduction: Reduction) -> tuple[Fact, ...]:
    if reduction.stopped_by:
        return ()
    this.progress.step("which of its properties decide?")
    random, save_base = session.observation.random, partial(store.save_base, this.folder.store)
    try:
        return find_facts(session.best, session.signature, this.oracle, random=random, save_base=save_base)
    except Stopped:
        return ()


@contextlib.contextmanager
def _verifying(this: Attempt, confirmed: Confirmed, found: Found) -> Iterator[Callable[[], Verification]]:
    """Write the repro, and run it in fresh processes, which need no worker, while something else is asked. Yields what waits for
    how they end."""
    _write_repro(this, confirmed, found)
    write_data(found.written.case, this.folder.store, this.folder.repro)
    passing = _write_passing(this, confirmed.session, found)
    this.progress.step(f"verifying {this.folder.repro.name} in a fresh process")
    stopped, first = bool(found.reduction.stopped_by), confirmed.first
    runs = 1 if stopped else max(1, this.request.runs if first.rate == 1 else 5)
    timeout = max(this.oracle.timeout, 120.0) * 2
    with verifying(this.folder.repro, first.signature, runs=runs, timeout=timeout, counterpart=passing) as outcome:
        yield outcome


def _conclude_repro(this: Attempt, confirmed: Confirmed, found: Found, checked: Verification) -> None:
    """Put into the repro's header what is known now, and keep its counterpart only if that passes."""
    if not checked.passing:
        this.folder.passing.unlink(missing_ok=True)
    _write_repro(this, confirmed, found, f"{checked.reproduced}/{checked.runs}")


def _write_repro(this: Attempt, confirmed: Confirmed, found: Found, reproduced: str = "") -> None:
    session, stage, inside = confirmed.session, found.diagnosis.located.stage, found.diagnosis.culprit
    decisive, others = told(found.facts)
    notes = _notes(confirmed, found.reduction)
    facts = Facts("", stage, inside, decisive, others, notes, versions(), reproduced)
    text = emit(found.written.case, session.observation, session.signature, facts, _tolerance(this.request))
    cases.write_whole(this.folder.repro, text.encode())


def _tolerance(request: Request) -> Tolerance:
    return Tolerance(request.rtol, request.atol)


def _write_passing(this: Attempt, session: Session, found: Found) -> Path | None:
    """The first decisive fact's other side as a program of its own, if it can be written without recorded data."""
    for fact in found.facts:
        case = with_plainer_literals(inline_values(fact.case, this.folder.store), found.written.way)
        if not fact.decisive or cases.recorded_count(case):
            continue
        seen = fact.seen_beside(session.observation)
        with contextlib.suppress(ValueError):  # what failed is not among its results
            words = Facts(counterpart=f"there, {fact.change.what}; here, {fact.change.instead}", versions=versions())
            text = emit(case, seen, session.signature, words, _tolerance(this.request))
            cases.write_whole(this.folder.passing, text.encode())
            return this.folder.passing
    return None


def _notes(confirmed: Confirmed, reduction: Reduction) -> tuple[str, ...]:
    first, measured = confirmed.first, confirmed.first.observation.metric
    rate = f"shows in {first.failed} of {first.runs} runs of the original program" if first.rate < 1 else ""
    metric = f"In the original program, {measured}." if measured else ""
    other = MORE_IS_WRONG if reduction.explains is False else ""
    return (*confirmed.notes, *filter(None, (rate, metric, other)))


def _report(this: Attempt, confirmed: Confirmed, found: Found) -> Report:
    """What was done and what it cost; how it is to be judged is not filled in yet."""
    session, lost = confirmed.session, unjudged(this.oracle.bugs)
    for line in lost:
        this.progress.step(line)
    final, certificate = found.written.case, found.certificate
    decisive, others = told(found.facts)
    report = Report(
        outcome="",
        exit_code=EXIT_REDUCED,
        kind=this.request.kind,
        folder=this.folder.path,
        repro=this.folder.repro,
        reduced=measure(final),
        calls=tuple(op.target for op in final.graph.ops),
        repro_lines=len(this.folder.repro.read_text().splitlines()),
        queries=this.oracle.queries,
        cache_hits=this.oracle.cache_hits,
        slipped=sum(count.slipped for count in session.counts.values()),
        also_found=found.beside,
        explains=found.reduction.explains,
        one_minimal=found.reduction.one_minimal and (certificate is None or certificate.one_minimal),
        certificate=certificate.counts() if certificate else {},
        edits_tried=certificate.tried if certificate else 0,
        rate=this.oracle.rate,
        timeout=this.oracle.timeout,
        decisive=decisive,
        not_decisive=others,
        facts=tuple(fact.as_row() for fact in found.facts),
        passes={name: dataclasses.asdict(count) for name, count in session.counts.items()},
        divergences=worst_rows(session.observation),
        notes=(*_notes(confirmed, found.reduction), *session.observation.notes, *lost),
    )
    return found.diagnosis.told(report, this.request)
