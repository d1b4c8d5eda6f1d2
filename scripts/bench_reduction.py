"""Run PyTorch's own minifier and `minify` side by side on the corpus, on this machine, in one run.

    python scripts/bench_reduction.py ['relu_*' ...] [--json rows.json] [--markdown bench.md]

Tools (`--variants`):
  aot             TORCHDYNAMO_REPRO_AFTER=aot, then `minifier_launcher.py minify`: one process a query, its default
  aot-no-isolate  the same with `--no-isolate`: all queries in one process
  dynamo          TORCHDYNAMO_REPRO_AFTER=dynamo; its launcher takes --no-isolate, but ignores it
  minify          `python -m minify accuracy|crash`
Each starts with empty caches and gets the time limit for its whole run (script and launcher together). Accuracy cases run
at TORCHDYNAMO_REPRO_LEVEL=4, crashes at 2, and at 3 where the process dies. Copying the repro alone isn't in its seconds.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import fnmatch
import importlib.metadata
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts import bench_table, torch_minifier
from scripts.bench_table import OURS, Row
from scripts.limited_run import Ran, private_environment, run_limited
from scripts.torch_minifier import NO_REPRO, REPRO, TIME_LIMIT, Minified

ROOT = Path(__file__).parents[1]
TORCHS = {"aot": ("aot", ()), "aot-no-isolate": ("aot", ("--no-isolate",)), "dynamo": ("dynamo", ())}
VARIANTS = (*TORCHS, OURS)
NO_FAILURE = {1: "no failure", 4: "unstable"}
ALONE_SECONDS = 180.0


@dataclass(frozen=True)
class CorpusCase:
    """A script and what its expected.toml says. `exit_code` is what `minify` should end with under this torch."""

    name: str
    script: Path
    command: str
    exit_code: int
    signature: str
    slow: bool
    options: tuple[str, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="names or globs; default: all that are not slow")
    parser.add_argument("--limit-seconds", type=float, default=300.0, help="for each tool on each case (default 300)")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS, help="default: all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="raw rows; those already there are not run again")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="the report, with the date and the machine")
    parser.add_argument("--fresh", action="store_true", help="run the chosen rows again, even if they are in --json")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep each repro and log in DIR/<case>/<variant>/")
    options = parser.parse_args()
    try:
        cases = choose(read_corpus(ROOT / "corpus"), options.cases)
        rows = load_rows(options.json, options.limit_seconds)
    except ValueError as problem:
        parser.error(str(problem))
    wanted = [(case, variant) for case in cases for variant in VARIANTS if variant in options.variants]
    for case, variant in wanted:
        if options.fresh or (case.name, variant) not in rows:
            row = measure(case, variant, options.limit_seconds, options.keep)
            rows[row.key] = row
            print("  ".join(bench_table.cells(row)), file=sys.stderr, flush=True)
            save_rows(options.json, rows.values(), options.limit_seconds)
    report = bench_table.document([rows[case.name, variant] for case, variant in wanted], facts(options.limit_seconds))
    print(report)
    if options.markdown:
        options.markdown.write_text(report)


def read_corpus(folder: Path) -> list[CorpusCase]:
    return [read_case(path.parent) for path in sorted(folder.glob("*/model.py"))]


def read_case(folder: Path) -> CorpusCase:
    """Where the bug doesn't show in this torch, the right answer is "no such failure"."""
    said = tomllib.loads((folder / "expected.toml").read_text())
    shows = ".".join(torch_version().split(".")[:2]) in said["torch"]
    return CorpusCase(
        name=folder.name,
        script=folder / "model.py",
        command=said["command"],
        exit_code=said["exit_code"] if shows else 1,
        signature=said["signature"],
        slow=said["slow"],
        options=tuple(said["args"]),
    )


def choose(cases: Sequence[CorpusCase], patterns: Sequence[str]) -> list[CorpusCase]:
    """The cases that a pattern matches, in the order of the corpus; a pattern that matches none is an error."""
    if not patterns:
        return [case for case in cases if not case.slow]
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(case.name, pattern) for case in cases):
            raise ValueError(f"no case of the corpus is called {pattern!r}; they are the folders of corpus/")
    return [case for case in cases if any(fnmatch.fnmatchcase(case.name, pattern) for pattern in patterns)]


