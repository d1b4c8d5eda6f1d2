"""Ask `minify stage` and torch's own CompilerBisector, one after the other, where each program of the stage corpus goes wrong.

    python scripts/stage_table.py                                     # every case whose expected.toml has `stage`
    python scripts/stage_table.py 'stage_*' div_floor_inf --jobs 2
    python scripts/stage_table.py --out runs --markdown table.md      # goes on where a run that was stopped left off

Both get a time limit, and caches that nobody else has. Each row is written to `rows.jsonl` as it comes; a case that is in it is
not run again. Exits with 1 where minify names another stage than is expected, or something else inside it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import statistics
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from scripts import bisector  # noqa: E402  (started as a file)
from scripts.corpus_judge import CORPUS, Expected, load, named_stage, read_report, untold_inside  # noqa: E402
from scripts.corpus_table import chosen, installed_torch, leave  # noqa: E402
from scripts.limited_run import private_environment, run_limited  # noqa: E402
from scripts.tables import markdown_table, wide_console  # noqa: E402

LADDER_MOST, ALL_MOST = 12, 40  # compiles that naming a stage, and all of it, may take
CALL_SECONDS = 300.0  # for each of the two
COLUMNS = (
    ("case", "left"),
    ("stage", "left"),
    ("right", "left"),
    ("inside", "left"),
    ("right", "left"),
    ("rungs", "right"),
    ("queries", "right"),
    ("s", "right"),
    ("CompilerBisector says", "left"),
    ("right", "left"),
    ("calls", "right"),
    ("s", "right"),
)


@dataclass(frozen=True)
class Row:
    """One program: what minify named, and what the bisector answered. `rungs` of the ladder were asked, `queries` in all, from the
    confirming runs on. It is judged when it is read, by what is expected then."""

    expected: Expected
    stage: str
    inside: str
    rungs: int
    queries: int
    seconds: float
    answer: dict[str, Any]
    bisector_seconds: float

    @property
    def stage_right(self) -> bool:
        return self.stage == self.expected.stage

    @property
    def inside_right(self) -> bool | None:
        """None where nothing inside is expected."""
        return not untold_inside(self.expected, {"inside": self.inside}) if self.expected.inside else None

    @property
    def right(self) -> bool:
        return self.stage_right and self.inside_right is not False

    @property
    def cheap(self) -> bool:
        return self.rungs <= LADDER_MOST and self.queries <= ALL_MOST

    @property
    def verdict(self) -> str:
        return bisector.verdict(self.expected, self.answer)

    @property
    def calls(self) -> int:
        return int(self.answer.get("calls") or 0)

    def as_line(self) -> str:
        """For `rows.jsonl`."""
        kept = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "expected"}
        return json.dumps({"case": self.expected.name, **kept}) + "\n"


def main() -> int:
    options = parse()
    cases = [case for case in chosen(options.names or ["*"], slow=False, device="cpu") if case.stage]
    if not cases:
        raise SystemExit("none of these has a `stage` in its expected.toml")
    out = (options.out or Path(tempfile.mkdtemp(prefix="stages-"))).resolve()
    out.mkdir(parents=True, exist_ok=True)
    rows = read_rows(out)
    left = [case for case in cases if case.name not in rows]
    print(f"{len(left)} of {len(cases)} cases to run, torch {installed_torch()}; results in {out}", file=sys.stderr)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, leave)
    with ThreadPoolExecutor(options.jobs) as pool:
        for done in as_completed([pool.submit(run_case, case, out, options.timeout) for case in left]):
            row = done.result()
            rows[row.expected.name] = row
            with (out / "rows.jsonl").open("a", encoding="utf-8") as file:
                file.write(row.as_line())
            print(f"[{len(rows)}] {' | '.join(cells(row))}", file=sys.stderr, flush=True)
    shown = [rows[name] for name in sorted(rows)]
    if options.markdown:
        options.markdown.write_text(markdown(shown), encoding="utf-8")
    show(shown)
    return int(not all(row.right for row in shown))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="cases by name or glob; all that have a stage if none is given")
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time")
    parser.add_argument("--timeout", type=float, default=CALL_SECONDS, help="seconds that each of the two may take")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there as well")
    parser.add_argument(
        "--out", type=Path, help="folder of the rows, gone on with if there are any; else a temporary one"
    )
    options = parser.parse_args()
    if options.jobs < 1 or options.timeout <= 0:
        parser.error("--jobs must be at least 1 and --timeout above 0")
    return options


def read_rows(out: Path) -> dict[str, Row]:
    """The rows that were written, by case; of several of one case the last."""
    path = out / "rows.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    rows: dict[str, Row] = {}
    for row in map(json.loads, lines):
        name = row.pop("case")
        rows[name] = Row(load(CORPUS / name), **row)
    return rows


def run_case(expected: Expected, out: Path, limit: float) -> Row:
    """Both, one after the other."""
    folder = out / expected.name
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was stopped
    environment = private_environment(out / "environment")
    kind = ("--kind", expected.command) if expected.command != "stage" else ()
    command = [sys.executable, "-m", "minify", "stage", str(expected.script), "--out", str(folder), *kind]
    ran = run_limited([*command, *expected.args], ROOT, environment, limit, out / f"{expected.name}.log")
    apart = private_environment(out / "bisector")
    asked = [sys.executable, str(ROOT / "scripts" / "bisect_one.py"), str(expected.script)]
    other = run_limited(asked, ROOT, apart, limit, out / f"{expected.name}.bisector.log")
    return row_of(expected, read_report(folder), ran.seconds, read_answer(other.output, other.status), other.seconds)


def read_answer(output: str, status: int | None) -> dict[str, Any]:
    """The last line that a bisection printed; `error` where it did not come so far."""
    for line in reversed(output.splitlines()):
        if line.startswith('{"backend"'):
            return dict(json.loads(line))
    return {"error": "stopped at the limit" if status is None else f"ended with status {status}"}


def row_of(expected: Expected, report: dict[str, Any], seconds: float, answer: dict[str, Any], waited: float) -> Row:
    return Row(
        expected,
        named_stage(report),
        str(report.get("inside") or ""),
        len(report.get("ladder") or ()),
        int(report.get("queries") or 0),
        round(seconds, 1),
        answer,
        round(waited, 1),
    )


def cells(row: Row) -> list[str]:
    """The texts of one line of the table, one for each of COLUMNS."""
    return [
        row.expected.name,
        row.stage,
        "yes" if row.stage_right else "NO",
        row.inside,
        "" if row.inside_right is None else "yes" if row.inside_right else "NO",
        str(row.rungs),
        str(row.queries),
        f"{row.seconds:.0f}",
        bisector.told(row.answer),
        row.verdict,
        str(row.calls),
        f"{row.bisector_seconds:.0f}",
    ]


def summary(rows: list[Row]) -> str:
    """The footer: what each got right, and what it took."""
    asked = [row for row in rows if row.inside_right is not None]
    given = {
        word: sum(row.verdict == word for row in rows) for word in (bisector.RIGHT, bisector.WRONG, bisector.NO_ANSWER)
    }
    dear = [row.expected.name for row in rows if not row.cheap]
    columns = zip(*((row.queries, row.seconds, row.calls, row.bisector_seconds) for row in rows), strict=True)
    medians = [statistics.median(values) for values in columns]
    return (
        f"{len(rows)} programs. minify: the stage right in {sum(row.stage_right for row in rows)}, what is inside right in "
        f"{sum(bool(row.inside_right) for row in asked)} of {len(asked)}, median {medians[0]:.0f} queries and {medians[1]:.0f} s; "
        f"most {max(row.rungs for row in rows)} rungs and {max(row.queries for row in rows)} queries"
        f"{f', over {LADDER_MOST} or {ALL_MOST}: ' + ', '.join(dear) if dear else ''}. "
        f"CompilerBisector: {', '.join(f'{count} {word}' for word, count in given.items())}, "
        f"median {medians[2]:.0f} calls and {medians[3]:.0f} s"
    )


def show(rows: list[Row]) -> None:
    """The table on stdout."""
    console, table = wide_console(), Table()
    for title, justify in COLUMNS:
        table.add_column(title, justify=justify, no_wrap=title == "case")  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*(cell.replace("[", r"\[") for cell in cells(row)))
    console.print(table)
    console.print(summary(rows))


def markdown(rows: list[Row]) -> str:
    """The same table for a document."""
    lines = [f"{summary(rows)}.", "", *markdown_table(COLUMNS, map(cells, rows))]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
