"""How a run ends: its outcome, its exit code and one line why. The only place where these are decided of a verified repro."""

from __future__ import annotations

import dataclasses

from minify.baseline import Baseline
from minify.emit import Verification
from minify.errors import EXIT_REDUCED, EXIT_STOPPED_EARLY, EXIT_UNSTABLE
from minify.reduce import Reduction
from minify.report import Report
from minify.runs import Request


def concluded(
    report: Report, request: Request, first: Baseline, reduction: Reduction, checked: Verification, stopped: str = ""
) -> Report:
    """The report with its outcome, exit code and one line why. `stopped` says why some of it was not asked any more."""
    needs_data = not checked.alone
    report = dataclasses.replace(
        report,
        verified={"runs": checked.runs, "reproduced": checked.reproduced, "alone": checked.alone},
        stopped_by=reduction.stopped_by or ("needs recorded data" if needs_data and not request.data else ""),
    )

    def ended(outcome: str, code: int, why: str) -> Report:
        return dataclasses.replace(report, outcome=outcome, exit_code=code, message=why)

    if checked.reproduced == 0:
        why = f"the repro does not reproduce in a fresh process: {checked.detail}"
        return ended("unstable", EXIT_UNSTABLE, why)
    if first.rate < 1 or checked.reproduced < checked.runs:
        why = f"the repro fails in {checked.reproduced} of {checked.runs} fresh runs"
        return ended("unstable", EXIT_UNSTABLE, why)
    if reduction.stopped_by:
        why = f"stopped early ({reduction.stopped_by}); `minify resume` goes on"
        return ended("stopped early", EXIT_STOPPED_EARLY, why)
    if reduction.unanswered:
        why = f"not 1-minimal: {reduction.unanswered} candidate(s) were never answered; `minify resume` asks them again"
        return ended("stopped early", EXIT_STOPPED_EARLY, why)
    if needs_data and not request.data:
        why = "the failure needs recorded data; --data says that is fine"
        return ended("stopped early", EXIT_STOPPED_EARLY, why)
    late = f"stopped after the search ({stopped}): `minify resume` asks for the stage and the facts that are missing"
    return ended("reduced", EXIT_REDUCED, late if stopped else "")
