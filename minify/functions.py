"""A function of the user's own, named by `module:function` or `file.py:function`, as `--interesting` and `--metric` take it.

Owns the ways to name one. A name that `absolute` gave means the same in every process, wherever that runs. Imports no
torch, but what is loaded may.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.util
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from minify.errors import UsageError

_WAYS = "give module:function or file.py:function"


def absolute(spec: str, option: str) -> str:
    """`spec` so that it means the same from any folder: a file by its full path, a module that lies in the working folder as
    `FOLDER/module:function`. Runs nothing. Raises UsageError where it names no file or module."""
    where, _, name = spec.rpartition(":")
    if not where.strip(".") or not name:
        raise UsageError(f"{option} {spec} names no function", _WAYS)
    if where.endswith(".py"):
        path = Path(where).resolve()
        if not path.is_file():
            raise UsageError(f"{option} {spec}: no file {path}", _WAYS)
        return f"{path}:{name}"
    folder, _, module = where.rpartition("/")
    if folder:
        return f"{Path(folder).resolve()}/{module}:{name}"
    first, here = module.partition(".")[0], Path.cwd()
    if (here / f"{first}.py").is_file() or (here / first / "__init__.py").is_file():
        return f"{here}/{module}:{name}"
    if first not in sys.modules and importlib.util.find_spec(first) is None:
        raise UsageError(f"{option} {spec}: no module {first}, neither installed nor in {here}", _WAYS)
    return spec


def checked_metric(spec: str, tolerance: float) -> str:
    """`spec` of a metric so that it means the same in every worker, "" for none. Raises UsageError."""
    if not 0 <= tolerance < math.inf or (tolerance and not spec):
        raise UsageError(f"--metric-tol {tolerance:g}", "give a finite number, 0 or more, and --metric with it")
    return absolute(spec, "--metric") if spec else ""


@functools.cache  # a file is run once, not for each who asks
def load(spec: str, option: str) -> Callable[..., Any]:
    """The function. What its file prints goes to stderr. Raises UsageError where there is none, or its file raises."""
    where, _, name = spec.rpartition(":")
    try:
        with contextlib.redirect_stdout(sys.stderr):  # stdout is for the repro's path
            found = getattr(_module(where), name)
    except (Exception, SystemExit) as error:
        raise UsageError(f"{option} {spec}: {type(error).__name__}: {error}", _WAYS) from error
    if not callable(found):
        raise UsageError(f"{option} {spec} is no function", _WAYS)
    return found  # type: ignore[no-any-return]


def content(spec: str) -> str:
    """A text that differs where a function in a file of its own may have become another one."""
    path = Path(spec.rpartition(":")[0])
    with contextlib.suppress(OSError):
        if path.suffix == ".py":
            return hashlib.sha256(path.read_bytes()).hexdigest()
    return ""


def _module(where: str) -> ModuleType:
    folder, _, module = where.rpartition("/")
    if where.endswith(".py"):
        with _searched(str(Path(where).resolve().parent)):
            return _from_file(Path(where))
    if not folder:
        return importlib.import_module(module)
    with _searched(folder):
        return importlib.import_module(module)


@contextlib.contextmanager
def _searched(folder: str) -> Iterator[None]:
    """Modules are looked for in `folder` first, and last from then on: what was loaded may import more when it is called."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)


def _from_file(path: Path) -> ModuleType:
    made = importlib.util.spec_from_file_location(f"minify_given_{path.stem}", path)
    if made is None or made.loader is None:
        raise ImportError(f"no Python file at {path}")
    module = importlib.util.module_from_spec(made)
    sys.modules[made.name] = module
    made.loader.exec_module(module)
    return module
