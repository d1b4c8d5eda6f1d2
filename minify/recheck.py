"""A run's certificate put to the test: every question asked again, of fresh workers, from nothing but the run's folder."""

from __future__ import annotations

import dataclasses
import tempfile
from functools import partial
from pathlib import Path

from minify import case as cases
from minify import certificate as certificates
from minify import store
from minify.certificate import Certificate, certify, differences
from minify.errors import UsageError
from minify.interesting import condition
from minify.oracle.local import LocalOracle, Manner
from minify.passes import PASSES
from minify.report import recorded_signature
from minify.runs import Request, RunFolder, StopFlag, default_workers

SECONDS_PER_QUESTION = 300.0


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
    """Ask everything again, with no answer known before. Raises UsageError where the folder holds no finished run, and Stopped."""
    request = folder.load_request()
    try:
        case, before = cases.load(folder.reduced_file), certificates.load(folder.certificate_file)
        signature = recorded_signature(folder.path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder.path} has no certificate: {error}", "finish the run with `minify resume`") from error
    with (
        folder.held(),
        tempfile.TemporaryDirectory(prefix="minify-recheck-") as scratch,
        _oracle(request, folder, Path(scratch), stop, workers) as oracle,
    ):
        still_fails = oracle.judge(case, signature).fails
        save_base = partial(store.save_base, folder.store)
        now = certify(case, signature, oracle, PASSES, save_base, condition(request.interesting))
    return Rechecked(now, still_fails, differences(before, now))


def _oracle(request: Request, folder: RunFolder, scratch: Path, stop: StopFlag, workers: int | None) -> LocalOracle:
    manner = Manner(request.kind, folder.store, request.rtol, request.atol, request.reference)
    oracle = LocalOracle(manner, scratch, workers or request.workers or default_workers(), stopped=stop)
    oracle.timeout = request.timeout or SECONDS_PER_QUESTION
    return oracle
