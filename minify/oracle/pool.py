"""A local pool of warm worker processes that answer requests in the order given.

Knows nothing of cases, verdicts or torch: a request and a value are any picklable objects, and a worker is any program
that speaks through `minify.channel`. What one process does and how it ends is `worker_process`'s; what must happen
should we be killed is `nest`'s.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import itertools
import os
import pickle
import threading
from collections import deque
from collections.abc import Mapping, Sequence

from minify.oracle.launcher import Launcher
from minify.oracle.nest import Nest, sweep_stale_folders
from minify.oracle.worker_process import GaveUp, Reply, WorkerProcess

__all__ = ["Reply", "WorkerPool"]

START_SECONDS = 300.0
RECYCLE_RSS_BYTES = 6 << 30
_NOT_THE_REQUESTS = ("SIGKILL", "SIGTERM", "cancelled", "cannot start")  # ends that one more worker would not mend


class WorkerPool:
    """Up to `size` warm processes that serve requests in the order given. A context manager; also closed at exit.

    Each worker runs `command` plus the number of its channel's descriptor, in a session of its own (Ctrl-C does not
    reach it), with `environment` on top of ours, MINIFY_SCRATCH and the compiler caches in a folder of its own. One is
    started, or with `forks` forked from a process that has its imports done, when a request finds none warm, and has
    `start_timeout` seconds for that. It is killed, with all it
    started, after a death, a timeout, an answer whose `retire_worker` is true, or one that leaves it larger than
    `recycle_rss_bytes`. Once workers are seen to end by what they are asked, up to `size` more stand by."""

    def __init__(
        self,
        command: Sequence[str],
        size: int,
        *,
        environment: Mapping[str, str] | None = None,
        recycle_rss_bytes: int = RECYCLE_RSS_BYTES,
        start_timeout: float = START_SECONDS,
        forks: bool = False,
    ) -> None:
        if size < 1:
            raise ValueError(f"a pool has 1 worker or more, not {size}")
        self.size = size
        self._environment = dict(environment or {})
        self._recycle_rss_bytes = recycle_rss_bytes
        self._start_timeout = start_timeout
        self._owner = os.getpid()
        self._turn = threading.Condition()
        self._queue: deque[_Job] = deque()
        self._warm: list[WorkerProcess] = []
        self._spent = 0
        self._starting = 0
        self._closed = False
        self._numbers = itertools.count(1)
        sweep_stale_folders()
        self._nest = Nest()
        self._launch = Launcher(command, self._nest.root, forks=forks)
        atexit.register(self.close)
        self._lanes = [threading.Thread(target=self._serve, name=f"minify-lane-{n}", daemon=True) for n in range(size)]
        for lane in self._lanes:
            lane.start()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, request: object, timeout: float | None) -> concurrent.futures.Future[Reply]:
        """Queue `request` (anything picklable but None), to be answered within `timeout` seconds of reaching a worker.

        The future can be cancelled until then. Raises what pickling raises, and RuntimeError on a closed pool."""
        job = _Job(pickle.dumps(request, protocol=pickle.HIGHEST_PROTOCOL), timeout)
        with self._turn:
            if self._closed:
                raise RuntimeError("the worker pool is closed")
            self._queue.append(job)
            self._turn.notify()
        return job.future

    def cancel_pending(self) -> None:
        """Cancel every request that no worker has taken yet; those being worked on go on."""
        with self._turn:
            pending = list(self._queue)
            self._queue.clear()
        for job in pending:
            job.future.cancel()

    def close(self) -> None:
        """Kill every worker and all it started, and remove every folder. What was running ends as `cancelled`.

        May be called again, say after a second Ctrl-C cut it short. In a forked child of ours it does nothing."""
        if os.getpid() != self._owner:
            return
        with self._turn:
            self._closed = True
            self._turn.notify_all()
        self.cancel_pending()
        for lane in self._lanes:
            if lane is not threading.current_thread():
                lane.join()
        while self._warm:
            self._warm.pop().kill()
        self._launch.close()
        self._nest.close()
        atexit.unregister(self.close)

    def _serve(self) -> None:
        """One lane: takes jobs while the pool is open. Lanes share the warm workers, so that few stay busy and warm."""
        while True:
            with self._turn:
                while not self._queue and not self._closed:
                    self._turn.wait()
                if self._closed:
                    return
                job = self._queue.popleft()
            if job.future.set_running_or_notify_cancel():
                self._settle(job)

    def _settle(self, job: _Job) -> None:
        """Answer `job`, whatever happens. A worker that must go is gone before the answer shows."""
        try:
            reply = self._ask(job)
        except Exception as error:  # noqa: BLE001 - an answer that cannot be unpickled here is the caller's to see
            job.future.set_exception(error)
        else:
            job.future.set_result(reply)

    def _ask(self, job: _Job) -> Reply:
        try:
            worker = self._take_worker()
        except OSError as error:
            return Reply(None, "", "cannot start", str(error), 0.0)
        except GaveUp as reason:
            return Reply(None, "", str(reason), "", 0.0)
        keep = False
        try:
            self._stand_by()
            reply = worker.ask(job.request, job.timeout)
            spent = bool(reply.died) or getattr(reply.value, "retire_worker", False)
            if spent:
                self._note_end(reply.died)
            keep = not spent and worker.rss_bytes() <= self._recycle_rss_bytes
        finally:
            if keep:
                with self._turn:
                    self._warm.append(worker)
            else:
                worker.kill()
        return reply

    def _take_worker(self) -> WorkerProcess:
        """The worker that was used last, or a new one. Raises OSError where none can be started."""
        while True:
            with self._turn:
                worker = self._warm.pop() if self._warm else None
            if worker is None:
                return self._start()
            if worker.alive():
                return worker
            worker.kill()

    def _stand_by(self) -> None:
        """Start the worker that will be wanted if the one just taken goes the way of those before: to start takes seconds, on
        a GPU more than many a crash or hang, and can as well go on meanwhile."""
        with self._turn:
            if len(self._warm) + self._starting >= min(self._spent, self.size) or self._closed:
                return
            self._starting += 1
        spare = None
        with contextlib.suppress(OSError, GaveUp):
            spare = self._start()
        with self._turn:
            self._starting -= 1
            if spare is not None:
                self._warm.insert(0, spare)

    def _note_end(self, died: str) -> None:
        """Count the workers that requests cost. Where the system kills one, it is short of memory: whoever is idle goes too."""
        with self._turn:
            self._spent += died not in _NOT_THE_REQUESTS
            idle: list[WorkerProcess] = []
            if died == "SIGKILL":
                self._spent, idle, self._warm = 0, self._warm, []
        for worker in idle:
            worker.kill()

    def _start(self) -> WorkerProcess:
        folder = self._nest.root / str(next(self._numbers))
        return WorkerProcess(self._launch, self._environment, folder, self._start_timeout, lambda: self._closed)


class _Job:
    def __init__(self, request: bytes, timeout: float | None) -> None:
        self.request = request
        self.timeout = timeout
        self.future: concurrent.futures.Future[Reply] = concurrent.futures.Future()
