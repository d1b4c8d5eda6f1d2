"""The command line: the only file that prints or sets an exit code. Imports no torch until a command runs."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from minify.errors import (
    CHECK_CANNOT_TELL,
    EXIT_BUG,
    EXIT_NO_FAILURE,
    EXIT_STOPPED_EARLY,
    EXIT_USAGE,
    MinifyError,
    NoFailure,
    Stopped,
    Unstable,
    UsageError,
)
from minify.options import ACROSS, KIND, KINDS, METRIC, REDUCTION, ROW, SCRIPT, TOLERANCES, Seconds, options
from minify.progress import counted

if TYPE_CHECKING:
    from minify.reduce import Session
    from minify.report import Report
    from minify.runs import Request, RunFolder, StopFlag


@dataclasses.dataclass(frozen=True)
class Work:
    """What a command does with a request. Of each report `tell` prints what goes to stderr, `answer` is the line on stdout. `ended`
    is said of a run that was stopped before it came to anything, and `again` how to go on, with the run's folder as `{}`."""

    run: Callable[[Request, RunFolder, StopFlag, Screen], list[Report]]
    tell: Callable[[Report], None]
    answer: Callable[[Report], str]
    ended: str
    again: str


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="torch-minify", prog_name="minify")
def main() -> None:
    """Shrink a program that torch.compile gets wrong, or crashes on, to a standalone repro.py.

    Exit codes: 0 repro verified and 1-minimal, 1 no such failure, 2 usage, 3 verified but stopped early,
    4 unstable or not reproducible, 70 a bug in minify.
    """


@main.command(context_settings={"ignore_unknown_options": False})
@options(SCRIPT, REDUCTION, TOLERANCES, METRIC)
def accuracy(**given: Any) -> None:
    """Minify a wrong result: SCRIPT runs unedited, ARGS (after --) are its own."""
    _on_script("accuracy", given, _REDUCE)


@main.command()
@options(SCRIPT, REDUCTION)
def crash(**given: Any) -> None:
    """Minify an exception, a signal or a hang of the compiler or of what it compiled."""
    _on_script("crash", given, _REDUCE)


@main.command()
@options(SCRIPT, KIND, ROW, TOLERANCES)
def stage(**given: Any) -> None:
    """Name the first stage of the compile chain at which SCRIPT, or a repro.py, goes wrong. Reduces nothing.

    Exit codes: 0 a stage is named, 1 no divergence, 2 usage, 3 stopped, 4 unstable or not reproducible. Of one question (--off,
    --only, --rung), as `git bisect run` wants: 0 passes, 1 fails, 125 cannot tell.
    """
    kind = given.pop("kind")
    kinds = (kind,) if kind else KINDS
    words = [(f"--{flag}", text) for flag in ("off", "only") for text in given.pop(flag)]
    rung = given.pop("rung")
    work = _one_question(kinds, words, rung) if words or rung else _stage(kinds)
    _on_script(kinds[0], given, work)


def _stage(kinds: tuple[str, ...]) -> Work:
    """To climb the ladder and to look inside the stage that it names."""

    def locate(request: Request, folder: RunFolder, stop: StopFlag, screen: Screen) -> list[Report]:
        from minify.locate import locate

        return [locate(request, kinds, folder, stop, screen)]

    def answer(report: Report) -> str:
        return report.stage or report.outcome

    return Work(locate, _tell_stage, answer, "before a stage was named", "run it again")


def _one_question(kinds: tuple[str, ...], words: list[tuple[str, str]], rung: str) -> Work:
    """To ask one row of the tables again."""
    from minify import rerun

    try:
        chosen = rerun.chosen(rung, words)
    except UsageError as error:
        _fail(str(error), error.exit_code)

    def ask(request: Request, folder: RunFolder, stop: StopFlag, screen: Screen) -> list[Report]:
        return [rerun.rerun(request, kinds, chosen, folder, stop, screen)]

    return Work(ask, _tell_row, lambda report: report.outcome, "before it was answered", "run it again")


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--budget", type=Seconds(), help="Stop after this time, such as 5m.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on stdout instead of the repro's path.")
def resume(folder: Path, budget: float | None, as_json: bool) -> None:
    """Go on with a run that was stopped or killed. Answers already had are not asked again."""

    def start() -> tuple[Request, RunFolder]:
        from minify.runs import RunFolder

        where = RunFolder(folder.resolve())
        request = dataclasses.replace(where.load_request(), budget=budget)
        return request, where

    _carry_out(start, _REDUCE, as_json)


