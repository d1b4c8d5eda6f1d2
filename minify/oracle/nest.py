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
import subprocess
import tempfile
from pathlib import Path

GROUP_FILE = "group"
MARK = ".minify-nest"  # a folder of the user's may bear a name like ours

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
    cannot see our process, leaves it alone."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix=f"minify-{os.getpid()}-"))
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


def sweep_stale_folders() -> None:
    """Remove what pools left in the temporary folder whose process and watchdog were both killed."""
    for folder in Path(tempfile.gettempdir()).glob("minify-*-*"):
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
