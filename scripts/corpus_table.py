"""Reduce every case of the corpus and hold the results against what `expected.toml` says of each.

    python scripts/corpus_table.py                       # all but the slow cases
    python scripts/corpus_table.py 'healthy_*' div_floor_inf --jobs 2
    python scripts/corpus_table.py --slow --device cuda --markdown table.md
    python scripts/corpus_table.py --passes              # what each pass cost and brought, too

Runs `python -m minify` as a user would, reads its `report.json`, then copies `repro.py` into an empty folder and runs
it there, with fresh caches and without this checkout on the path. Exits with 1 when any case differs.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import signal
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from scripts.corpus_judge import CORPUS, Alone, Expected, Row, differences, load, read_report  # noqa: E402  (started as a file)
from scripts.limited_run import Ran, private_environment, relatives, run_limited, send  # noqa: E402
from scripts.pass_table import COLUMNS as PASS_COLUMNS  # noqa: E402
from scripts.pass_table import pass_cells, pass_markdown, pass_rows  # noqa: E402
from scripts.tables import markdown_table, wide_console  # noqa: E402

ALONE_SECONDS = 300.0
EXIT_BUG_SHOWS = 1  # of a repro
COLUMNS = (
    ("case", "left"),
    ("ok", "left"),
    ("exit", "right"),
    ("found", "left"),
    ("ops", "right"),
    ("inputs", "right"),
    ("elements", "right"),
    ("lines", "right"),
    ("queries", "right"),
    ("cached", "right"),
    ("slipped", "right"),
    ("seconds", "right"),
    ("fresh runs", "right"),
    ("alone", "left"),
    ("differs", "left"),
)


def main() -> int:
    options = parse()
    cases = chosen(options.names, options.slow, options.device)
    out = (options.out or Path(tempfile.mkdtemp(prefix="corpus-"))).resolve()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SystemExit(f"--out {out} isn't empty: give a new folder")
    out.mkdir(parents=True, exist_ok=True)
    version = installed_torch()
    print(f"{len(cases)} cases, torch {version}, {options.device}; results in {out}", file=sys.stderr)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, leave)
    rows: list[Row] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        running = [pool.submit(run_case, case, out, options, version) for case in cases]
        for done in as_completed(running):
            row = done.result()
            rows = sorted([*rows, row], key=lambda row: row.expected.name)
            print(f"[{len(rows)}/{len(cases)}] {' | '.join(filter(None, cells(row)))}", file=sys.stderr, flush=True)
            if options.markdown:
                text = document(rows, version, options.device, passes=options.passes)
                options.markdown.write_text(text, encoding="utf-8")
    show(rows)
    if options.passes:
        show_passes(rows)
    return int(any(row.differs for row in rows))


def leave(number: int, frame: object) -> None:
    """Stop at once, and leave none of the programs running that were started."""
    for pid in relatives(os.getpid()) - {os.getpid()}:
        send(os.kill, pid, signal.SIGKILL)
    os._exit(128 + number)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="cases by name or glob; all that aren't slow if none is given")
    parser.add_argument("--slow", action="store_true", help="slow cases too")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds a case may take before it is killed")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there as well")
    parser.add_argument("--passes", action="store_true", help="say as well what each pass cost and brought")
    parser.add_argument("--out", type=Path, help="a new folder for the results; a temporary one by default")
    options = parser.parse_args()
    if options.jobs < 1 or options.timeout <= 0:
        parser.error("--jobs must be at least 1 and --timeout above 0")
    return options


def chosen(names: list[str], slow: bool, device: str) -> list[Expected]:
    """The cases meant by `names`, in order. A slow one must be asked for by `--slow` or by its full name."""
    every = [load(path.parent) for path in sorted(CORPUS.glob("*/expected.toml"))]
    unmatched = [name for name in names if not any(fnmatchcase(case.name, name) for case in every)]
    if unmatched:
        raise SystemExit(f"no such case: {', '.join(unmatched)}; the cases are the folders of {CORPUS}")
    cases = [case for case in every if not names or any(fnmatchcase(case.name, name) for name in names)]
    cases = [case for case in cases if device in case.devices and (slow or not case.slow or case.name in names)]
    if not cases:
        raise SystemExit(f"no case left: all that match are slow (--slow) or not for {device}")
    return cases


def installed_torch() -> str:
    """`2.13` of `2.13.0+cpu`. Imports nothing."""
    return ".".join(metadata.version("torch").split(".")[:2])


def run_case(expected: Expected, out: Path, options: argparse.Namespace, version: str) -> Row:
    """Run minify on one case, then its repro alone."""
    folder, log = out / expected.name, out / f"{expected.name}.log"
    device = () if options.device == "cpu" else ("--device", options.device)
    command = [sys.executable, "-m", "minify", expected.command, str(expected.script), "--out", str(folder)]
    # One folder of caches for all cases: the compiler's precompiled headers are worth sharing, as on a user's machine.
    environment = private_environment(out / "environment")
    ran = run_limited([*command, *expected.args, *device], ROOT, environment, options.timeout, log)
    repro = folder / "repro.py"
    alone = run_alone(repro, expected.signature) if repro.is_file() else None
    judged = version in expected.torch
    row = Row(expected, ran.status, ran.seconds, read_report(folder), alone, judged, last_line(ran))
    return Row(**{**vars(row), "differs": tuple(differences(row)) if judged else ()})


def last_line(ran: Ran) -> str:
    lines = ran.output.strip().splitlines()
    return lines[-1].strip()[:120] if lines else ""


def run_alone(repro: Path, signature: str) -> Alone:
    """Run a copy of `repro` isolated in an empty folder with empty caches: exit code 1 says that the bug shows.

    A repro of a signal may also die of one, and a repro of a hang may hang."""
    imports = foreign_imports(repro)
    with tempfile.TemporaryDirectory(prefix="alone-") as name:
        folder = Path(name) / "repro"
        folder.mkdir()
        copy = shutil.copy(repro, folder)
        environment = private_environment(Path(name))
        limit = ALONE_SECONDS if signature != "hang" else ALONE_SECONDS / 3
        ran = run_limited([sys.executable, "-I", copy], folder, environment, limit, Path(name) / "log")
    if ran.status is None:
        return Alone(signature == "hang", "hangs", imports)
    if ran.status < 0:
        return Alone(signature == "signal", f"dies of {signal.Signals(-ran.status).name}", imports)
    return Alone(ran.status == EXIT_BUG_SHOWS, "yes" if ran.status == EXIT_BUG_SHOWS else f"exit {ran.status}", imports)


def foreign_imports(repro: Path) -> tuple[str, ...]:
    """Packages that `repro` imports and that are neither torch nor of Python's own library."""
    try:
        tree = ast.parse(repro.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        return (f"(no valid Python: {error})",)
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or ".").partition(".")[0])
    return tuple(sorted(found - {"torch"} - sys.stdlib_module_names))


