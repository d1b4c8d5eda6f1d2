"""What the commands take: the kinds of values, and the options of those that run a script.

Prints nothing and imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    _Number = click.ParamType[float]
else:
    _Number = click.ParamType  # not generic in every click we take

REFERENCES = ("auto", "fp32", "fp64", "none")
LEVELS = ("auto", "dynamo", "aten")
KINDS = ("accuracy", "crash")


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


Option = Callable[[Any], Any]

SCRIPT: tuple[Option, ...] = (
    click.argument("script", type=click.Path(path_type=Path)),
    click.argument("args", nargs=-1, type=click.UNPROCESSED),
    click.option("--region", type=click.IntRange(min=0), help="This compiled region instead of the first that fails."),
    click.option(
        "--level",
        type=click.Choice(LEVELS),
        default="auto",
        show_default=True,
        help="Take the graph Dynamo captures, or those AOTAutograd makes of it; auto: the latter where it must.",
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
    click.option("--budget", type=Seconds(), help="Stop after this time with what there is by then, such as 5m."),
    click.option("--workers", type=click.IntRange(1, 64), help="Worker processes. Default: one per core, at most 4."),
    click.option("--out", type=click.Path(path_type=Path), help="Folder for the results; must be new or empty."),
    click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on stdout instead."),
)
REDUCTION: tuple[Option, ...] = (
    click.option("--all", "every", is_flag=True, help="Minify each failing region, one after another."),
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
)
TOLERANCES: tuple[Option, ...] = (
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
)
METRIC: tuple[Option, ...] = (
    click.option(
        "--metric",
        default="",
        metavar="MODULE:FUNCTION",
        help="A wrong output counts only where this function of the outputs, or FILE.py:FUNCTION, moves by over --metric-tol.",
    ),
    click.option("--metric-tol", type=Bound(), default=0.0, show_default=True, help="How far --metric may move."),
)
ROW: tuple[Option, ...] = (
    click.option(
        "--off",
        multiple=True,
        metavar="KIND[:NAME,...]",
        help="Ask one question only: does it fail with these left out of the compiler? Without names: all of the kind.",
    ),
    click.option(
        "--only", multiple=True, metavar="KIND:NAME,...", help="The same, with all others of the kind left out."
    ),
    click.option("--rung", default="", metavar="STAGE", help="The same, compiled up to this stage."),
)
KIND: tuple[Option, ...] = (
    click.option("--kind", type=click.Choice(KINDS), help="Look for this only. Default: wrong results, then crashes."),
)


def options(*groups: tuple[Option, ...]) -> Option:
    """All options of some groups, in their order, on one command."""

    def decorate(command: Any) -> Any:
        for option in reversed([option for group in groups for option in group]):
            command = option(command)
        return command

    return decorate


ACROSS: tuple[Option, ...] = (
    click.argument("repro", type=click.Path(path_type=Path)),
    click.option(
        "--good", required=True, metavar="VERSION", help="A release that does not show the bug, such as 2.11."
    ),
    click.option("--bad", required=True, metavar="VERSION", help="A later one that does."),
    click.option("--versions", default="", metavar="A,B,...", help="The releases there are; default: what pip lists."),
    click.option(
        "--environment",
        "environments",
        multiple=True,
        metavar="VERSION=PYTHON",
        help="An interpreter that has this release already. May be given more than once.",
    ),
    click.option(
        "--python", "base", default="", metavar="PYTHON", help="Interpreter for the environments; default: this one."
    ),
    click.option(
        "--index-url", default="", metavar="URL", help="Where torch is installed from, such as PyTorch's CPU index."
    ),
    click.option("--keep", is_flag=True, help="Keep the environments for later runs; each takes one to several GB."),
    click.option("--repeat", type=click.IntRange(1, 1000), default=1, show_default=True, help="Fresh runs for each."),
    click.option("--timeout", type=Seconds(), default=600.0, help="Seconds one run may take."),
    click.option(
        "--out",
        type=click.Path(path_type=Path),
        default=Path("minify-out"),
        show_default=True,
        help="Where answers are kept.",
    ),
)
