"""A process that has imported what takes long to import, and forks one worker after another from there.

Both ends of it: `connected` runs in the worker program, `ForkServer` in the process that wants workers. To import torch
and its compiler takes seconds, on a machine with a slow file system a minute; to fork takes milliseconds. Knows
nothing of requests, nor of what is imported.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from minify.channel import Channel, Wire, connect

SERVE = "--fork-server"
WORKS_HERE = sys.platform == "linux"  # elsewhere system libraries start threads of their own, which no fork survives
_FORK = "fork"
_STATUS = "status"
_POLL_SECONDS = 0.02


class Process(Protocol):
    """What we need of a process: `subprocess.Popen` is one."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


# --- in the worker program ----------------------------------------------------------------------------------------------


def connected(arguments: Sequence[str], preload: Callable[[], object], may_fork: Callable[[], bool]) -> Channel:
    """The channel of the worker that this process is: `[..., FD]`, or becomes: `[..., "--fork-server", FD]`. In the second
    case this returns once in each worker that is forked, and never in the process that forks them.

    `preload()` imports. `may_fork()`, called in a fork, says whether what was imported survives that."""
    if arguments[-2] != SERVE:
        preload()
        return connect(arguments[-1])
    descriptor = int(arguments[-1])
    os.set_inheritable(descriptor, False)
    preload()
    link = socket.socket(fileno=descriptor)
    try:
        channel = _serve(link, Wire(link), may_fork)
    except EOFError:  # whoever wanted workers is gone
        os._exit(0)
    link.close()
    return channel


def _serve(link: socket.socket, wire: Wire, may_fork: Callable[[], bool]) -> Channel:
    _say(wire, _survives(may_fork))
    while True:
        word, content = _heard(wire)
        if word == _STATUS:
            _say(wire, _ended(content))
            continue
        _, given, _, _ = socket.recv_fds(link, 1, 2)
        pid = os.fork()
        if not pid:
            return _worker(given[0], given[1], content)
        for descriptor in given:
            os.close(descriptor)
        _say(wire, pid)


def _survives(may_fork: Callable[[], bool]) -> bool:
    pid = os.fork()
    if not pid:
        answer = 1
        with contextlib.suppress(BaseException):
            answer = 0 if may_fork() else 1
        os._exit(answer)
    return os.waitpid(pid, 0)[1] == 0


def _worker(descriptor: int, log: int, environment: Mapping[str, str]) -> Channel:
    """Make a freshly forked process what a started one would be."""
    os.setsid()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.clear()
    os.environ.update(environment)
    return connect(str(descriptor))


def _ended(pid: int) -> int | None:
    """How a forked worker ended, as `Popen.poll` says it; None while it runs."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return -signal.SIGKILL
    return os.waitstatus_to_exitcode(status) if ended else None


def _say(wire: Wire, answer: object) -> None:
    wire.send(pickle.dumps(answer))


def _heard(wire: Wire) -> tuple[str, Any]:
    message = wire.receive()
    assert isinstance(message, tuple)
    return message


# --- in the process that wants workers -----------------------------------------------------------------------------------


class ForkServer:
    """That process, started at once, in a session of its own. Threads may share it.

    `forks` is None until it has said whether it can fork. Raises OSError where it cannot be started."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: int) -> None:
        self.forks: bool | None = None
        self._turn = threading.Lock()
        self._ended: dict[int, int] = {}
        ours, theirs = socket.socketpair()
        ours.settimeout(0.1)
        self._link, self._wire = ours, Wire(ours, self._on_silence)
        self._check: Callable[[], object] = lambda: None
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [*command, SERVE, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **environment},
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def fork(
        self, environment: Mapping[str, str], descriptor: int, log: int, check: Callable[[], object]
    ) -> Process | None:
        """A worker whose channel is `descriptor` and which prints into `log`; None where workers have to be started instead.

        `check` is called while the server is not ready yet, and may raise to give up. Raises EOFError where it is gone."""
        with self._turn:
            self._check = check
            try:
                if self.forks is None:
                    self.forks = bool(self._wire.receive())
                self._check = lambda: (
                    None
                )  # whoever gave up in the middle of a question would leave its answer to the next
                if not self.forks:
                    return None
                self._wire.send(pickle.dumps((_FORK, {**os.environ, **environment})))
                socket.send_fds(self._link, [b"."], [descriptor, log])
                return _Forked(self, int(str(self._wire.receive())))
            except (BrokenPipeError, ConnectionError) as error:
                raise EOFError("the fork server is gone") from error
            finally:
                self._check = lambda: None

    def status(self, pid: int) -> int | None:
        """How a forked worker ended, None while it runs. One whose server is gone counts as killed."""
        with self._turn:
            if pid not in self._ended:
                try:
                    self._wire.send(pickle.dumps((_STATUS, pid)))
                    answer = self._wire.receive()
                except EOFError:
                    answer = -signal.SIGKILL
                if answer is None:
                    return None
                self._ended[pid] = int(str(answer))
            return self._ended[pid]

    def close(self) -> int:
        """End the server, if it has not ended, and say how it did. Its workers are ended by whoever uses them."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=30)
        self._link.close()
        return self._process.returncode or 0

    def _on_silence(self) -> None:
        self._check()
        if self._process.poll() is not None:
            raise EOFError("the fork server ended")


class _Forked:
    """A worker that is a child of the server, not ours."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server = server
        self.pid = pid

    def poll(self) -> int | None:
        return self._server.status(self.pid)

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and timeout is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"worker {self.pid}", timeout)
            time.sleep(_POLL_SECONDS)
        return code
