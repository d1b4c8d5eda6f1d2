"""The whole story: capture a case, make sure it fails, reduce it, find the stage, write the repro, verify it.

Reads top to bottom as design §9 does. Prints nothing: `Progress` is told what goes on.
"""

from __future__ import annotations

import dataclasses
import io
import time
from pathlib import Path
from typing import Protocol

from minify import baseline, store
from minify import case as cases
from minify.baseline import Baseline
from minify.capture.script import Suspect, watch_script
from minify.case import Case, Derived
from minify.compare import Tolerance
from minify.emit import Facts, Verification, data_of, emit, inline_values, verify
from minify.errors import (
    EXIT_NO_FAILURE,
    EXIT_REDUCED,
    EXIT_STOPPED_EARLY,
    EXIT_UNSTABLE,
    NoFailure,
    Stopped,
    Unstable,
    UsageError,
)
from minify.localize import Localised, first_stage
from minify.oracle.local import LocalOracle, Manner
from minify.passes import PASSES
from minify.reduce import Reduction, Session, reduce
from minify.report import Report, measure, versions, worst_rows
from minify.runs import Request, RunFolder, StopFlag, clear_attempt, default_workers
from minify.verdict import Verdict

SECONDS_PER_STEP = 300.0  # how long one compile or run of the user's own program may take before it counts as hanging


class Progress(Protocol):
    """Whoever shows a run to the user."""

    def step(self, text: str) -> None:
        """A new step of the story begins."""
        ...

    def searching(self, session: Session) -> None:
        """A query of the search was answered."""
        ...


def run(
    request: Request, folder: RunFolder, stop: StopFlag, progress: Progress, suspects: tuple[Suspect, ...] = ()
) -> Report:
    """Minify the failure that `request` describes. `suspects` are regions captured already.

    Raises MinifyError for everything that is not a report."""
    started = time.monotonic()
    with _oracle(request, folder, stop) as oracle:
        oracle.warm_up()
        suspects = suspects or _watched(request, folder, stop, progress)
        suspect, first = _confirmed(suspects, folder, oracle, progress)
        report = _minify(request, folder, suspect, first, oracle, stop, progress)
    report = dataclasses.replace(report, seconds=round(time.monotonic() - started, 1))
    report.write()
    return report


def _oracle(request: Request, folder: RunFolder, stop: StopFlag) -> LocalOracle:
    manner = Manner(request.kind, folder.store, request.rtol, request.atol, request.reference)
    oracle = LocalOracle(manner, folder.path, request.workers or default_workers(), stopped=stop)
    oracle.timeout, oracle.calibrates = request.timeout or SECONDS_PER_STEP, request.timeout is None
    return oracle


def _watched(request: Request, folder: RunFolder, stop: StopFlag, progress: Progress) -> tuple[Suspect, ...]:
    """Regions that may fail: the case of an earlier attempt, or what running the script under watch shows."""
    if folder.captured() is not None:
        return (Suspect(request.region or 0, folder.case_file, certain=True, part=request.part),)
    return _watch(request, folder, stop, progress)


def _watch(request: Request, folder: RunFolder, stop: StopFlag, progress: Progress) -> tuple[Suspect, ...]:
    if not Path(request.script).is_file():
        raise UsageError(
            f"no script at {request.script}", "it is needed: the run ended before its failure was confirmed"
        )
    progress.step(f"running {Path(request.script).name} under watch")
    return watch_script(request.plan(folder.path), request.timeout or SECONDS_PER_STEP, stop, progress.step).suspects


def _confirmed(
    suspects: tuple[Suspect, ...], folder: RunFolder, oracle: LocalOracle, progress: Progress
) -> tuple[Suspect, Baseline]:
    """The first region whose failure a worker confirms, and what the confirmation showed."""
    reasons: list[NoFailure | Unstable] = []
    for suspect in suspects:
        progress.step(f"{suspect}: does it fail alone, in a fresh process?")
        case = cases.load(suspect.case)
        try:
            first = baseline.confirm(case, suspect, oracle)
        except (NoFailure, Unstable) as reason:
            reasons.append(reason)
            continue
        cases.save(case, folder.case_file)
        return suspect, first
    raise next((reason for reason in reasons if isinstance(reason, Unstable)), reasons[0])


