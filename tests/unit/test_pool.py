"""The pool of workers against a stand-in worker that dies, hangs, floods and lies low. Needs no torch."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minify.oracle.launcher import FOLDER
from minify.oracle.nest import MARK, Nest
from minify.oracle.pool import WorkerPool

Open = Callable[..., WorkerPool]

WORKER = """
import ctypes, os, subprocess, sys, time, types
from minify.fork_server import connected

def note(path, *pids):
    with open(path + ".part", "w") as file:
        file.write(" ".join(map(str, pids)))
    os.rename(path + ".part", path)

def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)
    return os.getpid()

def hang(path):
    note(path, os.getpid())
    time.sleep(1000)

def hang_with_child(path):
    note(path, os.getpid(), subprocess.Popen(["sleep", "1000"]).pid)
    time.sleep(1000)

def hold_gil(path):
    note(path, os.getpid(), subprocess.Popen(["sleep", "1000"]).pid)
    ctypes.PyDLL(None).sleep(1000)

def exit_leaving_fork(path):
    if child := os.fork():
        note(path, os.getpid(), child)
        os._exit(3)
    time.sleep(1000)

def segfault(_):
    print("about to die", flush=True)
    ctypes.string_at(0)

def shout(size):
    for stream in (sys.stdout, sys.stderr):
        stream.write("x" * size)
        stream.flush()

def lie(_):
    sys.modules["nowhere"] = module = types.ModuleType("nowhere")
    exec("class Value: pass", vars(module))
    return module.Value()

ACTIONS = {
    "echo": lambda value: value,
    "pid": lambda _: os.getpid(),
    "session": lambda _: os.getsid(0),
    "environment": lambda _: dict(os.environ),
    "big": lambda size: b"y" * size,
    "retire": lambda _: types.SimpleNamespace(retire_worker=True, pid=os.getpid()),
    "exit": sys.exit,
    "wait_for": wait_for, "hang": hang, "hang_with_child": hang_with_child, "hold_gil": hold_gil,
    "exit_leaving_fork": exit_leaving_fork, "segfault": segfault, "shout": shout, "lie": lie,
}

def preload():
    time.sleep(float(os.environ.get("START_DELAY", 0)))
    with open(os.environ.get("IMPORTS", os.devnull), "a") as file:
        file.write("imported\\n")

channel = connected(sys.argv, preload, lambda: "NO_FORKS" not in os.environ)
while (request := channel.receive()) is not None:
    action, argument = request
    channel.phase(action)
    channel.answer(ACTIONS[action](argument))
"""

PARENT = """
import os, sys, time
from minify.oracle.pool import WorkerPool

_, worker, note, ending, forks = sys.argv
pool = WorkerPool([sys.executable, worker], 2, forks=forks == "forked")
pool.submit(("hold_gil", note), None)
pool.submit(("echo", 1), None).result()
while not os.path.exists(note):
    time.sleep(0.01)
if ending == "linger":
    time.sleep(1000)
elif ending == "vanish":
    os._exit(0)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of our own, so that what a pool leaves behind can be seen."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
def worker(tmp_path: Path) -> Path:
    path = tmp_path / "worker.py"
    path.write_text(WORKER)
    return path


@pytest.fixture(params=["started", "forked"])
def open_pool(request: pytest.FixtureRequest, worker: Path) -> Iterator[Open]:
    """Opens pools of stand-in workers, and closes them after the test."""
    pools = []
    forks = request.param == "forked"

    def open_one(size: int = 1, **settings: object) -> WorkerPool:
        pools.append(WorkerPool([sys.executable, str(worker)], size, forks=forks, **settings))  # type: ignore[arg-type]
        return pools[-1]

    yield open_one
    for pool in pools:
        pool.close()


def ask(pool: WorkerPool, action: str, argument: object = None) -> object:
    """The value of a reply that must be a living worker's."""
    reply = pool.submit((action, argument), 60).result()
    assert not reply.died, reply
    return reply.value


def eventually(condition: Callable[[], bool]) -> bool:
    for _ in range(500):
        if condition():
            return True
        time.sleep(0.02)
    return False


def gone(pid: int) -> bool:
    """Whether a process has ended, be it that nobody has collected it yet."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return not state.strip() or state.startswith("Z")


def noted(path: Path) -> list[int]:
    """The process numbers that a stand-in wrote to `path`, once it has."""
    assert eventually(path.exists)
    return [int(word) for word in path.read_text().split()]


def test_a_worker_answers_what_it_was_asked(open_pool: Open) -> None:
    reply = open_pool().submit(("echo", {"a": [1, 2.5, None]}), 60).result()
    assert (reply.value, reply.phase, reply.died, reply.stderr_tail) == ({"a": [1, 2.5, None]}, "echo", "", "")


def test_twenty_requests_on_two_workers_are_each_answered(open_pool: Open) -> None:
    pool = open_pool(2)
    futures = [pool.submit(("echo", n), 60) for n in range(20)]
    assert [future.result().value for future in futures] == list(range(20))


def test_requests_are_served_in_the_order_given(open_pool: Open) -> None:
    pool, served = open_pool(), []
    futures = [pool.submit(("echo", n), 60) for n in range(10)]
    for number, future in enumerate(futures):
        future.add_done_callback(lambda _, number=number: served.append(number))  # type: ignore[misc]
    futures[-1].result()
    assert eventually(lambda: served == list(range(10)))


def test_two_workers_work_at_the_same_time(open_pool: Open, tmp_path: Path) -> None:
    pool = open_pool(2)
    waiting = pool.submit(("wait_for", str(tmp_path / "go")), 60)
    other = ask(pool, "pid")
    (tmp_path / "go").touch()
    assert waiting.result().value != other


def test_a_lone_asker_keeps_to_one_warm_worker(open_pool: Open) -> None:
    pool = open_pool(4)
    assert len({ask(pool, "pid") for _ in range(6)}) == 1


def test_no_worker_starts_before_it_is_needed(open_pool: Open, temporary: Path) -> None:
    open_pool(2)
    (nest,) = temporary.iterdir()
    assert [path.name for path in nest.iterdir()] == [MARK]


def test_a_worker_killed_in_the_middle_is_reported_with_its_phase(open_pool: Open, tmp_path: Path) -> None:
    pool = open_pool()
    future = pool.submit(("hang", str(tmp_path / "pid")), 60)
    os.kill(noted(tmp_path / "pid")[0], signal.SIGKILL)
    assert (future.result().died, future.result().phase, future.result().value) == ("SIGKILL", "hang", None)
    assert ask(pool, "echo", 1) == 1


def workers_of(temporary: Path) -> int:
    (nest,) = temporary.iterdir()
    return sum(path.is_dir() and path.name != FOLDER for path in nest.iterdir())


def test_once_a_worker_died_of_a_request_the_next_one_stands_by(
    open_pool: Open, tmp_path: Path, temporary: Path
) -> None:
    pool = open_pool()
    first = pool.submit(("wait_for", str(tmp_path / "a")), 60)
    assert eventually(lambda: workers_of(temporary) == 1)
    (tmp_path / "a").touch()
    first.result()
    assert pool.submit(("exit", 3), 60).result().died == "exit 3"
    second = pool.submit(("wait_for", str(tmp_path / "b")), 60)
    assert eventually(lambda: workers_of(temporary) == 2)
    (tmp_path / "b").touch()
    assert second.result().value == ask(pool, "pid")
    assert workers_of(temporary) == 2


def test_no_worker_stands_by_where_the_system_killed_one(open_pool: Open, tmp_path: Path, temporary: Path) -> None:
    pool = open_pool()
    pool.submit(("exit", 3), 60).result()
    running = pool.submit(("hang", str(tmp_path / "pid")), 60)
    os.kill(noted(tmp_path / "pid")[0], signal.SIGKILL)
    assert running.result().died == "SIGKILL"
    ask(pool, "pid")
    assert workers_of(temporary) == 1


def test_a_segfault_is_reported_with_what_the_worker_last_printed(open_pool: Open) -> None:
    pool = open_pool()
    assert ask(pool, "echo", 1) == 1
    reply = pool.submit(("segfault", None), 60).result()
    assert (reply.died, reply.phase) == ("SIGSEGV", "segfault")
    assert reply.stderr_tail.startswith("about to die")
    assert ask(pool, "echo", 2) == 2


def test_an_exit_is_reported_with_its_code(open_pool: Open) -> None:
    assert open_pool().submit(("exit", 3), 60).result().died == "exit 3"


def test_many_deaths_in_a_row_lose_no_request(open_pool: Open) -> None:
    pool = open_pool(2)
    futures = [pool.submit(("exit", 5) if n % 2 else ("echo", n), 60) for n in range(12)]
    replies = [future.result() for future in futures]
    assert [reply.died or reply.value for reply in replies] == ["exit 5" if n % 2 else n for n in range(12)]


@pytest.mark.parametrize("action", ["hang_with_child", "hold_gil"])
def test_a_hang_is_killed_with_all_it_started(open_pool: Open, tmp_path: Path, action: str) -> None:
    pool = open_pool()
    reply = pool.submit((action, str(tmp_path / "pids")), 1.5).result()
    assert (reply.died, reply.phase) == ("timeout", action)
    assert all(eventually(functools.partial(gone, pid)) for pid in noted(tmp_path / "pids"))
    assert ask(pool, "echo", 1) == 1


def test_a_death_shows_even_when_a_fork_still_holds_the_channel(open_pool: Open, tmp_path: Path) -> None:
    reply = open_pool().submit(("exit_leaving_fork", str(tmp_path / "pids")), 60).result()
    assert reply.died == "exit 3"
    assert all(eventually(functools.partial(gone, pid)) for pid in noted(tmp_path / "pids"))


def test_a_worker_that_died_while_idle_costs_no_request(open_pool: Open) -> None:
    pool = open_pool()
    pid = ask(pool, "pid")
    assert isinstance(pid, int)
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: gone(pid))
    assert ask(pool, "pid") != pid


def test_a_big_request_and_a_big_reply_arrive_whole(open_pool: Open) -> None:
    pool = open_pool()
    assert ask(pool, "big", 50 << 20) == b"y" * (50 << 20)
    assert ask(pool, "echo", b"z" * (5 << 20)) == b"z" * (5 << 20)


def test_a_worker_that_prints_a_lot_is_not_held_up(open_pool: Open) -> None:
    pool = open_pool()
    ask(pool, "shout", 5 << 20)
    reply = pool.submit(("exit", "last words"), 60).result()
    assert (reply.died, reply.stderr_tail) == ("exit 1", "last words\n")


def test_what_is_kept_of_a_dead_workers_printing_is_its_end(open_pool: Open) -> None:
    pool = open_pool(environment={"PYTHONUNBUFFERED": "1"})
    reply = pool.submit(("exit", "x" * 100_000 + "the end"), 60).result()
    assert reply.stderr_tail.endswith("xthe end\n")
    assert len(reply.stderr_tail) < 10_000


def test_a_command_that_does_not_exist_is_a_reply() -> None:
    with WorkerPool(["/nowhere/at/all"], 1) as pool:
        replies = [pool.submit(n, 60).result() for n in range(2)]
    assert [reply.died for reply in replies] == ["cannot start"] * 2
    assert "/nowhere/at/all" in replies[0].stderr_tail


def test_a_worker_that_fails_on_the_way_up_is_a_reply() -> None:
    with WorkerPool([sys.executable, "-c", "import no_such_module"], 1) as pool:
        reply = pool.submit(1, 60).result()
    assert (reply.died, reply.phase) == ("exit 1", "")
    assert "no_such_module" in reply.stderr_tail


def test_a_worker_that_never_gets_ready_is_given_up(open_pool: Open) -> None:
    pool = open_pool(environment={"START_DELAY": "1000"}, start_timeout=0.5)
    assert pool.submit(("echo", 1), None).result().died == "timeout"


def test_start_up_is_not_charged_to_the_request(open_pool: Open) -> None:
    pool = open_pool(environment={"START_DELAY": "2.2"})
    reply = pool.submit(("echo", 1), 2).result()
    assert reply.value == 1
    assert reply.seconds < 2.2


def test_a_worker_that_asks_to_retire_is_replaced(open_pool: Open) -> None:
    pool = open_pool()
    value = ask(pool, "retire")
    assert gone(value.pid)  # type: ignore[attr-defined]
    assert ask(pool, "pid") != value.pid  # type: ignore[attr-defined]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_a_worker_that_grew_too_large_is_replaced(open_pool: Open) -> None:
    pool = open_pool(recycle_rss_bytes=1)
    assert ask(pool, "pid") != ask(pool, "pid")


def test_a_request_that_cannot_be_pickled_is_refused_at_once(open_pool: Open) -> None:
    pool = open_pool()
    with pytest.raises((TypeError, AttributeError)):
        pool.submit(("echo", threading.Lock()), 60)
    assert ask(pool, "echo", 1) == 1


def test_an_answer_that_cannot_be_unpickled_is_the_askers_error(open_pool: Open) -> None:
    pool = open_pool()
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        pool.submit(("lie", None), 60).result()
    assert ask(pool, "echo", 1) == 1


def test_workers_have_folders_of_their_own_and_share_the_rest(open_pool: Open, tmp_path: Path) -> None:
    pool = open_pool(2, environment={"EXTRA": "yes", "TRITON_CACHE_DIR": "/elsewhere"})
    waiting = pool.submit(("wait_for", str(tmp_path / "go")), 60)
    first = ask(pool, "environment")
    (tmp_path / "go").touch()
    pool.submit(("exit", 0), 60).result()
    waiting.result()
    second = ask(pool, "environment")
    assert isinstance(first, dict) and isinstance(second, dict)
    assert first["MINIFY_SCRATCH"] != second["MINIFY_SCRATCH"]
    assert first["TORCHINDUCTOR_CACHE_DIR"] == first["MINIFY_SCRATCH"] + "/inductor"
    assert first["TRITON_CACHE_DIR"] == first["MINIFY_SCRATCH"] + "/triton"
    assert (first["TMPDIR"], first["EXTRA"]) == (os.environ["TMPDIR"], "yes")


def test_ctrl_c_does_not_reach_the_workers(open_pool: Open) -> None:
    assert ask(open_pool(), "session") != os.getsid(0)


def test_pending_requests_can_be_cancelled(open_pool: Open, tmp_path: Path) -> None:
    pool = open_pool()
    running = pool.submit(("wait_for", str(tmp_path / "go")), 60)
    assert eventually(running.running)
    pending = [pool.submit(("echo", n), 60) for n in range(3)]
    assert pending[1].cancel()
    assert not running.cancel()
    pool.cancel_pending()
    (tmp_path / "go").touch()
    assert not running.result().died
    assert all(future.cancelled() for future in pending)
    assert ask(pool, "echo", 1) == 1


def test_a_cancelled_request_is_never_sent(open_pool: Open, tmp_path: Path) -> None:
    pool = open_pool()
    running = pool.submit(("wait_for", str(tmp_path / "go")), 60)
    assert eventually(running.running)
    pool.submit(("hang", str(tmp_path / "pid")), 60).cancel()
    (tmp_path / "go").touch()
    assert ask(pool, "echo", 1) == 1
    assert not (tmp_path / "pid").exists()


def test_close_ends_what_is_running_and_leaves_nothing(open_pool: Open, tmp_path: Path, temporary: Path) -> None:
    open_pool().close()
    files = len(list(Path("/dev/fd").iterdir()))
    pool = open_pool(2)
    running = pool.submit(("hold_gil", str(tmp_path / "pids")), None)
    warm = ask(pool, "pid")
    pids = noted(tmp_path / "pids")
    pending = [pool.submit(("hang", str(tmp_path / f"pid{n}")), None) for n in range(3)]
    pool.close()
    pool.close()
    assert (running.result().died, running.result().phase) == ("cancelled", "hold_gil")
    assert all(future.cancelled() or future.result().died == "cancelled" for future in pending)
    assert isinstance(warm, int)
    assert all(eventually(functools.partial(gone, pid)) for pid in [warm, *pids])
    assert [thread for thread in threading.enumerate() if "minify" in thread.name] == []
    assert (list(temporary.iterdir()), len(list(Path("/dev/fd").iterdir()))) == ([], files)
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(("echo", 1), 60)


# --- the process that forks them -----------------------------------------------------------------------------------------


@pytest.fixture
def forking(worker: Path) -> Iterator[WorkerPool]:
    with WorkerPool([sys.executable, str(worker)], 1, forks=True) as pool:
        yield pool


def server_of(temporary: Path) -> int:
    (group,) = temporary.glob(f"*/{FOLDER}/group")
    return int(group.read_text())


def test_workers_of_one_server_import_once(worker: Path, tmp_path: Path) -> None:
    imports = tmp_path / "imports"
    with WorkerPool([sys.executable, str(worker)], 2, forks=True, environment={"IMPORTS": str(imports)}) as pool:
        futures = [pool.submit(("exit", 1), 60) for _ in range(6)]
        assert [future.result().died for future in futures] == ["exit 1"] * 6
    assert imports.read_text() == "imported\n"


def test_a_worker_outlives_the_server_and_the_next_comes_from_a_new_one(forking: WorkerPool, temporary: Path) -> None:
    pid, first = ask(forking, "pid"), server_of(temporary)
    os.kill(first, signal.SIGKILL)
    assert eventually(lambda: gone(first))
    forking.submit(("exit", 1), 60).result()
    assert ask(forking, "pid") != pid
    assert server_of(temporary) != first


def test_a_worker_whose_server_died_as_well_counts_as_killed(
    forking: WorkerPool, tmp_path: Path, temporary: Path
) -> None:
    future = forking.submit(("hang", str(tmp_path / "pid")), 60)
    (pid,) = noted(tmp_path / "pid")
    os.kill(server_of(temporary), signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    assert future.result().died == "SIGKILL"
    assert ask(forking, "echo", 1) == 1


def test_where_a_fork_would_not_work_workers_are_started(worker: Path, temporary: Path) -> None:
    with WorkerPool([sys.executable, str(worker)], 1, forks=True, environment={"NO_FORKS": "1"}) as pool:
        assert ask(pool, "echo", 1) == 1
        assert not list(temporary.glob(f"*/{FOLDER}"))


def test_a_server_that_fails_on_the_way_up_is_a_reply() -> None:
    with WorkerPool([sys.executable, "-c", "import no_such_module"], 1, forks=True) as pool:
        reply = pool.submit(1, 60).result()
    assert reply.died == "cannot start"
    assert "no_such_module" in reply.stderr_tail


def test_a_server_killed_on_the_way_up_says_nothing_of_the_request(worker: Path, temporary: Path) -> None:
    with WorkerPool([sys.executable, str(worker)], 1, forks=True, environment={"START_DELAY": "1000"}) as pool:
        future = pool.submit(("echo", 1), 60)
        for _ in range(2):
            assert eventually(lambda: bool(list(temporary.glob(f"*/{FOLDER}/group"))))
            server = server_of(temporary)
            os.kill(server, signal.SIGKILL)
            assert eventually(
                lambda server=server: not list(temporary.glob(f"*/{FOLDER}/group")) or server_of(temporary) != server
            )
        assert (future.result().died, future.result().phase) == ("SIGKILL", "")


def test_a_pool_that_is_closed_does_not_wait_for_the_server(worker: Path) -> None:
    pool = WorkerPool([sys.executable, str(worker)], 1, forks=True, environment={"START_DELAY": "1000"})
    future = pool.submit(("echo", 1), None)
    assert eventually(future.running)
    pool.close()
    assert future.result().died == "cancelled"


def test_a_pool_has_at_least_one_worker() -> None:
    with pytest.raises(ValueError, match="not 0"):
        WorkerPool(["true"], 0)


@pytest.mark.parametrize("forks", ["started", "forked"])
@pytest.mark.parametrize("ending", ["SIGKILL", "SIGTERM", "SIGINT", "exit", "vanish"])
def test_nothing_outlives_a_parent(worker: Path, tmp_path: Path, temporary: Path, ending: str, forks: str) -> None:
    """Even with a worker that holds the GIL in C code, and however the parent goes."""
    script, note = tmp_path / "parent.py", tmp_path / "pids"
    script.write_text(PARENT)
    argument = "linger" if ending.startswith("SIG") else ending
    command = [sys.executable, str(script), str(worker), str(note), argument, forks]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL) as parent:
        pids = noted(note)
        assert not ending.startswith("SIG") or not any(gone(pid) for pid in pids)
        if ending.startswith("SIG"):
            os.killpg(parent.pid, signal.Signals[ending])
        parent.wait(timeout=60)
    assert all(eventually(functools.partial(gone, pid)) for pid in pids)
    assert eventually(lambda: list(temporary.iterdir()) == [])


def test_folders_of_dead_parents_are_swept_and_no_others(open_pool: Open, temporary: Path) -> None:
    with subprocess.Popen(["true"]) as dead:
        pass
    stale, alive, guarded = (
        temporary / f"minify-{pid}-{n}x" for n, pid in enumerate((dead.pid, os.getpid(), dead.pid))
    )
    others = [temporary / "minify-tests-abc", temporary / f"minify-{dead.pid}"]
    for folder in (stale, alive, guarded, *others):
        (folder / "1").mkdir(parents=True)
        (folder / MARK).touch()
    lock = os.open(guarded, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    open_pool().close()
    os.close(lock)
    assert set(temporary.iterdir()) == {alive, guarded, *others}


def test_a_folder_of_the_users_that_bears_a_name_like_ours_is_left_alone(open_pool: Open, temporary: Path) -> None:
    with subprocess.Popen(["true"]) as dead:
        pass
    theirs = temporary / f"minify-{dead.pid}-relu"
    theirs.mkdir()
    (theirs / "repro.py").touch()
    open_pool().close()
    assert list(theirs.iterdir()) == [theirs / "repro.py"]


def test_a_nest_whose_owner_and_watchdog_were_killed_is_swept(open_pool: Open, temporary: Path) -> None:
    with subprocess.Popen(["true"]) as dead:
        pass
    nest = Nest()
    left = temporary / f"minify-{dead.pid}-abc"
    shutil.copytree(nest.root, left)
    nest.close()
    open_pool().close()
    assert list(temporary.iterdir()) == []
