"""What was asked of which release, kept on disk answer by answer, so that a run that was killed goes on where it was."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

from minify.across.bisection import Answer
from minify.across.releases import Release, named
from minify.errors import UsageError


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One release's answer. `torch` is the version found there, with its build; "" where none could be installed. `python` is the
    interpreter of the environment of the user's that it was asked in, "" for one of ours. `known` says that the answer is of an
    earlier run."""

    release: Release
    answer: Answer
    detail: str
    torch: str = ""
    python: str = ""
    seconds: float = 0.0
    known: bool = False


class Journal:
    """The rows of one question in `path`, a line of JSON each. A line that was torn by a kill is as if it had never been written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: dict[tuple[Release, str], Row] = {}
        for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
            row = _read(line)
            if row is not None:
                self._rows[row.release, row.python] = row

    def known(self, release: Release, python: str) -> Row | None:
        """The answer of an earlier run, if there is one."""
        return self._rows.get((release, python))

    def add(self, row: Row) -> None:
        """Write it down; it is on disk when this returns. Raises OSError."""
        raw = dataclasses.asdict(row) | {"release": str(row.release), "answer": row.answer.value}
        torn = self.path.exists() and not self.path.read_bytes().endswith(b"\n")
        with self.path.open("a") as stream:
            stream.write(("\n" if torn else "") + json.dumps(raw) + "\n")
            stream.flush()
            os.fsync(stream.fileno())


def _read(line: str) -> Row | None:
    try:
        raw = json.loads(line)
        release, answer = named(raw.pop("release")), Answer(raw.pop("answer"))
        return Row(**{**raw, "release": release, "answer": answer, "known": True})
    except (ValueError, TypeError, KeyError, AttributeError, UsageError):
        return None