def cells(row: Row) -> list[str]:
    """The texts of one line of the table, one for each of COLUMNS."""
    report = row.report
    verified = report.get("verified") or {}
    return [
        row.expected.name,
        "NO" if row.differs else "ok" if row.judged else f"torch {'/'.join(row.expected.torch)} only",
        "killed" if row.status is None else str(row.status),
        str(report.get("outcome", "")),
        before_after(report, "ops"),
        before_after(report, "inputs"),
        before_after(report, "elements"),
        str(report.get("repro_lines") or ""),
        str(report.get("queries", "")),
        str(report.get("cache_hits", "")),
        str(report.get("slipped", "")),
        f"{report.get('seconds') or row.seconds:.0f}",
        f"{verified.get('reproduced')}/{verified.get('runs')}" if verified else "",
        row.alone.text if row.alone else "",
        "; ".join(row.differs),
    ]


def before_after(report: dict[str, Any], key: str) -> str:
    before, after = report.get("original", {}).get(key), report.get("reduced", {}).get(key)
    return "" if before is None else f"{before} → {'?' if after is None else after}"


def summary(rows: list[Row]) -> str:
    reduced = [row for row in rows if row.status == 0]
    alone = sum(row.alone is not None and row.alone.shows for row in reduced)
    queries = sorted(row.report.get("queries", 0) for row in reduced)
    median = f", median {queries[len(queries) // 2]} queries" if queries else ""
    bad = sum(bool(row.differs) for row in rows)
    return (
        f"{len(rows)} cases: {len(reduced)} reduced, {alone} reproduce alone{median}; {bad} differ from expected.toml"
    )


def show(rows: list[Row]) -> None:
    """The table on stdout."""
    console = wide_console()
    table = Table()
    for title, justify in COLUMNS:
        table.add_column(title, justify=justify, no_wrap=title in ("case", "ops"))
    for row in rows:
        table.add_row(*(cell.replace("[", r"\[") for cell in cells(row)))
    console.print(table)
    console.print(summary(rows))


def show_passes(rows: list[Row]) -> None:
    """The passes on stdout, summed over all cases."""
    table = Table()
    for number, title in enumerate(PASS_COLUMNS):
        table.add_column(title, justify="right" if 0 < number < len(PASS_COLUMNS) - 1 else "left")
    for row in pass_rows(row.report for row in rows):
        table.add_row(*pass_cells(row))
    wide_console().print(table)


def document(rows: list[Row], version: str, device: str, *, passes: bool) -> str:
    """All that goes into a document."""
    table = markdown(rows, version, device)
    return f"{table}\n{pass_markdown(pass_rows(row.report for row in rows))}" if passes else table


def markdown(rows: list[Row], version: str, device: str) -> str:
    """The same table for a document."""
    lines = [f"torch {version}, {device}. {summary(rows)}.", "", *markdown_table(COLUMNS, map(cells, rows))]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
