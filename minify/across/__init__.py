"""Which release of torch a bug came with: the repro run in an environment for each release that is asked.

Knows releases, environments and exit codes; nothing of cases. Prints nothing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from minify.across.bisection import Answer, Boundary, WrongEnds, bisect
from minify.across.environments import Environment, Installer, NotInstalled
from minify.across.journal import Journal, Row
from minify.across.releases import Release, between, named
from minify.emit import check
from minify.emit.verify import Checked, data_beside
from minify.errors import CHECK_BAD, CHECK_GOOD, EXIT_NO_FAILURE, EXIT_REDUCED, EXIT_UNSTABLE, Stopped

__all__ = ["Answer", "Boundary", "Found", "Installer", "Question", "Release", "WrongEnds", "bisect_torch", "named"]

_ANSWERS = {CHECK_GOOD: Answer.GOOD, CHECK_BAD: Answer.BAD}
# As torch's own instructions say. A checkout that does not build is skipped.
_BUILD = "git submodule update --init --recursive && python -m pip install --no-build-isolation -e ."


class Installing(Protocol):
    """What of an `Installer` is used here."""

    @property
    def own(self) -> Mapping[Release, str]: ...

    def releases(self) -> tuple[Release, ...]:
        """All that can be had. Raises UsageError and Stopped."""
        ...

    def environment(self, release: Release) -> AbstractContextManager[Environment]:
        """A context with an Environment that has `release`. Entering raises NotInstalled, Stopped and OSError."""
        ...


Run = Callable[[Path, int, float, str, Callable[[], object]], Checked]


@dataclasses.dataclass(frozen=True)
class Question:
    """Does `repro` show its bug, in `repeat` fresh runs of at most `timeout` seconds each? Of the releases from `good`, said not to
    show it, to `bad`, said to; of `versions` alone, where any are given."""

    repro: Path
    good: Release
    bad: Release
    versions: tuple[Release, ...] = ()
    repeat: int = 1
    timeout: float = 600.0

    def key(self, *installed_from: str) -> str:
        """What the answers are kept under: the content of the repro and of its recorded inputs, how it is run, and where its torch
        comes from (another Python or package index has other builds). Raises OSError."""
        content = hashlib.sha256(self.repro.read_bytes())
        if (data := data_beside(self.repro)).exists():
            content.update(data.read_bytes())
        content.update(repr((self.repeat, self.timeout, installed_from)).encode())
        return content.hexdigest()[:12]


@dataclasses.dataclass(frozen=True)
class Found:
    """The rows in the order of the releases, and what they come to."""

    question: Question
    rows: tuple[Row, ...]
    outcome: Boundary[Release] | WrongEnds

    @property
    def first_bad(self) -> str:
        """The first release known to show the bug; "" where the ends are not as they were said to be."""
        return "" if isinstance(self.outcome, WrongEnds) else str(self.outcome.bad)

    @property
    def exit_code(self) -> int:
        if not isinstance(self.outcome, WrongEnds):
            return EXIT_REDUCED
        return EXIT_UNSTABLE if Answer.UNCLEAR in (self.outcome.first, self.outcome.last) else EXIT_NO_FAILURE

    def told(self) -> tuple[str, ...]:
        """What is known now, in words."""
        if isinstance(self.outcome, WrongEnds):
            return _told_of(self.outcome, self.question)
        first = f"torch {self.outcome.bad} is the first release that shows it; {self.outcome.good} does not"
        if not self.outcome.unclear:
            return (first,)
        unclear = ", ".join(map(str, self.outcome.unclear))
        return (f"{first}, and it may have come with any of {unclear}, of which nobody can tell",)

    def git_lines(self) -> tuple[str, ...]:
        """What finds the commit, in a checkout of torch's repository; none where the ends are not as they were said to be.

        `git bisect run` gives up at a signal, and takes a torch that cannot be imported for one that shows the bug: hence
        `minify check`, of the environment that torch is built in."""
        if isinstance(self.outcome, WrongEnds):
            return ()
        run = f"{_BUILD} || exit 125; python -m minify check {shlex.quote(str(self.question.repro))}"
        return (
            f"git bisect start {self.outcome.bad.tag} {self.outcome.good.tag}",
            f"git bisect run sh -c {shlex.quote(run)}",
        )


def bisect_torch(
    question: Question,
    installer: Installing,
    journal: Journal,
    *,
    should_stop: Callable[[], object] = lambda: False,
    tell: Callable[[Row], None] = lambda row: None,
    run: Run = check,
) -> Found:
    """Ask as many releases as it takes; each answer is in the journal before the next is asked for, and is not asked again.

    Raises UsageError (no such releases), Stopped and OSError."""
    rows: dict[Release, Row] = {}

    def answer(release: Release) -> Answer:
        own = installer.own.get(release, "")
        row = journal.known(release, own)
        if row is None:
            row = _asked(question, release, installer, should_stop, run)
            if row.torch:  # that one could not be installed may be otherwise tomorrow
                journal.add(row)
        rows[release] = row
        tell(row)
        return row.answer

    outcome = bisect(_candidates(question, installer), answer)
    return Found(question, tuple(rows[release] for release in sorted(rows)), outcome)


def _candidates(question: Question, installer: Installing) -> Sequence[Release]:
    listed: Iterable[Release] = question.versions
    if not question.versions and not {question.good, question.bad} <= installer.own.keys():
        listed = installer.releases()
    return between(question.good, question.bad, {*listed, *installer.own})


def _asked(
    question: Question, release: Release, installer: Installing, should_stop: Callable[[], object], run: Run
) -> Row:
    started = time.monotonic()
    own = installer.own.get(release, "")
    try:
        with installer.environment(release) as environment:
            seen = run(question.repro, question.repeat, question.timeout, environment.python, should_stop)
    except NotInstalled as error:
        return Row(release, Answer.UNCLEAR, f"not installed: {error}", python=own)
    if reason := should_stop():
        raise Stopped(str(reason))
    said = _ANSWERS.get(seen.code, Answer.UNCLEAR)
    last = (seen.output.strip().splitlines() or [""])[-1] if said is Answer.UNCLEAR else ""
    detail = f"{seen.detail}: {last}" if last else seen.detail
    return Row(release, said, detail, environment.torch, own, round(time.monotonic() - started, 1))


def _told_of(ends: WrongEnds, question: Question) -> tuple[str, ...]:
    good, bad = f"torch {question.good}, said to be good,", f"torch {question.bad}, said to be bad,"
    if (ends.first, ends.last) == (Answer.BAD, Answer.GOOD):
        return (f"{good} shows the bug, and {bad} does not: it was mended in between",)
    told = []
    if ends.first is not Answer.GOOD:
        told.append(f"{good} {_WORDS[ends.first]}")
    if ends.last is not Answer.BAD:
        told.append(f"{bad} {_WORDS[ends.last]}")
    return tuple(told)


_WORDS = {Answer.GOOD: "does not show the bug", Answer.BAD: "shows the bug", Answer.UNCLEAR: "cannot tell"}