def _minify(
    request: Request,
    folder: RunFolder,
    suspect: Suspect,
    first: Baseline,
    oracle: LocalOracle,
    stop: StopFlag,
    progress: Progress,
) -> Report:
    """From a confirmed case to a report."""
    case = cases.load(folder.case_file)
    session = Session(
        case,
        first.observation,
        first.signature,
        oracle,
        folder.path,
        save_base=lambda base: store.save_base(folder.store, base),
        tell=progress.searching,
        trace=oracle.trace,
    )
    progress.step(f"reducing {cases.op_count(case.graph)} ops: {first.signature}")
    reduction = reduce(session, PASSES, oracle.materialise)
    progress.step("writing the repro")
    if any(isinstance(item.value, Derived) for item in cases.tensor_inputs(session.best)):  # stopped early, then
        with stop.overruled():
            session.replace_best(oracle.materialise(session.best))
    final, session = _plain_values(session, reduction, folder, oracle)
    located = _stage(final, first, oracle, stop, reduction)
    return _finish(request, folder, suspect, first, session, reduction, final, located, oracle, progress)


def _plain_values(
    session: Session, reduction: Reduction, folder: RunFolder, oracle: LocalOracle
) -> tuple[Case, Session]:
    """The final case with small recorded values written out as literals, if it then still fails."""
    final = session.best
    literal = inline_values(final, folder.store)
    if literal != final and not reduction.stopped_by:
        try:
            verdict: Verdict = oracle.judge(literal, session.signature)
        except Stopped:
            return literal, session
        if not verdict.fails:
            return final, session
        session.observation = verdict.observation
    return literal, session


def _stage(final: Case, first: Baseline, oracle: LocalOracle, stop: StopFlag, reduction: Reduction) -> Localised:
    if reduction.stopped_by:
        return Localised("", ())
    try:
        return first_stage(final, first.signature, oracle)
    except Stopped:
        return Localised("", ())


def _finish(
    request: Request,
    folder: RunFolder,
    suspect: Suspect,
    first: Baseline,
    session: Session,
    reduction: Reduction,
    final: Case,
    located: Localised,
    oracle: LocalOracle,
    progress: Progress,
) -> Report:
    """Write the repro, run it in fresh processes, and say how it went."""
    needs_data = bool(data_of(final, folder.store))
    repro = folder.path / "repro.py"
    facts = Facts(stage=located.stage, notes=_notes(first), versions=versions())

    def write(facts: Facts) -> None:
        text = emit(final, session.observation, session.signature, facts, Tolerance(request.rtol, request.atol))
        cases.write_whole(repro, text.encode())

    write(facts)
    if needs_data:
        _write_data(final, folder)
    progress.step(f"verifying {repro.name} in a fresh process")
    runs = 1 if reduction.stopped_by else max(1, request.runs if first.rate == 1 else 5)
    checked = verify(repro, first.signature, runs=runs, timeout=max(oracle.timeout, 120.0) * 2)
    write(dataclasses.replace(facts, reproduced=f"{checked.reproduced}/{checked.runs}"))
    outcome, code, why = _outcome(request, reduction, checked, first, needs_data)
    return Report(
        outcome=outcome,
        exit_code=code,
        kind=request.kind,
        folder=folder.path,
        repro=repro,
        signature=first.signature,
        stage=located.stage,
        rungs=tuple((rung.stage, rung.backend, rung.outcome) for rung in located.rungs),
        original=measure(first.case),
        reduced=measure(final),
        repro_lines=len(repro.read_text().splitlines()),
        queries=oracle.queries,
        search_queries=reduction.search_queries,
        cache_hits=oracle.cache_hits,
        slipped=sum(count.slipped for count in session.counts.values()),
        also_found=tuple(str(signature) for signature in session.slipped),
        verified={"runs": checked.runs, "reproduced": checked.reproduced, "alone": checked.alone and not needs_data},
        one_minimal=reduction.one_minimal,
        stopped_by=reduction.stopped_by or ("needs recorded data" if needs_data else ""),
        passes={name: dataclasses.asdict(count) for name, count in session.counts.items()},
        divergences=worst_rows(session.observation),
        notes=tuple(session.observation.notes),
        message=why,
        region=suspect.region,
        part=suspect.part,
    )


