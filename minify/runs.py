"""One run's folder, what was asked for, and when to stop. Every run has a new folder; nothing in it is overwritten."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from minify import case as cases
from minify import store
from minify.capture.child import Plan
from minify.case import Case
from minify.errors import UsageError
from minify.oracle.local import Manner
from minify.verdict import Signature


@dataclasses.dataclass(frozen=True)
class Request:
    """What the user asked for. Times in seconds; `region` None takes the first that fails; `workers` None one per core, at
    most 4. `part` and `sure` are the captured suspect's."""

    kind: str
    script: str
    args: tuple[str, ...] = ()
    region: int | None = None
    every: bool = False
    device: str | None = None
    backend: str = "inductor"
    mode: str | None = None
    dynamic: bool | None = None
    train: bool = False
    atol: float | None = None
    rtol: float | None = None
    reference: str = "auto"
    timeout: float | None = None
    budget: float | None = None
    workers: int | None = None
    runs: int = 2
    data: bool = False
    level: str = "auto"
    interesting: str = ""
    metric: str = ""
    metric_tol: float = 0.0
    part: str = ""
    sure: Signature | None = None

    def plan(self, folder: Path) -> Plan:
        """The child's part of it."""
        return Plan(
            script=self.script,
            args=self.args,
            folder=str(folder),
            kind=self.kind,
            rtol=self.rtol,
            atol=self.atol,
            reference=self.reference,
            only=self.region,
            every=self.every,
            device=self.device,
            backend=self.backend,
            mode=self.mode,
            dynamic=self.dynamic,
            train=self.train,
            level=self.level,
            metric=self.metric,
            metric_tol=self.metric_tol,
        )

    def manner(self, root: Path) -> Manner:
        """The workers' part of it; `root` is the store."""
        return Manner(self.kind, root, self.rtol, self.atol, self.reference, self.metric, self.metric_tol)


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """Where a run keeps everything: request, captured case, store, verdicts, accepted cases, journal, repro and report."""

    path: Path

    @property
    def store(self) -> Path:
        return self.path / "store"

    @property
    def case_file(self) -> Path:
        return self.path / "captured.case"

    @property
    def reduced_file(self) -> Path:
        """The smallest case, which `certificate_file` is of."""
        return self.path / "reduced.case"

    @property
    def certificate_file(self) -> Path:
        return self.path / "certificate.json"

    @property
    def evidence(self) -> Path:
        """What the compiler makes of the program with what is to blame, and without it."""
        return self.path / "evidence"

    @property
    def repro(self) -> Path:
        return self.path / "repro.py"

    def within(self, name: str) -> RunFolder:
        """A run's folder inside this one, whose recorded values it shares."""
        inner = RunFolder(self.path / name)
        inner.path.mkdir(exist_ok=True)
        if not inner.store.is_symlink():
            inner.store.symlink_to(Path("..") / self.store.name)
        return inner

    @property
    def passing(self) -> Path:
        """The program nearest to the repro that the compiler gets right."""
        return self.path / "passing.py"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else may run in this folder meanwhile; the hold ends with this process, however that ends.

        Raises UsageError where somebody does."""
        with (self.path / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UsageError(f"another run is at work in {self.path}", "wait for it or stop it") from error
            except OSError:
                pass  # a file system without locks
            yield

    def save_request(self, request: Request) -> None:
        cases.write_whole(self.path / "request.json", json.dumps(dataclasses.asdict(request), indent=2).encode())

    def load_request(self) -> Request:
        """Raises UsageError where the folder is none of ours."""
        try:
            raw = dict(json.loads((self.path / "request.json").read_text()))
            sure = Signature(**raw["sure"]) if raw.get("sure") else None
            return Request(**{**raw, "args": tuple(raw["args"]), "sure": sure})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise UsageError(
                f"{self.path} is not the folder of a minify run: {error}", "give the folder that a run printed"
            ) from error

    def measured_whole(self, request: Request, case: Case, part: str) -> str:
        """The digest of `case`, kept for workers, as that whose outputs the metric is of; "" where it is of none: a backward graph
        returns gradients."""
        return store.save_base(self.store, case) if request.metric and part != "backward" else ""

    def captured(self) -> Case | None:
        return cases.load(self.case_file) if self.case_file.exists() else None


def new_folder(script: str, out: Path | None) -> RunFolder:
    """A folder of its own for a run: `out`, which must be new or empty, or the next free `minify-out/<name>-<n>`.

    Raises UsageError where it cannot be made or written."""
    try:
        if out is not None:
            if out.exists() and (not out.is_dir() or any(out.iterdir())):
                raise UsageError(f"output folder {out} is not empty", "give --out a new folder")
            out.mkdir(parents=True, exist_ok=True)
            return RunFolder(_writable(out.resolve()))
        stem = Path(script).stem
        name = Path(script).resolve().parent.name if stem in ("model", "main", "__main__") else stem
        name = re.sub(r"\W+", "_", name) or "run"
        for number in range(1, 100_000):
            path = Path("minify-out") / f"{name}-{number}"
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            return RunFolder(_writable(path.resolve()))
    except OSError as error:
        raise UsageError(
            f"cannot write to the output folder: {error.strerror}: {error.filename}",
            "give --out a folder that can be written",
        ) from error
    raise UsageError("no free folder name under minify-out", "clean it up or give --out")


def _writable(path: Path) -> Path:
    probe = path / ".probe"
    probe.touch()
    probe.unlink()
    return path


class StopFlag:
    """Why the run is to stop, once it is: Ctrl-C, SIGTERM or the budget. A second Ctrl-C raises KeyboardInterrupt."""

    def __init__(self, budget: float | None = None) -> None:
        self._deadline = None if budget is None else time.monotonic() + budget
        self.reason = ""
        self._overruled = False

    def __call__(self) -> str:
        if self._overruled:
            return ""
        if not self.reason and self._deadline is not None and time.monotonic() > self._deadline:
            self.reason = "budget"
        return self.reason

    @contextmanager
    def overruled(self) -> Iterator[None]:
        """Say nothing for a while: for the little that is still to be done once the run was told to stop."""
        self._overruled = True
        try:
            yield
        finally:
            self._overruled = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take SIGINT and SIGTERM as requests to stop; the handlers before are put back."""

        def on_signal(number: int, frame: FrameType | None) -> None:
            if self.reason:
                raise KeyboardInterrupt
            self.reason = "interrupted" if number == signal.SIGINT else "terminated"

        before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def default_workers() -> int:
    """One worker per core, at most 4: each holds torch and a compiler in memory."""
    return max(1, min(4, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1))


def clear_attempt(folder: RunFolder) -> None:
    """Before a resume: drop the trail of the attempt before. Verdicts, store and the captured case stay, and so does its
    result until there is a new one."""
    for name in ("accepted", "journal.jsonl"):
        path = folder.path / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
