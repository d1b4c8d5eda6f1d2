"""Reduce each case in which one fact decides twice, with every guard and with one of them off, and show which loses the fact.

    python scripts/guard_table.py                                # every case whose expected.toml has `facts`
    python scripts/guard_table.py transposed_input_backend
    python scripts/guard_table.py --out runs --markdown docs/guards.md   # goes on where a run that was stopped left off

First `minify` itself, as a user would run it. Then the same search from the same captured case, through an oracle that
is handed each candidate as a naive reducer would have it (`scripts/guards.py`), which is also how the result is written;
then what such a reducer would write of the result of `minify` itself. Each repro is run in a fresh process. Exits with 1
where a fact is not kept, or where no naive reducer loses it.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from minify import case as cases  # noqa: E402  (started as a file)
from minify import report, store  # noqa: E402
from minify.case import Case  # noqa: E402
from minify.emit import Facts, emit, inline_values, write_data  # noqa: E402
from minify.emit.verify import described, run_alone, shows  # noqa: E402
from minify.oracle.local import LocalOracle  # noqa: E402
from minify.passes import PASSES  # noqa: E402
from minify.reduce import Session, reduce  # noqa: E402
from minify.reduce.session import annotated  # noqa: E402
from minify.runs import RunFolder, StopFlag, default_workers  # noqa: E402
from minify.tolerance import NOISE  # noqa: E402
from minify.verdict import Observation, Signature  # noqa: E402
from scripts import corpus_judge, corpus_table  # noqa: E402
from scripts.corpus_judge import Expected  # noqa: E402
from scripts.guards import Guard, NaiveOracle, guards_of, is_derived  # noqa: E402
from scripts.tables import markdown_table, wide_console  # noqa: E402

SHOWS = "shows"  # what a repro alone does that kept the fact
COLUMNS = (
    "case",
    "decisive",
    "guard that is off",
    "without it",
    "captured",
    "with every guard",
    "alone",
    "naive search",
    "alone",
    "written naively",
    "the fact is",
)


@dataclass(frozen=True)
class Ended:
    """What a reducer ended with, and what its repro does in a fresh process: `SHOWS` the failure, or how it ends instead."""

    ops: int
    inputs: int
    alone: str

    @property
    def size(self) -> str:
        return f"{self.ops} ops, {self.inputs} inputs"


@dataclass(frozen=True)
class Row:
    """One case and one guard. `searched` is what the naive search ended with; `written` what becomes of the result of `minify`
    where only the writing is naive, None for a guard that rewrites nothing. `differs` says where minify's own run departs from
    what is expected of it."""

    case: str
    fact: str
    guard: str
    naive: str
    captured: str
    guarded: Ended
    searched: Ended
    written: Ended | None
    queries: int
    seconds: float
    stopped: str = ""
    differs: tuple[str, ...] = ()

    @property
    def lost(self) -> bool:
        return self.searched.alone != SHOWS

    @property
    def word(self) -> str:
        if self.lost:
            return "lost"
        more = self.searched.ops - self.guarded.ops
        return f"kept, with {more} more ops" if more > 0 else "kept"


# --- one guard off ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """A finished run of `minify`, and the oracle that answers what a reducer without `guard` would ask of it."""

    guard: Guard
    run: RunFolder
    signature: Signature
    oracle: LocalOracle
    naive: NaiveOracle
    stop: StopFlag

    @property
    def folder(self) -> RunFolder:
        """A folder of its own, which shares what was recorded."""
        return self.run.within(f"naive-{self.guard.name.replace(' ', '-')}")

    @property
    def noise(self) -> int:
        return NOISE if self.signature.kind == "accuracy" else 0


@contextlib.contextmanager
def trial(guard: Guard, run: RunFolder, budget: float) -> Iterator[Trial]:
    signature, rate, timeout = report.recorded(run.path)
    manner, stop = run.load_request().manner(run.store), StopFlag(budget)
    with LocalOracle(manner, run.path, default_workers(), stopped=stop) as oracle:
        oracle.rate, oracle.timeout, oracle.calibrates = rate, timeout, False
        yield Trial(guard, run, signature, oracle, NaiveOracle(oracle, guard, oracle.materialise), stop)


def searched(this: Trial, captured: Case, failing: Observation) -> tuple[Ended, str]:
    """What the search comes to without the guard, and why it was stopped, if it was. The captured case itself was seen `failing` as
    it is."""
    session = Session(
        captured,
        failing,
        this.signature,
        this.naive,
        this.folder.path,
        save_base=partial(store.save_base, this.run.store),
        trace=this.oracle.trace,
    )
    reduction = reduce(session, PASSES, this.oracle.materialise)
    with this.stop.overruled():
        return written(this, session.best, failing, "searched"), reduction.stopped_by


def written(this: Trial, case: Case, failing: Observation, name: str) -> Ended:
    """What is left of a case once it is written naively, run in a fresh process. `failing` is a run that shows the failure."""
    recorded = this.oracle.materialise(case) if is_derived(case) else case
    literal = inline_values(this.naive.naive(recorded), this.run.store)
    verdict = this.oracle.judge(literal, this.signature)
    seen = verdict.observation if verdict.fails else beside(literal, failing, verdict.observation)
    repro = this.folder.path / name / "repro.py"
    repro.parent.mkdir(exist_ok=True)
    title = f"what a reducer ends with for which {this.guard.naive}"
    repro.write_text(emit(literal, seen, this.signature, Facts(title, versions=report.versions())), encoding="utf-8")
    write_data(literal, this.run.store, repro)
    code, _ = run_alone(repro, max(this.oracle.timeout, 120.0) * 2, lambda: False)
    return Ended(cases.op_count(literal.graph), len(literal.inputs), told(code, this.signature))


def beside(case: Case, failing: Observation, seen: Observation) -> Observation:
    """What a repro of `case`, which was `seen` not to fail, has to check: the result that is wrong where it fails, or the last
    one where that is no more."""
    results = [f"output:{getattr(output, 'name', place)}" for place, output in enumerate(case.graph.outputs)]
    there = {*results, *(f"input:{item.name}" for item in case.inputs)}
    if case.settings.backward:
        there |= {f"grad:{item.name}" for item in cases.tensor_inputs(case) if item.meta.requires_grad}
    rows = tuple(dataclasses.replace(row, index=()) for row in failing.divergences)
    left = tuple(row for row in rows if row.where in there)
    moved = tuple(dataclasses.replace(row, where=results[-1]) for row in rows[:1]) if results else ()
    return dataclasses.replace(failing, divergences=left or moved, trace=seen.trace, random=seen.random)


def told(code: int | None, signature: Signature) -> str:
    return SHOWS if shows(code, signature) else "passes" if code == 0 else described(code)


# --- the table ----------------------------------------------------------------------------------------------------------


def main() -> int:
    options = parse()
    chosen = [case for case in corpus_table.chosen(options.names, True, "cpu") if guards_of(case)]
    out = (options.out or Path(tempfile.mkdtemp(prefix="guards-"))).resolve()
    out.mkdir(parents=True, exist_ok=True)
    print(f"{len(chosen)} cases, torch {corpus_table.installed_torch()}; results in {out}", file=sys.stderr)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, corpus_table.leave)
    rows: list[Row] = []
    for place, case in enumerate(chosen, start=1):
        rows += case_rows(case, out, options)
        for row in (row for row in rows if row.case == case.name):
            print(f"[{place}/{len(chosen)}] {' | '.join(cells(row))}", file=sys.stderr, flush=True)
        if options.markdown:
            options.markdown.write_text(markdown(rows), encoding="utf-8")
    show(rows)
    return int(bool(faults(rows)))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "names", nargs="*", help="cases by name or glob; all in which one fact decides if none is given"
    )
    parser.add_argument("--timeout", type=float, default=1800, help="seconds that minify may take for a case")
    parser.add_argument("--budget", type=float, default=300, help="seconds that one naive search may take")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there as well")
    parser.add_argument(
        "--out", type=Path, help="a folder for the results, which are not asked for twice; or a temporary one"
    )
    return parser.parse_args()


def case_rows(case: Expected, out: Path, options: argparse.Namespace) -> list[Row]:
    """The rows of one case, from an earlier run where it was through."""
    done = out / f"{case.name}.json"
    if done.is_file():
        return [from_json(row) for row in json.loads(done.read_text(encoding="utf-8"))]
    version = corpus_table.installed_torch()
    ran = corpus_table.run_case(case, out, argparse.Namespace(device="cpu", timeout=options.timeout), version)
    if ran.status != 0 or not ran.report:
        raise SystemExit(f"{case.name}: minify ended with {ran.status}: {ran.tail}")
    rows = [guard_row(ran, guard, RunFolder(out / case.name), options.budget) for guard in guards_of(case)]
    done.write_text(json.dumps([dataclasses.asdict(row) for row in rows], indent=2), encoding="utf-8")
    return rows


def from_json(row: dict[str, Any]) -> Row:
    """Raises TypeError where the row was written by another version."""
    ended = {key: row[key] and Ended(**row[key]) for key in ("guarded", "searched", "written")}
    return Row(**{**row, **ended, "differs": tuple(row["differs"])})


def guard_row(ran: corpus_judge.Row, guard: Guard, folder: RunFolder, budget: float) -> Row:
    """The two naive reducers against the run of `minify` in `folder`."""
    started, captured = time.monotonic(), folder.captured()
    assert captured is not None, f"no case in {folder.path}"
    with trial(guard, folder, budget) as this:
        failing = this.oracle.observe(captured, noise=this.noise)
        search, stopped = searched(this, captured, failing)
        reduced = cases.load(folder.reduced_file)
        only_written = None
        if guard.rewrites:
            only_written = written(this, reduced, this.oracle.observe(reduced, noise=this.noise), "written")
        queries = this.oracle.queries
    before, after = report.measure(annotated(captured, failing)), ran.report["reduced"]
    alone = SHOWS if ran.alone is not None and ran.alone.shows else ran.alone.text if ran.alone else "no repro"
    return Row(
        case=ran.expected.name,
        fact=decisive(ran, guard),
        guard=guard.name,
        naive=guard.naive,
        captured=f"{before['ops']} ops, {before['inputs']} inputs",
        guarded=Ended(after["ops"], after["inputs"], alone),
        searched=search,
        written=only_written,
        queries=queries,
        seconds=round(time.monotonic() - started, 1),
        stopped=stopped,
        differs=ran.differs,
    )


def decisive(ran: corpus_judge.Row, guard: Guard) -> str:
    """The line that tells of the fact that the guard keeps; "" for a guard that keeps no property of a case."""
    facts = [fact for fact in ran.expected.facts if guard.keeps(fact)]
    told_of = map(str, ran.report.get("decisive", ()))
    return next((line for line in told_of if any(fact in line for fact in facts)), "")


def faults(rows: list[Row]) -> list[str]:
    """What the table was to show and does not."""
    found = []
    for name in dict.fromkeys(row.case for row in rows):
        mine = [row for row in rows if row.case == name]
        found += [f"{name}: {text}" for text in mine[0].differs]
        if mine[0].guarded.alone != SHOWS:
            found.append(f"{name}: its repro alone {mine[0].guarded.alone}")
        if not any(row.lost for row in mine):
            found.append(f"{name}: no naive reducer loses its fact")
    return found


def cells(row: Row) -> tuple[str, ...]:
    """The texts of one line, one for each of COLUMNS."""
    return (
        row.case,
        row.fact,
        row.guard,
        row.naive,
        row.captured,
        row.guarded.size,
        row.guarded.alone,
        row.searched.size + (f" (stopped: {row.stopped})" if row.stopped else ""),
        row.searched.alone,
        row.written.alone if row.written else "",
        row.word,
    )


def summary(rows: list[Row]) -> str:
    names = {row.case for row in rows if row.fact}
    kept = {row.case for row in rows if row.guarded.alone == SHOWS} & names
    lost = {row.case for row in rows if row.lost} & names
    return (
        f"{len(names)} programs in which one fact decides: with every guard {len(kept)} keep it, with one guard off {len(lost)} "
        f"lose it; {len(rows)} rows, {sum(row.queries for row in rows)} queries of the naive reducers"
    )


def show(rows: list[Row]) -> None:
    table, console = Table(*COLUMNS), wide_console()
    for row in rows:
        table.add_row(*(cell.replace("[", r"\[") for cell in cells(row)))
    console.print(table)
    console.print("\n".join([summary(rows), *faults(rows)]))


def markdown(rows: list[Row]) -> str:
    """The table for a document."""
    lines = [
        "# One guard off",
        "",
        f"`python scripts/guard_table.py --markdown docs/guards.md`, torch {corpus_table.installed_torch()}, cpu. {summary(rows)}.",
        "",
        "Each program is reduced by `minify`, and again by the same search from the same captured case with one guard off: each",
        "candidate is rewritten as a reducer without the guard would have it, before it is judged, and so is what is written at",
        "the end (*naive search*). A guard of the oracle rewrites nothing; its verdict believes more. *Written naively* is the",
        "result of `minify` itself, its candidates judged as they are and only the repro rewritten. *alone*: the repro in a fresh",
        "process. A search none of whose candidates fails any more ends with all that it was given.",
        "",
        *markdown_table(COLUMNS, map(cells, rows)),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
