"""A condition of the user's own that every candidate has to keep: `--interesting module:function` or `file.py:function`.

The function is given the candidate's source text, as a repro would print it: the program, and how its inputs are made. It is
asked before a compile is paid for, in the process that steers.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from minify import functions, inputs, render
from minify.case import Case
from minify.errors import UsageError

OPTION = "--interesting"
SECONDS = 60  # that one call may take: it gets a few lines of text
Condition = Callable[[Case], bool]


@functools.cache  # the file is run once, not for each who asks
def condition(spec: str) -> Condition:
    """Whether a case is interesting, by the function that `spec` names. Raises UsageError where there is none, and the
    condition itself where the function raises."""
    if not spec:
        return lambda case: True
    function = functions.load(spec, OPTION)

    def keeps(case: Case) -> bool:
        try:
            with contextlib.redirect_stdout(sys.stderr), _within(SECONDS):  # stdout is for the repro's path
                return bool(function(source(case)))
        except (Exception, SystemExit) as error:
            raise UsageError(
                f"--interesting {spec} raised {type(error).__name__}: {error}",
                "it gets the candidate's source as a string",
            ) from error

    return keeps


def checked_spec(spec: str) -> str:
    """`spec` so that it means the same wherever it is read again. Raises UsageError where it names no function."""
    spec = functions.absolute(spec, OPTION) if spec else spec
    condition(spec)
    return spec


def refuse_uninteresting(spec: str, case: Case) -> None:
    """Raises UsageError where the failing program itself is not interesting: nothing would ever be shrunk."""
    if not condition(spec)(case):
        raise UsageError(
            f"--interesting {spec} is false for the failing program itself", "it gets this:\n" + source(case)[:2000]
        )


def source(case: Case) -> str:
    """The prelude, `def fn(...)` and `def make_inputs()` of `case`."""
    parts = (case.program.prelude, render.text(render.function(case.graph)), render.text(inputs.make_inputs(case)))
    return "\n\n".join(part for part in parts if part)


@contextlib.contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in what takes longer. Only the main thread of a system with an alarm clock can be woken so."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def on_alarm(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"not done after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
