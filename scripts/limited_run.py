"""Run a command under a time limit, in an environment that knows no earlier run, and leave no process behind.

Owns processes and environments; knows nothing of minifiers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# A tool that is told to stop may still write down the best it has; both tools get the same time for it.
GRACE_SECONDS = 10.0
OURS = ("TORCH", "TRITON", "INDUCTOR", "DYNAMO", "MINIFY", "PYTHONPATH")


@dataclass(frozen=True)
class Ran:
    """`status` is the exit status, negative for a signal, and None when the limit came first."""

    status: int | None
    seconds: float
    output: str


def private_environment(folder: Path, **extra: str) -> dict[str, str]:
    """Our environment without what steers torch or minify, with temporary files and caches in `folder`.

    TORCHINDUCTOR_CACHE_DIR is left to follow TMPDIR, as it does for a user: PyTorch's minifier copies into its repro each
    variable that is set, and its repros shall not be longer because we set some."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    places = {"TMPDIR": folder / "tmp", "XDG_CACHE_HOME": folder / "xdg"}
    for place in places.values():
        place.mkdir(parents=True, exist_ok=True)
    return kept | {name: str(place) for name, place in places.items()} | extra


def run_limited(command: Sequence[str], cwd: Path, environment: Mapping[str, str], limit: float, log: Path) -> Ran:
    """Run to the end or to the limit in seconds, then kill whatever the command started. `log` gets stdout and stderr."""
    start = time.monotonic()
    with log.open("w") as sink:
        leader = subprocess.Popen(
            command,
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status: int | None = leader.wait(max(0.0, limit))
        except subprocess.TimeoutExpired:
            status = None
        finally:
            seconds = time.monotonic() - start
            end_all(leader)
    return Ran(status, seconds, log.read_text(errors="replace"))


def end_all(leader: subprocess.Popen[bytes]) -> None:
    """Ask a leader that still runs to stop, then kill it and each process of its session or descent."""
    family = relatives(leader.pid)
    if leader.poll() is None:
        send(os.killpg, leader.pid, signal.SIGTERM)
        try:
            leader.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            family |= relatives(leader.pid)
    for pid in family | relatives(leader.pid):
        send(os.kill, pid, signal.SIGKILL)
    send(os.killpg, leader.pid, signal.SIGKILL)
    leader.wait()


def send(kill: Callable[[int, int], None], pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        kill(pid, number)


def relatives(leader: int) -> set[int]:
    """The leader, its descendants, and what else is in its session. Needs /proc; without it, the leader alone."""
    table = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        table[int(stat.parent.name)] = (int(fields[1]), int(fields[3]))
    found = {leader} | {pid for pid, (_, session) in table.items() if session == leader}
    while more := {pid for pid, (parent, _) in table.items() if parent in found} - found:
        found |= more
    return found
