"""The whole story: capture a case, make sure it fails, reduce it, find the stage, write the repro, verify it.

Reads top to bottom as design §9 does. Prints nothing: `Progress` is told what goes on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from functools import partial
from pathlib import Path

from minify import baseline, store
from minify import case as cases
from minify import certificate as certificates
from minify.baseline import Baseline
from minify.capture.script import Suspect, watch_script
from minify.case import Case, Derived
from minify.certificate import Certificate, certify
from minify.conclusion import concluded
from minify.decisive import Fact, find_facts, told
from minify.emit import (
    EXACT,
    Facts,
    Verification,
    emit,
    inline_values,
    plainer_literals,
    verify,
    with_plainer_literals,
    write_data,
)
from minify.errors import (
    EXIT_REDUCED,
    NoFailure,
    Stopped,
    Unstable,
    UsageError,
)
from minify.interesting import condition, refuse_uninteresting
from minify.localize import Localised, first_stage
from minify.oracle.local import LocalOracle, Manner
from minify.passes import PASSES
from minify.progress import Progress
from minify.reduce import Reduction, Session, find_alone, reduce, worth_a_screen
from minify.report import Report, measure, versions, worst_rows
from minify.runs import Request, RunFolder, StopFlag, clear_attempt, default_workers
from minify.tolerance import Tolerance
from minify.verdict import Observation, Signature, Verdict, alike

SECONDS_PER_STEP = 300.0  # how long one compile or run of the user's own program may take before it counts as hanging


@dataclasses.dataclass(frozen=True)
class Run:
    """What every step of one run works with."""

    request: Request
    folder: RunFolder
    oracle: LocalOracle
    stop: StopFlag
    progress: Progress


@dataclasses.dataclass(frozen=True)
class Confirmed:
    """A failure known to be real. `whole` is the region as captured; `first` and `session` are of it, or of the one op of it
    that fails alone; `searched` queries went into looking for that."""

    suspect: Suspect
    whole: Case
    first: Baseline
    session: Session
    searched: int = 0


@dataclasses.dataclass(frozen=True)
class Written:
    """The case that a repro prints, and which digits of its literals stand."""

    case: Case
    way: str = EXACT


@dataclasses.dataclass(frozen=True)
class Found:
    """What a search and the questions after it came to. A run that was stopped has no certificate and no facts."""

    reduction: Reduction
    certificate: Certificate | None
    facts: tuple[Fact, ...]
    written: Written
    located: Localised


def run(
    request: Request, folder: RunFolder, stop: StopFlag, progress: Progress, suspects: tuple[Suspect, ...] = ()
) -> Report:
    """Minify the failure that `request` describes. `suspects` are regions captured already.

    Raises MinifyError for everything that is not a report."""
    started = time.monotonic()
    with folder.held(), _oracle(request, folder, stop) as oracle:
        clear_attempt(folder)
        this = Run(request, folder, oracle, stop, progress)
        oracle.warm_up()
        confirmed = _confirmed(this, suspects or _watched(this))
        suspect, first, session = confirmed.suspect, confirmed.first, confirmed.session
        reduction = _reduced(this, confirmed)
        certificate, facts = _certified(this, session, reduction), _facts(this, session, reduction)
        written = _plain_values(this, session, reduction)
        located = _stage(this, written.case, first, reduction)
        found = Found(reduction, certificate, facts, written, located)
        checked = _verified(this, session, first, found)
        report = _report(this, session, found)
    report = dataclasses.replace(
        concluded(report, request, first, reduction, checked, stop.reason),
        passing=folder.passing if checked.passing else None,
        region=suspect.region,
        part=suspect.part,
        signature=first.signature,
        original=measure(confirmed.whole),
        search_queries=confirmed.searched + reduction.search_queries,
        seconds=round(time.monotonic() - started, 1),
    )
    report.write()
    return report


def _oracle(request: Request, folder: RunFolder, stop: StopFlag) -> LocalOracle:
    manner = Manner(request.kind, folder.store, request.rtol, request.atol, request.reference)
    oracle = LocalOracle(manner, folder.path, request.workers or default_workers(), stopped=stop)
    oracle.timeout, oracle.calibrates = request.timeout or SECONDS_PER_STEP, request.timeout is None
    return oracle


def _watched(this: Run) -> tuple[Suspect, ...]:
    """Regions that may fail: the case of an earlier attempt, or what running the script under watch shows."""
    request, folder = this.request, this.folder
    if folder.captured() is not None:
        return (Suspect(request.region or 0, folder.case_file, True, part=request.part, sure=request.sure),)
    return watch(request, folder, this.stop, this.progress)


def watch(request: Request, folder: RunFolder, stop: StopFlag, progress: Progress) -> tuple[Suspect, ...]:
    if not Path(request.script).is_file():
        raise UsageError(
            f"no script at {request.script}", "it is needed: the run ended before its failure was confirmed"
        )
    progress.step(f"running {Path(request.script).name} under watch")
    return watch_script(request.plan(folder.path), request.timeout or SECONDS_PER_STEP, stop, progress.step).suspects


def _confirmed(this: Run, suspects: tuple[Suspect, ...]) -> Confirmed:
    """The first region whose failure workers confirm."""
    reasons: list[NoFailure | Unstable] = []
    for suspect in suspects:
        case = cases.load(suspect.case)
        before = this.oracle.queries
        try:
            confirmed = _one_op_of(this, suspect, case)
            if confirmed is None:
                confirmed = _all_of(this, suspect, case, this.oracle.queries - before)
        except (NoFailure, Unstable) as reason:
            reasons.append(reason)
            continue
        cases.save(case, this.folder.case_file)
        known = dataclasses.replace(this.request, region=suspect.region, part=suspect.part, sure=suspect.sure)
        this.folder.save_request(known)
        return confirmed
    raise graver(reasons)


def _all_of(this: Run, suspect: Suspect, case: Case, searched: int) -> Confirmed:
    """The whole region, confirmed. Raises NoFailure and Unstable."""
    refuse_uninteresting(this.request.interesting, case)
    this.progress.step(f"{suspect}: does it fail alone, in a fresh process?")
    first = baseline.confirm(case, suspect, this.oracle)
    return Confirmed(suspect, case, first, _session(this, case, first.observation, first.signature), searched)


def _one_op_of(this: Run, suspect: Suspect, case: Case) -> Confirmed | None:
    """The one op to blame, confirmed by itself, for a region of which an output was surely wrong in the script: two compiles of
    the whole less. None where no op fails alone, in the same way, each time."""
    if this.request.kind != "accuracy" or suspect.sure is None or not worth_a_screen(case):
        return None
    this.progress.step(f"{suspect}: does one of its ops fail alone?")
    oracle, before = this.oracle, this.oracle.queries
    session = _session(this, case, Observation(""), suspect.sure)
    if suspect.sure.family == "value" and baseline.computes_in_half(case, [op.meta for op in session.best.graph.ops]):
        return None  # of what rounds in between, only the whole can tell whether rounding is all there is to it
    if not find_alone(session)[0]:
        return None
    searched, patience = oracle.queries - before, oracle.timeout
    session.replace_best(oracle.materialise(session.best))
    with contextlib.suppress(NoFailure, Unstable):
        first = baseline.confirm(session.best, suspect, oracle)
        if first.rate == 1 and alike(first.signature, suspect.sure):
            session.signature = first.signature
            return Confirmed(suspect, case, first, session, searched)
    oracle.rate, oracle.timeout = 1.0, patience
    clear_attempt(this.folder)
    return None


def _session(this: Run, case: Case, observation: Observation, signature: Signature) -> Session:
    return Session(
        case,
        observation,
        signature,
        this.oracle,
        this.folder.path,
        save_base=lambda base: store.save_base(this.folder.store, base),
        tell=this.progress.searching,
        trace=this.oracle.trace,
        sizes=this.oracle.sizes,
        interesting=condition(this.request.interesting),
    )


def graver(reasons: list[NoFailure | Unstable]) -> NoFailure | Unstable:
    """Of several regions' answers the one to give: a failure that could not be pinned down outweighs none."""
    return next((reason for reason in reasons if isinstance(reason, Unstable)), reasons[0])


