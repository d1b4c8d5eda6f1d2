"""What a worker's reply says of the program it was asked about, and what of the worker."""

from __future__ import annotations

import errno
import os

from minify.errors import Stopped, UsageError, WorkerBug
from minify.oracle.worker_process import Reply
from minify.verdict import Observation, Signature

KILLED_FROM_OUTSIDE = ("SIGKILL", "SIGTERM", "hung up")  # the kernel short of memory, most likely
_BEFORE_COMPILE = {"load": "loading", "eager": "eager", "reference": "eager"}


class Unjudged(WorkerBug):
    """Our own code failed on one case; the next may well be judged."""


def observed(reply: Reply, metric: str) -> Observation:
    """What a reply amounts to; the death of a worker is an observation too. `metric` is what the user's is called.

    Raises Unjudged, Stopped (the pool is closed), WorkerBug (no worker can be started) and UsageError."""
    if not reply.died:
        seen = reply.value
        if isinstance(seen, Observation):
            refuse_full_disk(seen.invalid + seen.crash_text)
            return seen
        if isinstance(seen, UsageError):
            raise seen
        refuse_full_disk(getattr(seen, "text", ""))
        raise Unjudged(
            f"a worker failed: {getattr(reply.value, 'text', reply.value)}",
            "please report this with the run folder",
        )
    if reply.died == "cancelled":
        raise Stopped("closed")
    if reply.died == "cannot start":
        raise WorkerBug(f"no worker can be started: {reply.stderr_tail[-500:]}")
    if reply.died in KILLED_FROM_OUTSIDE or not reply.phase:
        return Observation(reply.phase, worker_lost=f"{reply.died} while in {reply.phase or 'start-up'}")
    if reply.phase == "metric":
        raise UsageError(f"--metric {metric} ends with {reply.died}", "it has the time of one query")
    hang = reply.died == "timeout"
    if reply.phase in _BEFORE_COMPILE:
        why = f"{_BEFORE_COMPILE[reply.phase]} ends with {reply.died}"
        return Observation(reply.phase, invalid=why, seconds=reply.seconds, timed_out=hang)
    signature = Signature("crash", "hang", "hang") if hang else Signature("crash", "signal", reply.died)
    return Observation(
        reply.phase, crash=signature, crash_text=reply.stderr_tail[-2000:], seconds=reply.seconds, timed_out=hang
    )


def refuse_full_disk(text: str) -> None:
    """A full disk says nothing of the case: no answer that it spoils is kept. Raises UsageError."""
    if os.strerror(errno.ENOSPC) in text:
        raise UsageError("no space is left for the output folder or the compiler's temporary files", "make room")