def measure(case: CorpusCase, variant: str, limit: float, keep: Path | None) -> Row:
    """Run one tool on one case in a folder that goes away, then its repro in another."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as place:
        folder = Path(place, "run")
        folder.mkdir()
        result = run_variant(case, variant, folder, limit)
        lines = len(result.repro.read_text().splitlines()) if result.repro else None
        alone, note = None, result.note
        if result.repro and result.outcome == REPRO:
            alone, note = repro_alone(result.repro, folder, variant, case.signature)
        if keep:
            keep_files(Path(place), keep / case.name / variant)
    return Row(
        case=case.name,
        variant=variant,
        expected=case.exit_code,
        outcome=result.outcome,
        seconds=round(result.seconds, 1),
        queries=result.queries,
        exact=result.exact,
        ops_before=result.ops_before,
        ops_after=result.ops_after,
        lines=lines,
        alone=alone,
        exit_code=result.exit_code,
        note=note,
        when=datetime.datetime.now().isoformat(timespec="seconds"),
        load=round(load, 1),
        script_seconds=None if result.script_seconds is None else round(result.script_seconds, 1),
    )


def run_variant(case: CorpusCase, variant: str, folder: Path, limit: float) -> Minified:
    if variant == OURS:
        return minify_with_ours(case, folder, limit)
    after, options = TORCHS[variant]
    return torch_minifier.minify_with_torch(case.script, after, case.command == "accuracy", options, folder, limit)


def minify_with_ours(case: CorpusCase, folder: Path, limit: float) -> Minified:
    out = folder / "out"
    command = [sys.executable, "-m", "minify", case.command, str(case.script), "--out", str(out), *case.options]
    started = time.time()
    ran = run_limited(command, folder, private_environment(folder, PYTHONPATH=str(ROOT)), limit, folder / "run.log")
    report = json.loads((out / "report.json").read_text()) if (out / "report.json").exists() else {}
    found = read_report(report, ran, out / "repro.py")
    return dataclasses.replace(found, script_seconds=failure_shown(out / "events.jsonl", started))


def failure_shown(journal: Path, started: float) -> float | None:
    """Seconds until the script under watch had shown its failure; None where it showed none."""
    lines = journal.read_text().splitlines() if journal.exists() else []
    times = [event["time"] for event in map(json.loads, lines) if event["event"] in ("diverged", "crashed")]
    return times[0] - started if times else None


def read_report(report: dict[str, Any], ran: Ran, repro: Path) -> Minified:
    """What `minify` says of its run; without a report only how its process ended."""
    if ran.status is None:
        outcome = TIME_LIMIT
    elif ran.status in (0, 3) and repro.exists():
        outcome = REPRO
    else:
        outcome = NO_FAILURE.get(ran.status, NO_REPRO)
    return Minified(
        outcome=outcome,
        seconds=ran.seconds,
        queries=report.get("queries"),
        ops_before=(report.get("original") or {}).get("ops"),
        ops_after=(report.get("reduced") or {}).get("ops"),
        repro=repro if repro.exists() else None,
        exit_code=ran.status,
        note=last_words(ran),
    )


def last_words(ran: Ran) -> str:
    lines = [line.strip() for line in ran.output.splitlines() if line.strip()]
    return torch_minifier.last_error(ran.output) or (lines[-1][:200] if lines else "")


def repro_alone(repro: Path, folder: Path, variant: str, signature: str) -> tuple[bool, str]:
    """Whether the repro shows the failure in an empty folder, the folder it was made in being gone, and its last line.

    PyTorch's names files of that folder, and reads recorded values there as long as they exist."""
    alone = folder.with_name("alone")
    alone.mkdir()
    shutil.copy(repro, alone / "repro.py")
    folder.rename(folder.with_name("moved"))
    environment = private_environment(folder.with_name("caches"))
    ran = run_limited([sys.executable, "repro.py"], alone, environment, ALONE_SECONDS, folder.with_name("alone.log"))
    shown = ran.status == 1 if variant == OURS else torch_minifier.shows_bug(ran, signature)
    return shown, last_words(ran)


def keep_files(folder: Path, place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for file in (
        *folder.glob("*/*.log"),
        *folder.glob("*.log"),
        *folder.glob("*/launch/repro.py"),
        *folder.glob("*/out/*"),
    ):
        if file.is_file():
            shutil.copy(file, place)


def machine() -> dict[str, str]:
    """What a row's numbers depend on, besides the load."""
    models = [line.split(":")[1].strip() for line in cpu_facts() if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor() or platform.machine(),
        "cpus": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": torch_version(),
    }


def cpu_facts() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def torch_version() -> str:
    return importlib.metadata.version("torch")


def facts(limit: float) -> list[str]:
    here = machine()
    return [
        f"{datetime.date.today()}; {here['cpu']}, {here['cpus']} CPUs; {here['system']}; Python {here['python']}; torch {here['torch']}",
        f"{limit:.0f} s for each tool on each case; caches empty at the start; other work may share the machine",
        "right: ended with a repro where there is a bug, without one where there is none",
        "ops: calls of the graph that the tool starts from (Dynamo's or ATen's) and of its repro; lines: all of repro.py; "
        "where a run did not end with a repro, those of its last checkpoint, and ≥ is the least number of its queries",
        "script: of the seconds, those that went by before the script under watch had shown its failure",
        "alone: the repro shows the failure when copied to an empty folder",
    ]


def load_rows(path: Path | None, limit: float) -> dict[tuple[str, str], Row]:
    """The rows of an earlier run; an error when they are not comparable with those of this one."""
    if path is None or not path.exists():
        return {}
    saved = json.loads(path.read_text())
    if (saved["machine"], saved["limit_seconds"]) != (machine(), limit):
        raise ValueError(f"{path} was measured on another machine, with another torch or limit; name another file")
    return {row.key: row for row in (Row(**fields) for fields in saved["rows"])}


def save_rows(path: Path | None, rows: Iterable[Row], limit: float) -> None:
    if path is None:
        return
    saved = {"machine": machine(), "limit_seconds": limit, "rows": [dataclasses.asdict(row) for row in rows]}
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(saved, indent=1))
    unfinished.replace(path)


if __name__ == "__main__":
    main()
