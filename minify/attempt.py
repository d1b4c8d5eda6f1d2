"""One go at a request: what every step of it works with. Owns the oracle's life and how a search is set up."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

from minify import store
from minify.case import Case
from minify.interesting import condition
from minify.oracle.local import LocalOracle
from minify.progress import Progress
from minify.reduce import Session
from minify.runs import Request, RunFolder, StopFlag, clear_attempt, default_workers
from minify.verdict import Observation, Signature

SECONDS_PER_STEP = 300.0  # how long one compile or run of the user's own program may take before it counts as hanging


@dataclasses.dataclass(frozen=True)
class Attempt:
    """A request, the folder it is carried out in, the oracle that answers for it, and who stops and who watches it."""

    request: Request
    folder: RunFolder
    oracle: LocalOracle
    stop: StopFlag
    progress: Progress

    def session(self, case: Case, observation: Observation, signature: Signature) -> Session:
        """A search that starts at `case`, of which `observation` was seen, and keeps to `signature`."""
        return Session(
            case,
            observation,
            signature,
            self.oracle,
            self.folder.path,
            save_base=lambda base: store.save_base(self.folder.store, base),
            tell=self.progress.searching,
            trace=self.oracle.trace,
            sizes=self.oracle.sizes,
            interesting=condition(self.request.interesting),
        )


@contextmanager
def attempt(request: Request, folder: RunFolder, stop: StopFlag, progress: Progress) -> Iterator[Attempt]:
    """Workers that are on their way up, and a folder cleared of what an earlier attempt left."""
    workers = request.workers or default_workers()
    with LocalOracle(request.manner(folder.store), folder.path, workers, stopped=stop) as oracle:
        oracle.timeout, oracle.calibrates = request.timeout or SECONDS_PER_STEP, request.timeout is None
        clear_attempt(folder)
        oracle.warm_up()
        yield Attempt(request, folder, oracle, stop, progress)