def _reduced(this: Run, confirmed: Confirmed) -> Reduction:
    """Shrink the confirmed case as far as it goes; its session then holds what stands without the values of any larger one."""
    session = confirmed.session
    this.progress.step(f"reducing {cases.op_count(session.best.graph)} ops: {session.signature}")
    reduction = reduce(session, PASSES, this.oracle.materialise)
    if any(isinstance(item.value, Derived) for item in cases.tensor_inputs(session.best)):  # stopped early, then
        with this.stop.overruled():
            session.replace_best(this.oracle.materialise(session.best))
    return reduction


def _plain_values(this: Run, session: Session, reduction: Reduction) -> Written:
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


def _stage(this: Run, final: Case, first: Baseline, reduction: Reduction) -> Localised:
    if reduction.stopped_by:
        return Localised("", ())
    try:
        return first_stage(final, first.signature, this.oracle)
    except Stopped:
        return Localised("", ())


def _certified(this: Run, session: Session, reduction: Reduction) -> Certificate | None:
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


def _facts(this: Run, session: Session, reduction: Reduction) -> tuple[Fact, ...]:
    if reduction.stopped_by:
        return ()
    this.progress.step("which of its properties decide?")
    random, save_base = session.observation.random, partial(store.save_base, this.folder.store)
    try:
        return find_facts(session.best, session.signature, this.oracle, random=random, save_base=save_base)
    except Stopped:
        return ()


