"""Every failing region of a script, one run after another, each in a folder of its own; and the report of none."""

from __future__ import annotations

import dataclasses

from minify import case as cases
from minify.capture.script import Suspect
from minify.confirmation import graver
from minify.errors import EXIT_NO_FAILURE, EXIT_STOPPED_EARLY, EXIT_UNSTABLE, NoFailure, Stopped, Unstable
from minify.pipeline import run, watch
from minify.progress import Progress
from minify.report import Report
from minify.runs import Request, RunFolder, StopFlag


def run_all(request: Request, folder: RunFolder, stop: StopFlag, progress: Progress) -> list[Report]:
    """Minify each failing region that differs from the ones before, each in `region-<n>/` of the folder."""
    suspects = watch(request, folder, stop, progress)
    reports: list[Report] = []
    reasons: list[NoFailure | Unstable] = []
    seen: set[tuple[object, ...]] = set()
    for suspect in suspects:
        part, single = _region_folder(request, folder, suspect)
        try:
            report = run(part, single, stop, progress, (dataclasses.replace(suspect, case=single.case_file),))
        except (NoFailure, Unstable) as reason:
            progress.step(f"{suspect}: {reason}")
            reasons.append(reason)
            continue
        except Stopped as stopped:
            if not reports:
                raise
            reports[-1] = _stopped_before(reports[-1], suspect, stopped)
            break
        key = (report.signature, report.calls)
        if key not in seen:
            reports.append(report)
        seen.add(key)
    if not reports:
        raise graver(reasons)
    return reports


def _region_folder(request: Request, folder: RunFolder, suspect: Suspect) -> tuple[Request, RunFolder]:
    """A request and a folder for one region; the folder may be there already, from before a resume."""
    single = folder.within(str(suspect).replace(" ", "-"))
    part = dataclasses.replace(request, region=suspect.region, part=suspect.part, every=False)
    single.save_request(part)
    cases.save(cases.load(suspect.case), single.case_file)
    return part, single


def _stopped_before(report: Report, suspect: Suspect, stopped: Stopped) -> Report:
    """The last report there is, as one of a run that left regions out."""
    why = f"stopped ({stopped.reason}) before {suspect}; `minify resume` goes on"
    return dataclasses.replace(report, exit_code=max(report.exit_code, EXIT_STOPPED_EARLY), message=why)


def no_failure_report(request: Request, folder: RunFolder, error: Exception) -> Report:
    """What `report.json` says where nothing could be minified."""
    code = getattr(error, "exit_code", EXIT_NO_FAILURE)
    outcome = {EXIT_NO_FAILURE: "no failure", EXIT_UNSTABLE: "unstable"}.get(code, "error")
    report = Report(outcome, code, request.kind, folder.path, message=str(error))
    report.write()
    return report
