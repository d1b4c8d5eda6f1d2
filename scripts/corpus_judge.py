"""What a corpus case is expected to come to, and where a finished run departs from it.

Reads `expected.toml` and `report.json`; runs nothing and prints nothing.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CORPUS = Path(__file__).resolve().parents[1] / "corpus"
MOST_LINES = 60  # a repro has fewer
EXIT_NO_FAILURE = 1  # of minify
LOCATES = "stage"  # the command that names a stage and reduces nothing
BOUNDS = ("ops", "inputs", "elements")  # of the reduced program, each under `max_` and its name


@dataclass(frozen=True)
class Expected:
    """What `expected.toml` says. `max_ops` is 0 and `signature` empty where there is nothing to reduce.

    May be left out there: `also_found`, part of a line that tells of another failure; `facts`, parts of lines that tell what
    decides; `calls`, parts of the names of calls that must be left; `max_inputs` and `max_elements`; `stage`, the first divergent
    stage, `no divergence` of a healthy program; `inside`, parts of the line that tells what inside the stage is to blame."""

    name: str
    command: str
    exit_code: int
    signature: str
    max_ops: int
    torch: tuple[str, ...]
    devices: tuple[str, ...]
    slow: bool
    args: tuple[str, ...]
    also_found: str = ""
    facts: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    max_inputs: int | None = None
    max_elements: int | None = None
    stage: str = ""
    inside: tuple[str, ...] = ()

    @property
    def script(self) -> Path:
        return CORPUS / self.name / "model.py"


@dataclass(frozen=True)
class Alone:
    """How `repro.py` behaves in an empty folder. `shows` says whether that counts as the bug showing."""

    shows: bool
    text: str
    imports: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """One finished case. `status` is None where minify was killed at the limit."""

    expected: Expected
    status: int | None
    seconds: float
    report: dict[str, Any]
    alone: Alone | None
    judged: bool
    tail: str = ""
    differs: tuple[str, ...] = field(default=())


def load(folder: Path) -> Expected:
    row = tomllib.loads((folder / "expected.toml").read_text(encoding="utf-8"))
    return Expected(
        name=folder.name,
        command=row["command"],
        exit_code=row["exit_code"],
        signature=row["signature"],
        max_ops=row["max_ops"],
        torch=tuple(row["torch"]),
        devices=tuple(row["devices"]),
        slow=row["slow"],
        args=tuple(row["args"]),
        also_found=row.get("also_found", ""),
        facts=tuple(row.get("facts", ())),
        calls=tuple(row.get("calls", ())),
        max_inputs=row.get("max_inputs"),
        max_elements=row.get("max_elements"),
        stage=row.get("stage", ""),
        inside=tuple(row.get("inside", ())),
    )


def read_report(folder: Path) -> dict[str, Any]:
    """`report.json`, or nothing where there is none that can be read."""
    try:
        found = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def differences(row: Row) -> list[str]:
    """What departs from the expectation, in words; nothing where all is as expected."""
    expected = row.expected
    if row.status is None:
        return [f"killed after {row.seconds:.0f} s"]
    found = []
    if row.status != expected.exit_code:
        found.append(f"exit {row.status} for {expected.exit_code}: {row.tail}")
    if not row.report:
        return [*found, "no report.json"]
    if row.report.get("exit_code") != row.status:
        found.append(f"report.json says exit {row.report.get('exit_code')}")
    if row.status == 0 and expected.exit_code == 0:
        found += [] if expected.command == LOCATES else repro_differences(row)
        found += misplaced(expected, row.report)
    if row.status == expected.exit_code == EXIT_NO_FAILURE:
        found += unwatched(row)
    return found


def unwatched(row: Row) -> list[str]:
    """Why an answer of "no such failure" is worth nothing: nothing was watched, or minify broke the program itself.

    A program that raises in eager may never come to compile anything."""
    message = str(row.report.get("message", ""))
    if re.search(r"\bmodule 'minify", message):
        return [f"minify broke the program: {message[:160]}"]
    if re.search(r"\b0 (checked run|region)", message) and not row.expected.name.startswith("fails_in_eager_"):
        return [f"nothing was watched: {message[:160]}"]
    return []


def repro_differences(row: Row) -> list[str]:
    """Where a repro that minify calls good isn't the one that was expected."""
    expected, report, found = row.expected, row.report, []
    family = signature_family(report)
    if family != expected.signature:
        found.append(f"signature {family or 'missing'} for {expected.signature}")
    found += too_large(expected, report.get("reduced", {}))
    if not 0 < report.get("repro_lines", 0) < MOST_LINES:
        found.append(f"{report.get('repro_lines')} lines, not under {MOST_LINES}")
    if not report.get("one_minimal"):
        found.append("not 1-minimal")
    verified = report.get("verified") or {}
    if not verified.get("runs") or verified.get("reproduced") != verified.get("runs"):
        found.append(f"verified {verified.get('reproduced')} of {verified.get('runs')} runs")
    if row.alone is None:
        found.append("no repro.py")
    else:
        if not row.alone.shows:
            found.append(f"alone: {row.alone.text}")
        if row.alone.imports:
            found.append(f"repro imports {', '.join(row.alone.imports)}")
    if expected.facts and not report.get("passing"):
        found.append("no passing.py beside it")
    return found + untold(expected, report)


def too_large(expected: Expected, reduced: dict[str, Any]) -> list[str]:
    """Where more is left than may be. Real data never may, since no repro is to need a file beside it."""
    most = {name: getattr(expected, f"max_{name}") for name in BOUNDS}
    found = [
        f"{reduced.get(name)} {name} for {limit}"
        for name, limit in most.items()
        if limit is not None and (reduced.get(name) is None or reduced[name] > limit)
    ]
    if reduced.get("ops") == 0:
        found.append("no op is left")
    return found + ([f"{data} inputs of real data"] if (data := reduced.get("recorded_inputs")) else [])


def untold(expected: Expected, report: dict[str, Any]) -> list[str]:
    """What the expectation wants said that no line of the report says."""
    wanted = (
        ("also_found", (expected.also_found,) if expected.also_found else ()),
        ("decisive", expected.facts),
        ("calls", expected.calls),
    )
    return [
        f"{key} says nothing of {part!r}: {'; '.join(map(str, report.get(key) or ())) or 'empty'}"
        for key, parts in wanted
        for part in parts
        if not any(part in str(line) for line in report.get(key) or ())
    ]


def named_stage(report: dict[str, Any]) -> str:
    """What a report says of the stage, in the words of `minify stage`."""
    return str(report.get("stage") or report.get("outcome") or "nothing")


def untold_inside(expected: Expected, report: dict[str, Any]) -> list[str]:
    """The parts of `inside` that the report does not say of what is to blame."""
    return [part for part in expected.inside if part not in str(report.get("inside") or "")]


def misplaced(expected: Expected, report: dict[str, Any]) -> list[str]:
    """Where another stage is named than is expected, or something else inside it."""
    found = []
    if expected.stage and named_stage(report) != expected.stage:
        found.append(f"stage {named_stage(report)} for {expected.stage}")
    if missing := untold_inside(expected, report):
        found.append(f"inside says nothing of {', '.join(map(repr, missing))}: {report.get('inside') or 'empty'}")
    return found


def signature_family(report: dict[str, Any]) -> str:
    """The signature in the words of `expected.toml`: `value`, `metadata:stride`, `exception`, `signal`, `hang`."""
    signature = report.get("signature") or {}
    family = str(signature.get("family", ""))
    return f"{family}:{signature.get('name')}" if family == "metadata" else family