@main.command()
@click.argument("repro", type=click.Path(path_type=Path))
@click.option(
    "--repeat", type=click.IntRange(1, 1000), default=1, show_default=True, help="Fresh processes to run it in."
)
@click.option("--timeout", type=Seconds(), default=600.0, help="Seconds one run may take.")
def check(repro: Path, repeat: int, timeout: float) -> None:
    """Does REPRO still show its bug? 0 good, 1 bad, 125 cannot tell, as `git bisect run` wants."""
    from minify.emit import check as run_check

    try:
        code = run_check(repro, repeat, timeout).code
    except KeyboardInterrupt:
        code = CHECK_CANNOT_TELL
    click.echo({0: "good", 1: "bad"}.get(code, f"cannot tell: {repro}"), err=True)
    sys.exit(code)


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--workers", type=click.IntRange(1, 64), help="Worker processes. Default: one per core, at most 4.")
def certify(folder: Path, workers: int | None) -> None:
    """Ask each question of a finished run's certificate again: does no single edit of its result still fail?

    Exit codes: 0 all answers are the same, 1 some are not, 2 no finished run, 3 stopped.
    """
    from minify.recheck import recheck
    from minify.runs import RunFolder, StopFlag

    stop = StopFlag()
    try:
        with stop.listening():
            found = recheck(RunFolder(folder.resolve()), stop, workers)
    except MinifyError as error:
        _fail(str(error), error.exit_code)
    except (Stopped, KeyboardInterrupt):
        _fail("stopped", EXIT_STOPPED_EARLY)
    except OSError as error:
        _fail(f"{error.strerror or error}: {error.filename or folder}", EXIT_USAGE)
    for edit, counts in found.certificate.counts().items():
        click.echo(f"{edit}: {', '.join(f'{count} {answer}' for answer, count in counts.items())}", err=True)
    for line in found.differ:
        click.echo(f"differs: {line}", err=True)
    if not found.still_fails:
        click.echo("differs: the reduced case itself does not fail any more", err=True)
    click.echo("certified" if found.holds else "not certified")
    sys.exit(0 if found.holds else EXIT_NO_FAILURE)


@main.command(name="bisect-torch")
@options(ACROSS)
def bisect_torch(**given: Any) -> None:
    """Name the first release of torch in which REPRO shows its bug, and print how to find the commit.

    Each release that is asked is installed into an environment of its own. Answers are kept: run it again to go on.

    Exit codes: 0 found, 1 the ends are not as said, 2 usage, 3 stopped, 4 one of the ends cannot tell.
    """
    from minify.across.command import bisected
    from minify.runs import StopFlag

    stop = StopFlag()
    try:
        with stop.listening():
            found = bisected(given, stop, lambda line: click.echo(line, err=True))
    except MinifyError as error:
        _fail(str(error), error.exit_code)
    except (Stopped, KeyboardInterrupt):
        _fail("stopped; the answers so far are kept: run it again", EXIT_STOPPED_EARLY)
    except OSError as error:
        _fail(f"{error.strerror or error}: {error.filename or given['repro']}", EXIT_USAGE)
    _tell((*found.told(), *found.git_lines()))
    if found.first_bad:
        click.echo(found.first_bad)
    sys.exit(found.exit_code)


def _on_script(kind: str, given: dict[str, Any], work: Work) -> None:
    script, out, as_json = given.pop("script"), given.pop("out"), given.pop("as_json")

    def start() -> tuple[Request, RunFolder]:
        from minify.functions import checked_metric
        from minify.interesting import checked_spec
        from minify.runs import Request, new_folder

        if not script.is_file():
            raise UsageError(f"no script at {script}", "give the path of a Python file")
        if "interesting" in given:
            given["interesting"] = checked_spec(given["interesting"])
        given["metric"] = checked_metric(given.get("metric", ""), given.get("metric_tol", 0.0))
        request = Request(kind=kind, script=str(script.resolve()), **given)
        folder = new_folder(str(script), out)
        folder.save_request(request)
        return request, folder

    _carry_out(start, work, as_json)


