"""A condition of the user's own that every candidate has to keep: `--interesting module:function` or `file.py:function`.

The function is given the candidate's source text, as a repro would print it: the program, and how its inputs are made. It is
asked before a compile is paid for, in the process that steers.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

from minify import inputs, render
from minify.case import Case
from minify.errors import UsageError

Condition = Callable[[Case], bool]


@functools.cache  # the file is run once, not for each who asks
def condition(spec: str) -> Condition:
    """Whether a case is interesting, by the function that `spec` names. Raises UsageError where there is none, and the
    condition itself where the function raises."""
    if not spec:
        return lambda case: True
    function = _function(spec)

    def keeps(case: Case) -> bool:
        try:
            with contextlib.redirect_stdout(sys.stderr):  # stdout is for the repro's path
                return bool(function(source(case)))
        except (Exception, SystemExit) as error:
            raise UsageError(
                f"--interesting {spec} raised {type(error).__name__}: {error}",
                "it gets the candidate's source as a string",
            ) from error

    return keeps


def checked_spec(spec: str) -> str:
    """`spec` so that it means the same wherever it is read again. Raises UsageError where it names no function."""
    condition(spec)
    where, _, name = spec.rpartition(":")
    return f"{Path(where).resolve()}:{name}" if where.endswith(".py") else spec


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


def _function(spec: str) -> Callable[[str], object]:
    where, _, name = spec.rpartition(":")
    try:
        with contextlib.redirect_stdout(sys.stderr):
            module = _from_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
        found = getattr(module, name)
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"--interesting {spec}: {type(error).__name__}: {error}", "give module:function or file.py:function"
        ) from error
    if not callable(found):
        raise UsageError(f"--interesting {spec} is no function", "give module:function or file.py:function")
    return found  # type: ignore[no-any-return]


def _from_file(path: Path) -> object:
    made = importlib.util.spec_from_file_location(f"interesting_{path.stem}", path)
    if made is None or made.loader is None:
        raise ImportError(f"no Python file at {path}")
    module = importlib.util.module_from_spec(made)
    sys.modules[made.name] = module
    made.loader.exec_module(module)
    return module