def _verified(this: Run, session: Session, first: Baseline, found: Found) -> Verification:
    """Write the repro and run it in fresh processes; what came of that is written into its header."""
    repro, stopped = this.folder.repro, bool(found.reduction.stopped_by)
    decisive, others = told(found.facts)
    facts = Facts("", found.located.stage, decisive, others, _notes(first), versions())
    tolerance = Tolerance(this.request.rtol, this.request.atol)

    def write(facts: Facts) -> None:
        text = emit(found.written.case, session.observation, session.signature, facts, tolerance)
        cases.write_whole(repro, text.encode())

    write(facts)
    write_data(found.written.case, this.folder.store, repro)
    passing = _write_passing(this, session, found, tolerance)
    this.progress.step(f"verifying {repro.name} in a fresh process")
    runs = 1 if stopped else max(1, this.request.runs if first.rate == 1 else 5)
    timeout = max(this.oracle.timeout, 120.0) * 2
    checked = verify(repro, first.signature, runs=runs, timeout=timeout, counterpart=passing)
    if not checked.passing:
        this.folder.passing.unlink(missing_ok=True)
    write(dataclasses.replace(facts, reproduced=f"{checked.reproduced}/{checked.runs}"))
    return checked


def _write_passing(this: Run, session: Session, found: Found, tolerance: Tolerance) -> Path | None:
    """The first decisive fact's other side as a program of its own, if it can be written without recorded data."""
    for fact in found.facts:
        case = with_plainer_literals(inline_values(fact.case, this.folder.store), found.written.way)
        if not fact.decisive or cases.recorded_count(case):
            continue
        seen = fact.seen_beside(session.observation)
        with contextlib.suppress(ValueError):  # what failed is not among its results
            words = Facts(counterpart=f"there, {fact.change.what}; here, {fact.change.instead}", versions=versions())
            cases.write_whole(this.folder.passing, emit(case, seen, session.signature, words, tolerance).encode())
            return this.folder.passing
    return None


def _notes(first: Baseline) -> tuple[str, ...]:
    if first.rate < 1:
        return (f"shows in {first.failed} of {first.runs} runs of the original program",)
    return ()


def _report(this: Run, session: Session, found: Found) -> Report:
    """What was done and what it cost; how it is to be judged is not filled in yet."""
    unjudged = _unjudged(this.oracle.bugs)
    for line in unjudged:
        this.progress.step(line)
    final, certificate = found.written.case, found.certificate
    decisive, others = told(found.facts)
    return Report(
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
        also_found=_kept_beside(this, session),
        one_minimal=found.reduction.one_minimal and (certificate is None or certificate.one_minimal),
        certificate=certificate.counts() if certificate else {},
        edits_tried=certificate.tried if certificate else 0,
        rate=this.oracle.rate,
        timeout=this.oracle.timeout,
        stage=found.located.stage,
        rungs=tuple((rung.stage, rung.backend, rung.outcome) for rung in found.located.rungs),
        decisive=decisive,
        not_decisive=others,
        facts=tuple(fact.as_row() for fact in found.facts),
        passes={name: dataclasses.asdict(count) for name, count in session.counts.items()},
        divergences=worst_rows(session.observation),
        notes=(*session.observation.notes, *unjudged),
    )


def _kept_beside(this: Run, session: Session) -> tuple[str, ...]:
    """Other failures that candidates showed, each as the beginning of a run of its own."""
    found = []
    for number, (signature, case) in enumerate(session.slipped.items(), start=1):
        beside = this.folder.within(f"also-found-{number}")
        beside.save_request(dataclasses.replace(this.request, kind=signature.kind, every=False))
        cases.save(case, beside.case_file)
        found.append(f"{signature}; `minify resume {beside.path}` reduces it")
    return tuple(found)


def _unjudged(bugs: list[str]) -> tuple[str, ...]:
    if not bugs:
        return ()
    last = bugs[-1].strip().splitlines()[-1]
    return (f"{len(bugs)} candidate(s) could not be judged, an error of minify's own (please report it): {last}",)
