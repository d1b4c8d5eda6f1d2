"""A run's certificate put to the test: every question asked again, of fresh workers, from nothing but the run's folder."""

from __future__ import annotations

import dataclasses
import shutil
from functools import partial

from minify import case as cases
from minify import certificate as certificates
from minify import store
from minify.case import Case
from minify.certificate import Certificate, certify, differences
from minify.errors import UsageError
from minify.interesting import condition
from minify.oracle.local import LocalOracle
from minify.passes import PASSES
from minify.report import recorded
from minify.runs import Request, RunFolder, StopFlag, default_workers
from minify.verdict import Outcome, Signature

SCRATCH = ".recheck"  # in the run's folder, which one command at a time may hold


@dataclasses.dataclass(frozen=True)
class Rechecked:
    """What came of it. `still_fails` says whether the reduced case itself does; `differ` lists the questions that were
    answered otherwise before."""

    certificate: Certificate
    still_fails: bool
    differ: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return self.still_fails and not self.differ and self.certificate.one_minimal


def recheck(folder: RunFolder, stop: StopFlag, workers: int | None = None) -> Rechecked:
    """Ask everything again, with no answer known before. Raises UsageError where the folder holds no finished run or one that
    cannot be run any more, Stopped and OSError."""
    request = folder.load_request()
    try:
        case, before = cases.load(folder.reduced_file), certificates.load(folder.certificate_file)
        signature, rate, timeout = recorded(folder.path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder.path} has no certificate: {error}", "finish the run with `minify resume`") from error
    with folder.held():
        scratch = folder.path / SCRATCH
        shutil.rmtree(scratch, ignore_errors=True)  # of one that was killed
        try:
            manner = request.manner(folder.store)
            with LocalOracle(manner, scratch, workers or request.workers or default_workers(), stopped=stop) as oracle:
                oracle.rate, oracle.timeout, oracle.calibrates = rate, timeout, False
                if request.metric and (whole := folder.captured()) is not None:
                    oracle.whole = folder.measured_whole(request, whole, request.part)
                return _asked_again(case, signature, before, oracle, folder, request)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _asked_again(
    case: Case, signature: Signature, before: Certificate, oracle: LocalOracle, folder: RunFolder, request: Request
) -> Rechecked:
    whole = oracle.judge(case, signature)
    if not whole.fails and whole.outcome is not Outcome.PASSES:
        why = whole.observation.invalid or whole.observation.worker_lost or whole.outcome.value
        raise UsageError(f"the reduced case of {folder.path} cannot be judged any more: {why}", "keep the whole folder")
    save_base, wanted = partial(store.save_base, folder.store), condition(request.interesting)
    now = certify(case, signature, oracle, PASSES, save_base, wanted)
    return Rechecked(now, whole.fails, differences(before, now))
