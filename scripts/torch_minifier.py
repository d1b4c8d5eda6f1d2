"""PyTorch's own minifier on one script, used as its documentation says, and what its files and its log tell.

Owns how it is started (TORCHDYNAMO_REPRO_AFTER, TORCHDYNAMO_REPRO_LEVEL, minifier_launcher.py) and how its answers are read.
Knows nothing of the corpus or of `minify`, and imports no torch.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

from scripts.limited_run import Ran, private_environment, run_limited

REPRO, NO_REPRO, TIME_LIMIT = "repro", "no repro", "time limit"
NO_LAUNCHER, DOES_NOT_FAIL = "no launcher", "does not fail"
SAYS_IT_DOES_NOT_FAIL = ("Input graph did not fail the tester", "Input graph does not fail accuracy testing")
# A repro that ends so is broken; it shows nothing about the compiler.
BROKEN_SCRIPT = ("SyntaxError", "NameError", "ImportError", "ModuleNotFoundError", "FileNotFoundError")


@dataclass(frozen=True)
class Minified:
    """What a minifier made of a script; `repro` may be a checkpoint of a run that did not end.

    `queries` is a lower bound unless `exact`; `note` is the last error in the log; `exit_code` is that of `minify` only.
    `script_seconds` of `seconds` went by before the script had shown its failure."""

    outcome: str
    seconds: float
    queries: int | None = None
    exact: bool = True
    ops_before: int | None = None
    ops_after: int | None = None
    repro: Path | None = None
    exit_code: int | None = None
    note: str = ""
    script_seconds: float | None = None


def minify_with_torch(
    script: Path, after: str, accuracy: bool, options: tuple[str, ...], folder: Path, limit: float
) -> Minified:
    """Run the script with the minifier armed, then the launcher it writes; the limit is for both together."""
    ran, launcher = write_launcher(script, after, accuracy, folder, limit)
    if launcher is None:
        return Minified(TIME_LIMIT if ran.status is None else NO_LAUNCHER, ran.seconds, note=last_error(ran.output))
    place = folder / "launch"
    place.mkdir()
    command = [sys.executable, str(launcher), "minify", *options]
    environment = private_environment(folder)
    launched = run_limited(command, place, environment, limit - ran.seconds, folder / "launch.log")
    queries, exact = count_queries(launched.output, place)
    repro = place / "repro.py"
    return Minified(
        outcome=launch_outcome(launched, repro),
        seconds=ran.seconds + launched.seconds,
        queries=queries,
        exact=exact,
        ops_before=count_ops(launcher.read_text()),
        ops_after=count_ops(repro.read_text()) if repro.exists() else None,
        repro=repro if repro.exists() else None,
        note=last_error(launched.output),
        script_seconds=ran.seconds,
    )


def write_launcher(script: Path, after: str, accuracy: bool, folder: Path, limit: float) -> tuple[Ran, Path | None]:
    """Run the script until it leaves a launcher. A crash that kills the process leaves one at level 3 only.

    Level 3 is what torch/_dynamo/config.py recommends for segfaults. The result's seconds are those of all runs."""
    spent = 0.0
    for level in ("4",) if accuracy else ("2", "3"):
        environment = private_environment(folder, TORCHDYNAMO_REPRO_AFTER=after, TORCHDYNAMO_REPRO_LEVEL=level)
        ran = run_limited([sys.executable, str(script)], folder, environment, limit - spent, folder / "script.log")
        spent += ran.seconds
        # One file for each process; a later failing graph overwrites an earlier one.
        launchers = sorted(folder.glob("torch_compile_debug/*/minifier/minifier_launcher.py"), key=modified)
        if launchers or ran.status is None or ran.status >= 0:
            break
    return Ran(ran.status, spent, ran.output), launchers[-1] if launchers else None


def modified(path: Path) -> float:
    return path.stat().st_mtime


def launch_outcome(launched: Ran, repro: Path) -> str:
    if launched.status is None:
        return TIME_LIMIT
    if launched.status == 0 and repro.exists() and "Wrote minimal repro out to repro.py" in launched.output:
        return REPRO
    return DOES_NOT_FAIL if any(words in launched.output for words in SAYS_IT_DOES_NOT_FAIL) else NO_REPRO


def count_queries(output: str, place: Path) -> tuple[int | None, bool]:
    """Queries of a launcher's run, and whether that is all of them.

    A run that ends prints their number, once a graph. An isolated query leaves a file, so a run that was stopped can be
    counted too. In one process, a strategy that succeeded has cost two at least (it and its confirmation), the check of
    the whole graph one: a lower bound."""
    made = [int(number) for number in re.findall(r"(?:^|[\r\n])Made (\d+) queries", output)]
    if made:
        return sum(made), True
    if files := len(list(place.glob("isolate/*.py"))):
        return files, True
    if "Started off with" not in output:
        return None, False
    blocks = re.split(r"(?:^|[\r\n])Strategy: ", output)[1:]
    return 1 + 2 * sum("SUCCESS: Went from" in block for block in blocks), False


def forward_source(text: str) -> str | None:
    """The source of `forward` of a repro's `class Repro`, cut by indentation: its `__init__` is not always Python."""
    lines = text.splitlines()
    try:
        top = next(i for i, line in enumerate(lines) if line.startswith("class Repro"))
        first = next(i for i in range(top, len(lines)) if lines[i].lstrip().startswith("def forward"))
    except StopIteration:
        return None
    depth = len(lines[first]) - len(lines[first].lstrip())
    last = first + 1
    while last < len(lines) and (not lines[last].strip() or len(lines[last]) - len(lines[last].lstrip()) > depth):
        last += 1
    return textwrap.dedent("\n".join(lines[first:last]))


def count_ops(text: str) -> int | None:
    """The call nodes of a repro's graph; None when there is no graph that can be read.

    FX prints a node a statement. Reading an attribute, deleting a name and indexing a tuple are not ops; an index that
    is a plain number counts as a tuple's, though at Dynamo's level it may be a tensor's, which favours PyTorch."""
    source = forward_source(text)
    if source is None:
        return None
    try:
        body = ast.parse(source).body[0].body  # type: ignore[attr-defined]
    except SyntaxError:
        return None
    return sum(map(is_op, body))


def is_op(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.AugAssign):
        return True
    if not isinstance(statement, ast.Assign | ast.AnnAssign):
        return False
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    if isinstance(targets[0], ast.Subscript):
        return True
    value = statement.value
    if isinstance(value, ast.Subscript):
        return not re.fullmatch(r"-?\d+", ast.unparse(value.slice))
    return isinstance(value, ast.Call | ast.BinOp | ast.UnaryOp | ast.Compare)


def shows_bug(ran: Ran, signature: str) -> bool:
    """Whether `python repro.py` showed a failure of the kind that was asked for.

    `signature`: "hang", "signal", "exception" (any but that of a broken script), or a way to be wrong."""
    if signature == "hang":
        return ran.status is None
    if ran.status in (0, None):
        return False
    if signature == "signal":
        return ran.status < 0 or ran.status > 128
    error = last_error(ran.output)
    if signature == "exception":
        return not error.startswith(BROKEN_SCRIPT)
    return "AccuracyError" in error


def last_error(output: str) -> str:
    """The last line of a log that names an exception, cut to 200 characters."""
    named = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Failed|Unsupported|Interrupt)\w*(?::|$)")
    lines = [line.strip() for line in re.split(r"[\r\n]", output)]
    return next((line[:200] for line in reversed(lines) if named.match(line)), "")
