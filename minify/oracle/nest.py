"""The pool's temporary folder, and the watchdog that sees to it that neither folder nor worker outlives this process.

However this process ends, even by SIGKILL: a small shell, the watchdog, waits for the end of a pipe that only this
process holds open (and whatever it forks without exec), kills each group named in the folder and removes the folder.
It lives outside the workers because a worker stuck in C code with the GIL held could do neither.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

GROUP_FILE = "group"
MARK = ".minify-nest"  # a folder of the user's may bear a name like ours
_TICK_SECONDS = 0.1
_MOST_LOGGED = 64 << 20

# `read` fails on a group file that has no newline yet, so half a number is never taken for a group.
_WATCHDOG = f"""
trap '' HUP INT TERM
read -r line
for file in "$1"/*/{GROUP_FILE}; do read -r group < "$file" && kill -s KILL -- "-$group"; done
for attempt in 1 2 3 4 5; do rm -rf -- "$1" && break; sleep 1; done
"""


class Nest:
    """The folder that holds the workers' folders, and the watchdog over it.

    The folder is locked for as long as we or the watchdog live: `sweep_stale_folders` of another container, which
    cannot see our process, leaves it alone. It lies in `parent`, or where temporary files do."""

    def __init__(self, parent: Path | None = None) -> None:
        self.root = Path(tempfile.mkdtemp(prefix=f"minify-{os.getpid()}-", dir=parent))
        lock = os.open(self.root, os.O_RDONLY)
        with contextlib.suppress(OSError):  # some network file systems know no locks
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (self.root / MARK).touch()
        watched, lifeline = os.pipe()
        self._open = [lifeline, lock]
        self._watchdog = subprocess.Popen(
            ["sh", "-c", _WATCHDOG, "minify-watchdog", str(self.root)],
            stdin=watched,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            pass_fds=[lock],
            start_new_session=True,
        )
        os.close(watched)

    def adopt(self, pid: int) -> Path:
        """Let the group that `pid` leads end with us; returns a folder of its own, which goes with it."""
        folder = self.root / f"process-{pid}"
        folder.mkdir()
        (folder / GROUP_FILE).write_text(f"{pid}\n")
        return folder

    def run(
        self,
        command: Sequence[str | Path],
        log: Path,
        *,
        cwd: Path,
        env: Mapping[str, str],
        timeout: float = float("inf"),
        should_stop: Callable[[], object] = lambda: False,
    ) -> int | None:
        """The exit code of `command`; None where it was killed, being too slow or no longer wanted. Its output goes to `log`, of which
        the beginning is lost where a disk would fill up otherwise. Nothing that it started outlives it. Raises OSError where it
        cannot be started."""
        with log.open("ab") as stream:  # what is written after a cut follows on that, and leaves no gap
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        adopted = None
        try:
            adopted = self.adopt(process.pid)
            return _wait(process, log, timeout, should_stop)
        finally:
            _kill(process)
            if adopted is not None:
                # Its number may be another's by the time the watchdog reads it.
                shutil.rmtree(adopted, ignore_errors=True)

    def __enter__(self) -> Nest:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder and end the watchdog, which then kills nothing: end the processes first."""
        shutil.rmtree(self.root, ignore_errors=True)
        while self._open:
            os.close(self._open.pop())
        self._watchdog.wait()


def _wait(process: subprocess.Popen[bytes], log: Path, timeout: float, should_stop: Callable[[], object]) -> int | None:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline and not should_stop():
        if log.stat().st_size > _MOST_LOGGED:
            os.truncate(log, 0)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_TICK_SECONDS)
    return None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The process and all it started, compile workers included."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=30)


def sweep_stale_folders(parent: Path | None = None) -> None:
    """Remove what was left in `parent`, or where temporary files lie, by those whose process and watchdog were both killed."""
    for folder in (parent or Path(tempfile.gettempdir())).glob("minify-*-*"):
        named = re.fullmatch(r"minify-(\d+)-\w+", folder.name)
        marked = (folder / MARK).is_file()
        if named and marked and not _exists(int(named[1])) and _is_ours_and_unlocked(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _is_ours_and_unlocked(folder: Path) -> bool:
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(lock).st_uid == os.getuid()
    except OSError:
        return False
    finally:
        os.close(lock)
