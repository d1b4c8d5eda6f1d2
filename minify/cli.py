"""The command line: the only file that prints or sets an exit code. Imports no torch until a command runs."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
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
from minify.progress import counted

if TYPE_CHECKING:
    from minify.reduce import Session
    from minify.report import Report
    from minify.runs import Request, RunFolder

    _Number = click.ParamType[float]
else:
    _Number = click.ParamType  # not generic in every click we take

REFERENCES = ("auto", "fp32", "fp64", "none")
LEVELS = ("auto", "dynamo", "aten")


class Seconds(_Number):
    """A time such as `90`, `90s`, `5m` or `1h`, in seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        factor = {"s": 1, "m": 60, "h": 3600}.get(value[-1:], 0)
        try:
            seconds = float(value[:-1]) * factor if factor else float(value)
        except ValueError:
            seconds = -1.0
        if not 0 < seconds < 1e9:
            self.fail(f"{value!r} is no time: give seconds above 0, or 90s, 5m, 1h", param, ctx)
        return seconds


class Bound(_Number):
    """A tolerance: a finite number, 0 or more."""

    name = "bound"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            bound = float(value)
        except ValueError:
            bound = -1.0
        if not 0 <= bound < float("inf"):
            self.fail(f"{value!r} is no tolerance: give a finite number, 0 or more, such as 1e-3", param, ctx)
        return bound


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.argument("script", type=click.Path(path_type=Path)),
    click.argument("args", nargs=-1, type=click.UNPROCESSED),
    click.option(
        "--region", type=click.IntRange(min=0), help="Minify this compiled region instead of the first that fails."
    ),
    click.option("--all", "every", is_flag=True, help="Minify each failing region, one after another."),
    click.option(
        "--level",
        type=click.Choice(LEVELS),
        default="auto",
        show_default=True,
        help="Minify the graph Dynamo captures, or those AOTAutograd makes of it; auto: the latter where it must.",
    ),
    click.option("--device", help="Run the script with this default device, such as cuda."),
    click.option(
        "--backend", default="inductor", show_default=True, help="For scripts that only define model and inputs."
    ),
    click.option("--mode", help="torch.compile mode, for such scripts."),
    click.option("--dynamic/--static", default=None, help="torch.compile dynamic, for such scripts."),
    click.option("--train", is_flag=True, help="Run such scripts with gradients."),
    click.option(
        "--timeout", type=Seconds(), help="One compile or run may take this long before it counts as hanging."
    ),
    click.option("--budget", type=Seconds(), help="Stop after this time with the best repro so far, such as 5m."),
    click.option("--workers", type=click.IntRange(1, 64), help="Worker processes. Default: one per core, at most 4."),
    click.option(
        "--runs", type=click.IntRange(1, 100), default=2, show_default=True, help="Fresh runs that verify the repro."
    ),
    click.option(
        "--interesting",
        default="",
        metavar="MODULE:FUNCTION",
        help="Keep to candidates for whose source text this function, or FILE.py:FUNCTION, is true.",
    ),
    click.option("--data", is_flag=True, help="Accept a repro that needs a file of recorded inputs."),
    click.option("--out", type=click.Path(path_type=Path), help="Folder for the results; must be new or empty."),
    click.option(
        "--json", "as_json", is_flag=True, help="Print the report as JSON on stdout instead of the repro's path."
    ),
)
_TOLERANCES: tuple[Callable[[Any], Any], ...] = (
    click.option("--atol", type=Bound(), help="Absolute tolerance. Default by dtype."),
    click.option(
        "--rtol", type=Bound(), help="Relative tolerance. Default by dtype: 1e-2 for half types, 1e-5 for fp32."
    ),
    click.option(
        "--reference",
        type=click.Choice(REFERENCES),
        default="auto",
        show_default=True,
        help="Precision of the reference.",
    ),
    click.option(
        "--metric",
        default="",
        metavar="MODULE:FUNCTION",
        help="A wrong output counts only where this function of the outputs, or FILE.py:FUNCTION, moves by over --metric-tol.",
    ),
    click.option("--metric-tol", type=Bound(), default=0.0, show_default=True, help="How far --metric may move."),
)


def _with(options: tuple[Callable[[Any], Any], ...]) -> Callable[[Any], Any]:
    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="torch-minify", prog_name="minify")
def main() -> None:
    """Shrink a program that torch.compile gets wrong, or crashes on, to a standalone repro.py.

    Exit codes: 0 repro verified and 1-minimal, 1 no such failure, 2 usage, 3 verified but stopped early,
    4 unstable or not reproducible, 70 a bug in minify.
    """


