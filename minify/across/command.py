"""What `minify bisect-torch` does with its options: everything checked before anything is installed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from minify.across import Found, Installer, Question, Release, bisect_torch, named
from minify.across.journal import Journal, Row
from minify.errors import UsageError
from minify.oracle.nest import Nest, sweep_stale_folders


def bisected(given: Mapping[str, Any], should_stop: Callable[[], object], tell: Callable[[str], None]) -> Found:
    """Raises UsageError, Stopped and OSError."""
    question = _question(given)
    own = dict(map(_environment, given["environments"]))
    base = _interpreter("--python", given["base"]) if given["base"] else sys.executable
    out = Path(given["out"]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    keep = _kept_environments() if given["keep"] else None
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    journal = Journal(out / f"bisect-torch-{question.repro.stem}-{question.key(base, given['index_url'])}.jsonl")
    sweep_stale_folders(out)
    with Nest(out) as nest:  # an environment takes more than a temporary folder may have
        installer = Installer(nest, base, given["index_url"], shutil.which("uv") or "", keep, own, should_stop)
        return bisect_torch(question, installer, journal, should_stop=should_stop, tell=lambda row: tell(line_of(row)))


def line_of(row: Row) -> str:
    """One release's answer, as it is told."""
    build = f" ({row.torch})" if row.torch and row.torch != str(row.release) else ""
    how = "known" if row.known else f"{row.seconds:.0f} s"
    return f"torch {row.release}{build}: {row.answer.value}; {row.detail}; {how}"


def _question(given: Mapping[str, Any]) -> Question:
    repro = Path(given["repro"])
    if not repro.is_file():
        raise UsageError(f"no file at {repro}", "give the path of a repro.py")
    versions = tuple(named(text) for text in given["versions"].split(",") if text.strip())
    return Question(
        repro.resolve(), named(given["good"]), named(given["bad"]), versions, given["repeat"], given["timeout"]
    )


def _environment(text: str) -> tuple[Release, str]:
    version, equals, python = text.partition("=")
    if not equals:
        raise UsageError(f"--environment {text!r} is not VERSION=PYTHON", "write 2.13=/path/to/bin/python")
    return named(version), _interpreter("--environment", python)


def _interpreter(option: str, text: str) -> str:
    """The path of an interpreter, not resolved: that of a virtual environment is a link."""
    found = shutil.which(text)
    if found is None:
        raise UsageError(f"{option} {text!r} is no interpreter that can be run", "give the path of a Python")
    return str(Path.cwd() / found)


def _kept_environments() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if cache else Path.home() / ".cache") / "minify" / "torch"
