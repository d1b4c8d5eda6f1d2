"""How the process of a worker comes to be: forked from one that has its imports done or, where that cannot be, started.

Owns the fork server and its folder. Knows nothing of queues and requests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from minify.fork_server import WORKS_HERE, ForkServer, Process
from minify.oracle.nest import GROUP_FILE
from minify.oracle.worker_process import GaveUp, cause, private_places

FOLDER = "fork-server"
_ATTEMPTS = 2
_TAIL_CHARACTERS = 2000


class Launcher:
    """Launches workers that run `command`. With `forks`, the program must know what `fork_server.connected` is given."""

    def __init__(self, command: Sequence[str], folder: Path, *, forks: bool) -> None:
        self._command = tuple(command)
        self._folder = folder / FOLDER
        self._forks = forks and WORKS_HERE
        self._turn = threading.Lock()
        self._server: ForkServer | None = None
        self._words, self._ended = "", 0

    def __call__(self, environment: Mapping[str, str], channel: int, log: int, check: Callable[[], object]) -> Process:
        """A process whose channel is the descriptor `channel` and which prints into `log`. `check` may raise to give up.

        Raises OSError, with the last words of what was to fork it, where there can be none, and GaveUp where that was
        killed, by a system short of memory say."""
        words, ended = "", 0
        for _ in range(_ATTEMPTS):  # one that was killed while idle says so only now
            server = self._up(environment)
            if server is None:
                return _started(self._command, environment, channel, log)
            try:
                forked = server.fork(environment, channel, log, check)
            except EOFError:
                words, ended = self._drop(server)
                continue
            if forked is not None:
                return forked
            self._forks = False
            self._drop(server)
        if ended < 0:
            raise GaveUp(cause(ended))
        raise OSError(words)

    def close(self) -> None:
        with self._turn:
            server = self._server
        if server is not None:
            self._drop(server)

    def _up(self, environment: Mapping[str, str]) -> ForkServer | None:
        with self._turn:
            if self._server is None and self._forks:
                self._folder.mkdir()
                with (self._folder / "log").open("ab") as log:
                    self._server = ForkServer(
                        self._command, {**environment, **private_places(self._folder)}, log.fileno()
                    )
                (self._folder / GROUP_FILE).write_text(f"{self._server.pid}\n")
            return self._server

    def _drop(self, server: ForkServer) -> tuple[str, int]:
        """End the server, whoever is the first to ask; returns what it printed last and how it ended."""
        with self._turn:
            if self._server is server:
                self._server = None
                (self._folder / GROUP_FILE).unlink(missing_ok=True)
                self._words = (self._folder / "log").read_text(errors="replace")[-_TAIL_CHARACTERS:]
                self._ended = server.close()
                shutil.rmtree(self._folder, ignore_errors=True)
            return self._words, self._ended


def _started(command: Sequence[str], environment: Mapping[str, str], channel: int, log: int) -> Process:
    return subprocess.Popen(
        [*command, str(channel)],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env={**os.environ, **environment},
        pass_fds=[channel],
        start_new_session=True,
    )
