"""Run every healthy program of the corpus twice, at default tolerances and at ones that no rounding passes, and show the answers.

    python scripts/drift_table.py                          # the accuracy cases named healthy_*
    python scripts/drift_table.py 'healthy_bf16_*' --rtol 1e-6
    python scripts/drift_table.py --markdown docs/drift.md --jobs 2
    python scripts/drift_table.py --device cuda            # TF32 and Triton's reductions among them

The second run stands for a comparison that knows of no rounding: what is out of tolerance there and no bug has to be called
drift or ill-conditioned, with its numbers, and not be minified. Exits with 1 where an answer is another one.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from scripts.corpus_judge import EXIT_NO_FAILURE, Expected, read_report  # noqa: E402  (started as a file)
from scripts.corpus_table import chosen, installed_torch, last_line, leave  # noqa: E402
from scripts.limited_run import private_environment, run_limited  # noqa: E402
from scripts.tables import markdown_table, wide_console  # noqa: E402

BUDGET = "120s"  # a run at strict tolerances that minifies after all has shown what it gets wrong by then
SPENT = 900.0
COLUMNS = ("case", "exit", "answer", "strict exit", "strict answer", "max abs", "max rel", "eager's own", "wrong")
_NUMERIC = ("exit", "strict exit", "max abs", "max rel", "eager's own")
_NUMBER = r"([0-9.e+-]*[0-9]|inf|nan)"
_NUMBERS = re.compile(rf"max abs {_NUMBER}, max rel {_NUMBER}[;,] eager's own error (?:is )?{_NUMBER}")
# The one that a message names first is what was answered. Where random numbers or NaN are all that differs, there is no drift.
ANSWERS = (
    "ill-conditioned",
    "other random numbers",
    "drift",
    "no divergence",
    "gives the right result",
)
WITH_NUMBERS = ("ill-conditioned", "drift")


@dataclass(frozen=True)
class Answer:
    """What one run answered. `status` is None where it was killed; `numbers` are max abs, max rel and eager's own error."""

    status: int | None
    text: str
    numbers: tuple[str, ...] = ()

    def faults(self) -> list[str]:
        """Why this is no right answer for a healthy program; nothing where it is."""
        if self.status != EXIT_NO_FAILURE:
            return [f"exit {self.status}: {self.text}"]
        if self.text not in ANSWERS:
            return [f"neither drift nor equal: {self.text}"]
        if self.text in WITH_NUMBERS and not self.numbers:
            return [f"{self.text} without numbers"]
        return []


@dataclass(frozen=True)
class Row:
    """A healthy case, as it is answered at default tolerances and at strict ones."""

    name: str
    default: Answer
    strict: Answer

    @property
    def faults(self) -> list[str]:
        return [
            f"{when}: {fault}"
            for when, answer in (("default", self.default), ("strict", self.strict))
            for fault in answer.faults()
        ]


def main() -> int:
    options = parse()
    cases = [case for case in chosen(options.names, True, options.device) if case.command == "accuracy"]
    out = (options.out or Path(tempfile.mkdtemp(prefix="drift-"))).resolve()
    out.mkdir(parents=True, exist_ok=True)
    strict = ("--rtol", f"{options.rtol:g}", "--atol", f"{options.atol:g}")
    print(f"{len(cases)} cases, torch {installed_torch()}, {options.device}; results in {out}", file=sys.stderr)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, leave)
    rows: list[Row] = []
    device = () if options.device == "cpu" else ("--device", options.device)

    def row(case: Expected) -> Row:
        return Row(case.name, answered(case, out, "default", device), answered(case, out, "strict", (*device, *strict)))

    with ThreadPoolExecutor(options.jobs) as pool:
        for done in as_completed([pool.submit(row, case) for case in cases]):
            rows.append(done.result())
            rows.sort(key=lambda one: one.name)
            print(
                f"[{len(rows)}/{len(cases)}] {' | '.join(filter(None, cells(done.result())))}",
                file=sys.stderr,
                flush=True,
            )
            if options.markdown:
                options.markdown.write_text(markdown(rows, strict, options.device), encoding="utf-8")
    show(rows)
    return int(any(row.faults for row in rows))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", default=["healthy_*"], help="cases by name or glob; default: healthy_*")
    parser.add_argument("--rtol", type=float, default=1e-7, help="relative tolerance of the strict run")
    parser.add_argument("--atol", type=float, default=0.0, help="absolute tolerance of the strict run")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time; each has worker processes of its own")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there as well")
    parser.add_argument("--out", type=Path, help="a folder for the results; a temporary one by default")
    return parser.parse_args()


def answered(case: Expected, out: Path, when: str, how: tuple[str, ...]) -> Answer:
    """Run minify on one case, in an environment of its own."""
    folder, log = out / f"{case.name}-{when}", out / f"{case.name}-{when}.log"
    command = [sys.executable, "-m", "minify", case.command, str(case.script), "--out", str(folder), *case.args]
    environment = private_environment(out / "environment")
    ran = run_limited([*command, "--budget", BUDGET, *how], ROOT, environment, SPENT, log)
    report = read_report(folder)
    if ran.status != EXIT_NO_FAILURE:
        calls = ", ".join(map(str, report.get("calls") or ()))
        return Answer(ran.status, f"{report.get('outcome', '')} {calls}".strip() or last_line(ran))
    return read_answer(ran.status, str(report.get("message", "")))


def read_answer(status: int, message: str) -> Answer:
    """The answer that a message holds, with its numbers."""
    numbers = _NUMBERS.search(message)
    found = [(message.index(answer), answer) for answer in ANSWERS if answer in message]
    text = min(found)[1] if found else message[:120]
    return Answer(status, text, numbers.groups() if numbers else ())


def cells(row: Row) -> list[str]:
    """The texts of one line, one for each of COLUMNS; the numbers are those of the strict run."""
    return [
        row.name,
        str(row.default.status),
        row.default.text,
        str(row.strict.status),
        row.strict.text,
        *(row.strict.numbers or ("", "", "")),
        "; ".join(row.faults),
    ]


def summary(rows: list[Row]) -> str:
    drift = sum(row.strict.text in WITH_NUMBERS for row in rows)
    wrong = sum(bool(row.faults) for row in rows)
    return f"{len(rows)} healthy programs: at strict tolerances {drift} are called drift or ill-conditioned, {wrong} are answered wrongly"


def show(rows: list[Row]) -> None:
    table, console = Table(*COLUMNS), wide_console()
    for row in rows:
        table.add_row(*(cell.replace("[", r"\[") for cell in cells(row)))
    console.print(table)
    console.print(summary(rows))


def markdown(rows: list[Row], strict: tuple[str, ...], device: str) -> str:
    """The table for a document."""
    lines = [
        "# Healthy programs at strict tolerances",
        "",
        f"`python scripts/drift_table.py --device {device} --markdown docs/drift.md`, torch {installed_torch()}. {summary(rows)}.",
        "",
        "Each program is right up to rounding and is run twice: at default tolerances, and with "
        f"`{' '.join(strict)}`, which no rounding passes, as a comparison that knows of none would do. The",
        "numbers are of the strict run: how far the compiled result is from the reference, and how far eager is.",
        "",
        *markdown_table([(title, "right") if title in _NUMERIC else title for title in COLUMNS], map(cells, rows)),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