@main.command(context_settings={"ignore_unknown_options": False})
@_with(_OPTIONS)
@_with(_TOLERANCES)
def accuracy(**given: Any) -> None:
    """Minify a wrong result: SCRIPT runs unedited, ARGS (after --) are its own."""
    _minify("accuracy", given)


@main.command()
@_with(_OPTIONS)
def crash(**given: Any) -> None:
    """Minify an exception, a signal or a hang of the compiler or of what it compiled."""
    _minify("crash", given)


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--budget", type=Seconds(), help="Stop after this time, such as 5m.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on stdout instead of the repro's path.")
def resume(folder: Path, budget: float | None, as_json: bool) -> None:
    """Go on with a run that was stopped or killed. Answers already had are not asked again."""

    def start() -> tuple[Request, RunFolder]:
        import dataclasses

        from minify.runs import RunFolder

        where = RunFolder(folder.resolve())
        request = dataclasses.replace(where.load_request(), budget=budget)
        return request, where

    _carry_out(start, as_json)


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
        code = run_check(repro, repeat, timeout)
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


def _minify(kind: str, given: dict[str, Any]) -> None:
    script, out, as_json = given.pop("script"), given.pop("out"), given.pop("as_json")

    def start() -> tuple[Request, RunFolder]:
        from minify.functions import checked_metric
        from minify.interesting import checked_spec
        from minify.runs import Request, new_folder

        if not script.is_file():
            raise UsageError(f"no script at {script}", "give the path of a Python file")
        given["interesting"] = checked_spec(given["interesting"])
        given["metric"] = checked_metric(given.get("metric", ""), given.get("metric_tol", 0.0))
        request = Request(kind=kind, script=str(script.resolve()), **given)
        folder = new_folder(str(script), out)
        folder.save_request(request)
        return request, folder

    _carry_out(start, as_json)


def _carry_out(start: Callable[[], tuple[Request, RunFolder]], as_json: bool) -> None:
    """Run and leave with the right exit code; every expected trouble is one line on stderr."""
    where = "the run"
    try:
        request, folder = start()
        where = str(folder.path)
        reports = _run(request, folder, as_json)
    except MinifyError as error:
        _fail(str(error), error.exit_code)
    except Stopped as stop:
        _fail(f"stopped ({stop}) before a failure was confirmed; `minify resume {where}` goes on", EXIT_STOPPED_EARLY)
    except KeyboardInterrupt:
        _fail(f"interrupted; `minify resume {where}` goes on", EXIT_STOPPED_EARLY)
    except OSError as error:
        _fail(f"{error.strerror or error}: {error.filename or where}; then `minify resume {where}` goes on", EXIT_USAGE)
    except Exception as error:  # noqa: BLE001 - a bug of ours, which must not look like an answer
        _fail(_bug(error, where), EXIT_BUG)
    for report in reports:
        _show(report, as_json)
    sys.exit(max((report.exit_code for report in reports), default=EXIT_BUG))


def _run(request: Request, folder: RunFolder, as_json: bool) -> list[Report]:
    from minify.runs import StopFlag

    stop = StopFlag(request.budget)
    with stop.listening(), Screen() as screen:
        from minify import pipeline, regions

        try:
            if request.every:
                return regions.run_all(request, folder, stop, screen)
            return [pipeline.run(request, folder, stop, screen)]
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


def _show(report: Report, as_json: bool) -> None:
    sizes = f"{report.original['ops']} -> {counted(report.reduced['ops'], 'op')}" if report.reduced else ""
    verified = f"{report.verified.get('reproduced', 0)}/{report.verified.get('runs', 0)} fresh runs fail"
    minimal = f"1-minimal ({counted(report.edits_tried, 'edit')} tried)" if report.one_minimal else "not 1-minimal"
    stage = f"first divergent stage: {report.stage}, " if report.stage else ""
    for words, facts in (("decisive", report.decisive), ("not decisive", report.not_decisive)):
        for fact in facts:
            click.echo(f"{words}: {fact}", err=True)
    click.echo(
        f"{report.signature}: {sizes}, {stage}{minimal}, {verified}, {counted(report.queries, 'query')}, {report.seconds:.0f} s",
        err=True,
    )
    for also in report.also_found:
        click.echo(f"also found: {also}", err=True)
    if report.passing:
        click.echo(f"the nearest program that passes: {report.passing}", err=True)
    if report.message:
        click.echo(f"minify: {report.message}", err=True)
    click.echo(_json(report) if as_json else str(report.repro))


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