def _carry_out(start: Callable[[], tuple[Request, RunFolder]], work: Work, as_json: bool) -> None:
    """Run and leave with the right exit code; every expected trouble is one line on stderr."""
    where = "the run"
    try:
        request, folder = start()
        where = str(folder.path)
        reports = _run(request, folder, work, as_json)
    except MinifyError as error:
        _fail(str(error), error.exit_code)
    except Stopped as stop:
        _fail(f"stopped ({stop}) {work.ended}; {work.again.format(where)}", EXIT_STOPPED_EARLY)
    except KeyboardInterrupt:
        _fail(f"interrupted; {work.again.format(where)}", EXIT_STOPPED_EARLY)
    except OSError as error:
        _fail(f"{error.strerror or error}: {error.filename or where}; then {work.again.format(where)}", EXIT_USAGE)
    except Exception as error:  # noqa: BLE001 - a bug of ours, which must not look like an answer
        _fail(_bug(error, where), EXIT_BUG)
    for report in reports:
        work.tell(report)
        click.echo(_json(report) if as_json else work.answer(report))
    sys.exit(max((report.exit_code for report in reports), default=EXIT_BUG))


def _run(request: Request, folder: RunFolder, work: Work, as_json: bool) -> list[Report]:
    from minify.runs import StopFlag

    stop = StopFlag(request.budget)
    with stop.listening(), Screen() as screen:
        from minify import regions

        try:
            return work.run(request, folder, stop, screen)
        except (NoFailure, Unstable) as error:
            report = regions.no_failure_report(request, folder, error)
            if as_json:
                click.echo(_json(report))
            raise


def _bug(error: Exception, where: str) -> str:
    """One line on an error of our own; the traceback goes into a file."""
    import tempfile
    import traceback

    handle, path = tempfile.mkstemp(prefix="minify_bug_", suffix=".txt")
    with os.fdopen(handle, "w") as stream:
        traceback.print_exception(error, file=stream)
    return f"a bug in minify: {type(error).__name__}: {error}; please report it with {path} and {where}"


def _json(report: Report) -> str:
    return json.dumps(report.as_json(), default=str)


def _fail(message: str, code: int) -> None:
    click.echo(f"minify: {' '.join(message.split())}", err=True)
    sys.exit(code)


def _reduce(request: Request, folder: RunFolder, stop: StopFlag, screen: Screen) -> list[Report]:
    from minify import pipeline, regions

    if request.every:
        return regions.run_all(request, folder, stop, screen)
    return [pipeline.run(request, folder, stop, screen)]


def _tell_reduction(report: Report) -> None:
    from minify.report.words import of_reduction

    _tell(of_reduction(report))


def _tell_row(report: Report) -> None:
    from minify.report.words import of_row

    _tell(of_row(report))


def _tell_stage(report: Report) -> None:
    from minify.report.words import of_stage

    _tell(of_stage(report))


def _tell(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line, err=True)


_REDUCE = Work(
    _reduce,
    _tell_reduction,
    lambda report: str(report.repro),
    "before a failure was confirmed",
    "`minify resume {}` goes on",
)


class Screen:
    """Progress on stderr: one live line on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._status: Any = None
        self._last = 0.0
        self._started = time.monotonic()

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._status = self._console.status("starting")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def step(self, text: str) -> None:
        """A line that stays."""
        self._console.print(f"[{time.monotonic() - self._started:6.1f} s] {text}", markup=False)

    def searching(self, session: Session) -> None:
        """The live line; off a terminal one plain line every ten seconds."""
        from minify.case import op_count

        oracle = session.oracle
        slipped = sum(count.slipped for count in session.counts.values())
        line = (
            f"{session.working_on}: {counted(op_count(session.best.graph), 'op')}, {counted(oracle.queries, 'query')}, "
            f"{oracle.cache_hits} cached, {slipped} slipped, {time.monotonic() - self._started:.0f} s"
        )
        if self._status is not None:
            self._status.update(line)
        elif time.monotonic() - self._last > 10:
            self._last = time.monotonic()
            self.step(line)


if __name__ == "__main__":
    main()
