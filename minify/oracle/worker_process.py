"""One warm worker as a process: its group, its folder, its deadline, and the `Reply` that every request ends in.

Knows nothing of cases, verdicts or torch, nor of queues: `pool` owns those.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from minify.channel import ANSWER, PHASE, READY, Wire
from minify.fork_server import Process
from minify.oracle.nest import GROUP_FILE

_TICK_SECONDS = 0.1
_TAIL_BYTES = 8 << 10
_LOG_LIMIT_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True)
class Reply:
    """What became of one request.

    `value` is the worker's answer, None when it was lost. `phase` is the last one it announced. `died` is empty, or how
    it was lost: a signal (`SIGSEGV`), `exit 3`, `timeout`, `cancelled` (the pool closed), `hung up` (it closed its
    channel and lives on), `cannot start`; `stderr_tail` is then the end of what it printed for this request, on stdout
    too. `seconds` leaves out the start-up of a fresh worker."""

    value: object | None
    phase: str
    died: str
    stderr_tail: str
    seconds: float


class GaveUp(Exception):
    """We stopped waiting for the worker; the text says why, in the words of `Reply.died`."""


Check = Callable[[], object]
Launch = Callable[[Mapping[str, str], int, int, Check], Process]


class WorkerProcess:
    """One process, its group and its folder. One thread uses it at a time; after a reply `died`, only to kill it.

    `launch(environment, channel, log, check)` makes the process, a leader of its own session that was given these two descriptors.
    Where that takes long it calls `check`, which raises GaveUp, and so does the constructor then. Raises OSError and
    EOFError where there can be no process."""

    def __init__(
        self,
        launch: Launch,
        environment: Mapping[str, str],
        folder: Path,
        start_timeout: float,
        cancelled: Callable[[], bool],
    ) -> None:
        self._folder = folder
        self._log = folder / "log"
        self._start_timeout = start_timeout
        self._cancelled = cancelled
        self._ready = False
        self._phase = ""
        self._deadline: float | None = None
        folder.mkdir()
        ours, theirs = socket.socketpair()
        ours.settimeout(_TICK_SECONDS)
        self._wire = Wire(ours, self._on_silence)
        self._allow(start_timeout)
        try:
            with theirs, self._log.open("ab") as log:
                places = {**environment, **private_places(folder)}
                self._process = launch(places, theirs.fileno(), log.fileno(), self._check_patience)
        except BaseException:
            ours.close()
            shutil.rmtree(folder, ignore_errors=True)
            raise
        (folder / GROUP_FILE).write_text(f"{self._process.pid}\n")

    def ask(self, request: bytes, timeout: float | None) -> Reply:
        """Send one request and wait for what becomes of it."""
        value, died, self._phase = None, "", ""
        began = time.monotonic()
        with contextlib.suppress(OSError):
            os.truncate(self._log, 0)
        try:
            if not self._ready:
                self._allow(self._start_timeout)
                self._hear(READY)
                self._ready = True
                began = time.monotonic()
            self._allow(timeout)
            self._wire.send(request)
            value = self._hear(ANSWER)
        except EOFError:
            died = self._cause_of_death()
        except GaveUp as reason:
            died = str(reason)
        tail = self._tail() if died else ""
        return Reply(value, self._phase, died, tail, time.monotonic() - began)

    def alive(self) -> bool:
        return self._process.poll() is None

    def rss_bytes(self) -> int:
        """Resident memory of the process itself; 0 where the system has no /proc."""
        try:
            statm = Path(f"/proc/{self._process.pid}/statm").read_text()
        except OSError:
            return 0
        return int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def kill(self) -> None:
        """Kill the whole group, reap the process, remove the folder. The number of the group is forgotten before the
        process is reaped, since from then on the system may give it to another."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        if self.alive():  # a worker forked this moment does not lead its group yet
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self._process.pid, signal.SIGKILL)
        (self._folder / GROUP_FILE).unlink(missing_ok=True)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=30)
        self._wire.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _allow(self, seconds: float | None) -> None:
        self._deadline = None if seconds is None else time.monotonic() + seconds

    def _hear(self, wanted: str) -> object:
        """What the worker says under `wanted`, taking note of phases before it."""
        while True:
            self._check_patience()
            message = self._wire.receive()
            assert isinstance(message, tuple)
            word, content = message
            if word == PHASE:
                self._phase = str(content)
            elif word == wanted:
                return content

    def _check_patience(self) -> None:
        if self._cancelled():
            raise GaveUp("cancelled")
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise GaveUp("timeout")

    def _on_silence(self) -> None:
        """Called every tick while nothing comes. The death of a worker shows here, and not as the end of the stream,
        where something it forked still holds its end of the channel."""
        self._check_patience()
        if not self.alive():
            raise EOFError("the worker ended")
        with contextlib.suppress(OSError):
            if self._log.stat().st_size > _LOG_LIMIT_BYTES:
                os.truncate(self._log, 0)

    def _cause_of_death(self) -> str:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "hung up"
        return cause(code)

    def _tail(self) -> str:
        try:
            with self._log.open("rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - _TAIL_BYTES))
                return log.read().decode(errors="replace")
        except OSError:
            return ""


def cause(code: int) -> str:
    """How a process ended, in the words of `Reply.died`, by what `Popen.poll` says of it."""
    if code >= 0:
        return f"exit {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def private_places(folder: Path) -> dict[str, str]:
    """TMPDIR stays as it is: torch's precompiled headers lie below it and take each worker 20 s to make anew."""
    return {
        "MINIFY_SCRATCH": str(folder),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }
