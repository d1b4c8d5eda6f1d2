"""A repro confirmed as a stranger would run it: a fresh process, an empty folder, no code compiled before, no `minify`.

Owns those processes and folders: none outlives a call. Knows nothing of cases; takes a file and reads exit codes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from minify import environment
from minify.emit.header import DATA_FILE
from minify.errors import CHECK_BAD, CHECK_CANNOT_TELL, CHECK_GOOD
from minify.oracle.nest import Nest
from minify.verdict import Signature

AT_A_TIME = 2
_TAIL_BYTES = 8 << 10
# Of the user's shell, by which a program may fail that is right elsewhere. Where kernels are built, and with how many
# processes, decides nothing.
_SWITCHES = ("TORCHINDUCTOR_", "TORCHDYNAMO_", "TORCH_COMPILE")
_HARMLESS = ("TORCHINDUCTOR_COMPILE_THREADS",)
_DEADLY = ("SIGSEGV", "SIGABRT", "SIGILL", "SIGBUS", "SIGFPE")
# An exception that the file lets escape tells nothing, whereas Python would exit 1, as the bug does.
_RUN = """
import runpy, sys, traceback
sys.modules["minify"] = None
sys.argv = ["repro.py"]
try:
    runpy.run_path("repro.py", run_name="__main__")
except Exception:
    traceback.print_exc()
    sys.exit(125)
"""


@dataclasses.dataclass(frozen=True)
class Verification:
    """`reproduced` of `runs` showed the failure; a run that was stopped is none. `alone` says that the file needed no other
    beside it. `detail` says how each run ended, `not run` where none did; `output` is what the last one printed.
    `passing` says whether the counterpart ran to its good end."""

    runs: int
    reproduced: int
    alone: bool
    detail: str
    output: str
    passing: bool = False


def verify(
    path: Path,
    signature: Signature,
    runs: int = 2,
    timeout: float = 600,
    should_stop: Callable[[], object] = lambda: False,
    counterpart: Path | None = None,
) -> Verification:
    """Run the file `runs` times and count how often it fails as `signature` says; run `counterpart`, which should pass, once.

    When `should_stop()` turns true the runs in flight are killed, and no more are started. Raises OSError where a file
    cannot be read or no process be started."""
    abandoned = threading.Event()

    def unwanted() -> bool:
        return abandoned.is_set() or bool(should_stop())

    def run_once(file: Path) -> tuple[int | None, str] | None:
        """None for a run that was stopped, and so says nothing."""
        ended = None if unwanted() else run_alone(file, timeout, unwanted)
        return None if ended is not None and ended[0] is None and unwanted() else ended

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        try:
            done = list(pool.map(run_once, [path] * runs + ([counterpart] if counterpart else [])))
        except BaseException:  # Ctrl-C, say: the pool waits for its threads, which wait for the runs
            abandoned.set()
            raise
    ran = [ended for ended in done[:runs] if ended is not None]
    passing = any(ended is not None and ended[0] == CHECK_GOOD for ended in done[runs:])
    reproduced = sum(shows(code, signature) for code, _ in ran)
    endings = ", ".join(described(code) for code, _ in ran) or "not run"
    return Verification(
        len(ran), reproduced, not data_beside(path).exists(), endings, ran[-1][1] if ran else "", passing
    )


@contextlib.contextmanager
def verifying(
    path: Path, signature: Signature, *, runs: int, timeout: float, counterpart: Path | None = None
) -> Iterator[Callable[[], Verification]]:
    """`verify` while the block does something else; what is yielded waits for the outcome. A block that raises has the runs
    killed. Raises what `verify` does when the outcome is asked for."""
    left = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(verify, path, signature, runs, timeout, left.is_set, counterpart)
        try:
            yield outcome.result
        except BaseException:
            left.set()
            raise


@dataclasses.dataclass(frozen=True)
class Checked:
    """What fresh runs of a repro say. `code` is 0 good, every run exits 0; 1 bad, some run exits 1 or dies of a signal that stands
    for a crash; 125 cannot tell (no such file, an exception that escapes it, a timeout). `detail` says how each run ended, or
    why there is none; `output` is what the last one printed."""

    code: int
    detail: str
    output: str = ""


def check(
    path: Path,
    repeat: int,
    timeout: float,
    python: str = sys.executable,
    should_stop: Callable[[], object] = lambda: False,
) -> Checked:
    """Run the file `repeat` times, by `python`. A run that is stopped cannot tell, and none comes after it."""
    codes: list[int | None] = []
    output = ""
    for _ in range(repeat):
        if should_stop():
            return Checked(CHECK_CANNOT_TELL, "stopped", output)
        try:
            code, output = run_alone(path, timeout, should_stop, python)
        except OSError as error:
            return Checked(CHECK_CANNOT_TELL, f"{error.strerror or error}: {error.filename or path}", output)
        codes.append(code)
    endings = ", ".join(map(described, codes))
    if any(code not in (0, 1) and signal_name(code) not in _DEADLY for code in codes) or not codes:
        return Checked(CHECK_CANNOT_TELL, endings, output)
    return Checked(CHECK_BAD if any(codes) else CHECK_GOOD, endings, output)


def shows(code: int | None, signature: Signature) -> bool:
    """Whether a run that ended in `code` showed the failure; None stands for a run that was killed."""
    return described(code) == signature.name if signature.family == "signal" else code == 1


def signal_name(code: int | None) -> str:
    """The signal a process died of, by its exit code or by the shell's (128 + number); "" where it died of none."""
    number = 0 if code is None else -code if code < 0 else code - 128
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return ""


def described(code: int | None) -> str:
    return "killed" if code is None else signal_name(code) or f"exit {code}"


def run_alone(
    path: Path, timeout: float, should_stop: Callable[[], object], python: str = sys.executable
) -> tuple[int | None, str]:
    """Exit code and last output of one run of a copy of `path`; None where it was killed, being too slow or no longer wanted."""
    with Nest() as nest:
        folder, caches, log = nest.root / "alone", nest.root / "caches", nest.root / "log"
        folder.mkdir()
        if python == sys.executable:  # what was tried here says nothing of another torch
            environment.probed_into(caches / "inductor")  # half of the time of a run, and no part of any program
        shutil.copyfile(path, folder / "repro.py")
        if data_beside(path).exists():
            shutil.copyfile(data_beside(path), folder / DATA_FILE)
        command = [python, "-c", _RUN]
        code = nest.run(command, log, cwd=folder, env=_environment(caches), timeout=timeout, should_stop=should_stop)
        return code, _tail(log)


def data_beside(path: Path) -> Path:
    """Where the recorded inputs of a repro lie, if it has any."""
    return path.with_name(DATA_FILE)


def _environment(caches: Path) -> dict[str, str]:
    """Ours, without what would let the file lean on this checkout, on code compiled earlier or on switches of the compiler
    that are set in this shell alone."""
    dropped = ("PYTHONPATH", "MINIFY_", *_SWITCHES)
    kept = {name: value for name, value in os.environ.items() if name in _HARMLESS or not name.startswith(dropped)}
    return {**kept, "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"), "TRITON_CACHE_DIR": str(caches / "triton")}


def _tail(log: Path) -> str:
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        return stream.read().decode(errors="replace")
