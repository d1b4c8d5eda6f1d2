"""The outcome of a run as data: `Report`, and the `report.json` it is written to (fields in design §10)."""

from __future__ import annotations

import dataclasses
import json
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from minify import case as cases
from minify.case import Case
from minify.verdict import Measured, Observation, Signature

REPORT_SCHEMA = 1


@dataclasses.dataclass(frozen=True)
class Report:
    """What a run found. `outcome` is `reduced`, `stopped early`, `unstable` or `no failure`, and of a run that only looks for the
    stage `localised` or `no divergence`; `repro` is the file, if any.

    `ladder` has a row for each stage of the compile chain that was asked, the lowest first; `stage_pair` the two queries that
    name the `stage`: the one with it, which `fails`, and the one without it, which `passes`.

    `queries` are questions a compile was paid for or a worker asked; `search_queries` those spent on finding the ops.
    `calls` are the targets of the ops left. `facts` are the questions behind `decisive` and `not_decisive`, `passing` the
    nearest program that passes. `rate` is how often the original failed, `timeout` how many seconds a question had.
    `certificate` says for each pass what came of its sites on the final case; `edits_tried` of them were asked. `explains`:
    whether the ops that the search found are enough to make the original wrong; None where that could not be told. `metric` has
    the numbers of the user's metric, of the original program, where there is one. `inside` names what of the stage is to blame,
    `ablations` are the answers with parts of it left out. `first_node` names the graph and the node of it that first differ; `kernel`
    is of Inductor's the first that writes something wrong, and who is to blame for that; `evidence` has the files of what the
    compiler makes of the program with what is to blame and without it, and a short diff of them."""

    outcome: str
    exit_code: int
    kind: str
    folder: Path
    repro: Path | None = None
    signature: Signature | None = None
    stage: str = ""
    stage_pair: dict[str, str] = dataclasses.field(default_factory=dict)
    ladder: tuple[dict[str, Any], ...] = ()
    original: dict[str, int] = dataclasses.field(default_factory=dict)
    reduced: dict[str, int] = dataclasses.field(default_factory=dict)
    calls: tuple[str, ...] = ()
    repro_lines: int = 0
    queries: int = 0
    search_queries: int = 0
    cache_hits: int = 0
    slipped: int = 0
    also_found: tuple[str, ...] = ()
    seconds: float = 0.0
    verified: dict[str, Any] = dataclasses.field(default_factory=dict)
    explains: bool | None = None
    inside: str = ""
    ablations: tuple[dict[str, Any], ...] = ()
    first_node: dict[str, Any] = dataclasses.field(default_factory=dict)
    evidence: dict[str, Any] = dataclasses.field(default_factory=dict)
    kernel: dict[str, Any] = dataclasses.field(default_factory=dict)
    one_minimal: bool = False
    stopped_by: str = ""
    decisive: tuple[str, ...] = ()
    not_decisive: tuple[str, ...] = ()
    facts: tuple[dict[str, Any], ...] = ()
    passing: Path | None = None
    edits_tried: int = 0
    rate: float = 1.0
    timeout: float = 0.0
    certificate: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    passes: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    divergences: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    message: str = ""
    metric: Measured | None = None
    region: int = 0
    part: str = ""

    def as_json(self) -> dict[str, Any]:
        """Plain data for `report.json`."""
        row = dataclasses.asdict(self)
        row["schema"] = REPORT_SCHEMA
        row["folder"], row["repro"] = str(self.folder), str(self.repro) if self.repro else None
        row["passing"] = str(self.passing) if self.passing else None
        row["signature"] = dataclasses.asdict(self.signature) if self.signature else None
        row["versions"] = dict(versions())
        return row

    def write(self) -> Path:
        """Put `report.json` into the run's folder. Raises OSError."""
        path = self.folder / "report.json"
        cases.write_whole(path, (json.dumps(self.as_json(), indent=2, default=str) + "\n").encode())
        return path


def recorded(folder: Path) -> tuple[Signature, float, float]:
    """The failure that a run in `folder` reported, how often it shows, and the seconds that a question had there. Raises OSError,
    ValueError, KeyError and TypeError where there is none."""
    row = json.loads((folder / "report.json").read_text())
    return Signature(**row["signature"]), float(row["rate"]), float(row["timeout"])


def measure(case: Case) -> dict[str, int]:
    """The sizes a report gives of a case."""
    return {
        "ops": cases.op_count(case.graph),
        "inputs": len(case.inputs),
        "elements": cases.element_count(case),
        "recorded_inputs": cases.recorded_count(case),
    }


def versions() -> tuple[tuple[str, str], ...]:
    """Versions of what the result depends on; no torch import."""
    found = [("python", sys.version.split()[0]), ("platform", f"{platform.system()} {platform.machine()}")]
    for name in ("torch", "triton", "torch-minify"):
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return tuple(found)


def worst_rows(observation: Observation) -> tuple[dict[str, Any], ...]:
    return tuple(dataclasses.asdict(row) for row in observation.divergences)


def unjudged(bugs: list[str]) -> tuple[str, ...]:
    """A note on candidates that an error of ours left without an answer, if there are any."""
    if not bugs:
        return ()
    last = bugs[-1].strip().splitlines()[-1]
    return (f"{len(bugs)} candidate(s) could not be judged, an error of minify's own (please report it): {last}",)
