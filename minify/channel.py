"""The line between the pool and one of its workers: whole pickled objects over one end of a socket pair.

Owns the framing, the three words a worker may say (`READY`, `PHASE`, `ANSWER`) and the worker's end, `Channel`.
Knows nothing of torch, of cases, or of what a request means. A worker's printing goes elsewhere and cannot disturb it.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import socket
import struct
from collections.abc import Callable, Iterator

READY = "ready"
PHASE = "phase"
ANSWER = "answer"

_LENGTH = struct.Struct(">Q")


class Wire:
    """Whole messages over a stream socket.

    `on_silence` is called each time the socket's own timeout passes without a byte moving. It may raise to give up: the
    wire, cut in the middle of a message, is then of no more use."""

    def __init__(self, link: socket.socket, on_silence: Callable[[], None] = lambda: None) -> None:
        self._link = link
        self._on_silence = on_silence

    def send(self, payload: bytes) -> None:
        """Send one pickled object. Raises EOFError where the other end is gone."""
        for part in (_LENGTH.pack(len(payload)), payload):
            rest = memoryview(part)
            while rest:
                with self._waiting():
                    rest = rest[self._link.send(rest) :]

    def receive(self) -> object:
        """The next object. Raises EOFError where the other end is gone, and whatever unpickling raises."""
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        return pickle.loads(self._read(length))

    def close(self) -> None:
        self._link.close()

    def _read(self, length: int) -> bytearray:
        content = bytearray(length)
        rest = memoryview(content)
        while rest:
            with self._waiting():
                count = self._link.recv_into(rest)
                if not count:
                    raise EOFError("the other end is gone")
                rest = rest[count:]
        return content

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        """Turns a socket's ways of saying "nothing yet" and "gone" into ours."""
        try:
            yield
        except TimeoutError:
            self._on_silence()
        except ConnectionError as error:
            raise EOFError("the other end is gone") from error


class Channel:
    """A worker's end. A worker whose pool is gone has nobody to answer: it ends at once, without clean-up.

    That is `os._exit` and no exception, because a worker catches every exception as something its case did."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._announced = False

    def receive(self) -> object | None:
        """The next request, None when there will be no more. The first call tells the pool that start-up is over."""
        if not self._announced:
            self._announced = True
            self._say(READY, None)
        try:
            return self._wire.receive()
        except EOFError:
            return None

    def phase(self, name: str) -> None:
        """Say how far the request has got, at once, so that the pool knows it should this process die next."""
        self._say(PHASE, name)

    def answer(self, value: object) -> None:
        """Finish the request. Raises what pickling raises, with nothing sent, where `value` cannot be pickled."""
        self._say(ANSWER, value)

    def _say(self, word: str, content: object) -> None:
        message = pickle.dumps((word, content), protocol=pickle.HIGHEST_PROTOCOL)
        try:
            self._wire.send(message)
        except EOFError:
            os._exit(1)


def connect(argv_fd: str) -> Channel:
    """The channel on the descriptor whose number the pool gave as the last argument.

    Programs that the worker starts don't inherit it. A crash is an answer here, so it leaves no core file."""
    descriptor = int(argv_fd)
    os.set_inheritable(descriptor, False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    return Channel(Wire(socket.socket(fileno=descriptor)))