def _write_data(final: Case, folder: RunFolder) -> None:
    import torch

    content = io.BytesIO()
    torch.save(data_of(final, folder.store), content)
    cases.write_whole(folder.path / "repro_data.pt", content.getvalue())


def _notes(first: Baseline) -> tuple[str, ...]:
    notes = []
    if first.rate < 1:
        notes.append(f"shows in {first.failed} of {first.runs} runs of the original program")
    return tuple(notes)


def _outcome(
    request: Request, reduction: Reduction, checked: Verification, first: Baseline, needs_data: bool
) -> tuple[str, int, str]:
    """(outcome, exit code, one line why)."""
    if checked.reproduced == 0:
        return "unstable", EXIT_UNSTABLE, f"the repro does not reproduce in a fresh process: {checked.detail}"
    if first.rate < 1 or checked.reproduced < checked.runs:
        return "unstable", EXIT_UNSTABLE, f"the repro fails in {checked.reproduced} of {checked.runs} fresh runs"
    if reduction.stopped_by:
        return "stopped early", EXIT_STOPPED_EARLY, f"stopped early ({reduction.stopped_by}); `minify resume` goes on"
    if needs_data and not request.data:
        return "stopped early", EXIT_STOPPED_EARLY, "the failure needs recorded data; --data says that is fine"
    return "reduced", EXIT_REDUCED, ""


def no_failure_report(request: Request, folder: RunFolder, error: Exception) -> Report:
    """What `report.json` says where nothing could be minified."""
    code = getattr(error, "exit_code", EXIT_NO_FAILURE)
    outcome = {EXIT_NO_FAILURE: "no failure", EXIT_UNSTABLE: "unstable"}.get(code, "error")
    report = Report(outcome, code, request.kind, folder.path, message=str(error))
    report.write()
    return report


def run_all(request: Request, folder: RunFolder, stop: StopFlag, progress: Progress) -> list[Report]:
    """Minify each failing region that differs from the ones before, each in `region-<n>/` of the folder."""
    suspects = _watch(request, folder, stop, progress)
    reports: list[Report] = []
    seen: set[tuple[object, ...]] = set()
    for suspect in suspects:
        part, single = _region_folder(request, folder, suspect)
        try:
            report = run(part, single, stop, progress)
        except (NoFailure, Unstable) as reason:
            progress.step(f"{suspect}: {reason}")
            continue
        except Stopped as stopped:
            if not reports:
                raise
            reports[-1] = _stopped_before(reports[-1], suspect, stopped)
            break
        key = (report.signature, tuple(sorted(report.reduced.items())))
        if key not in seen:
            reports.append(report)
        seen.add(key)
    if not reports:
        raise NoFailure(f"none of the {len(suspects)} suspected region(s) fails in a fresh process")
    return reports


def _region_folder(request: Request, folder: RunFolder, suspect: Suspect) -> tuple[Request, RunFolder]:
    """A request and a folder for one region; the folder may be there already, from before a resume."""
    single = RunFolder(folder.path / str(suspect).replace(" ", "-"))
    single.path.mkdir(exist_ok=True)
    if not single.store.exists():
        single.store.symlink_to(folder.store)
    clear_attempt(single)
    part = dataclasses.replace(request, region=suspect.region, part=suspect.part, every=False)
    single.save_request(part)
    cases.save(cases.load(suspect.case), single.case_file)
    return part, single


def _stopped_before(report: Report, suspect: Suspect, stopped: Stopped) -> Report:
    """The last report there is, as one of a run that left regions out."""
    why = f"stopped ({stopped.reason}) before {suspect}; `minify resume` goes on"
    return dataclasses.replace(report, exit_code=max(report.exit_code, EXIT_STOPPED_EARLY), message=why)
