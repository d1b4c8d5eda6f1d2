"""The rows of the benchmark, and what is read out of them: table, summary, asked ratios, where `minify` loses.

Pure: measures nothing and reads no clock.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scripts.torch_minifier import NO_REPRO, REPRO, TIME_LIMIT

OURS = "minify"
HEADER = ("case", "tool", "ended with", "right", "queries", "seconds", "script", "ops", "lines", "alone")
# On the size-scaled graph our whole run may take this share of theirs.
ASKED = (("transformer_8_blocks", "aot", 1 / 5), ("transformer_8_blocks", "aot-no-isolate", 1 / 2))
SMALLER_IS_BETTER = (("ops_after", "ops"), ("lines", "lines"), ("queries", "queries"), ("seconds", "s"))


@dataclass(frozen=True)
class Row:
    """One tool on one case. `expected` is the exit code `minify` should end with: 0 means that there is a bug to find.

    `alone`: whether the repro, copied to an empty folder, shows the failure; None when that was not tried."""

    case: str
    variant: str
    expected: int
    outcome: str
    seconds: float
    queries: int | None = None
    exact: bool = True
    ops_before: int | None = None
    ops_after: int | None = None
    lines: int | None = None
    alone: bool | None = None
    exit_code: int | None = None
    note: str = ""
    when: str = ""
    load: float = 0.0
    script_seconds: float | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.case, self.variant

    @property
    def right(self) -> bool:
        """Ended with a repro where there is a bug, and in good order without one where there is none."""
        if self.expected == 0:
            return self.outcome == REPRO
        return self.outcome not in (REPRO, NO_REPRO, TIME_LIMIT) and self.exit_code in (None, self.expected)


def cells(row: Row) -> tuple[str, ...]:
    queries = "–" if row.queries is None else f"{'' if row.exact else '≥ '}{row.queries}"
    ops = "–" if row.ops_after is None else f"{show(row.ops_before)} → {row.ops_after}"
    ended = f"{row.outcome} (exit {row.exit_code})" if row.exit_code else row.outcome
    script = None if row.script_seconds is None else round(row.script_seconds)
    times = (f"{row.seconds:.0f}", show(script))
    return row.case, row.variant, ended, show(row.right), queries, *times, ops, show(row.lines), show(row.alone)


def show(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "–" if value is None else str(value)


def table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table padded so that it reads well in a terminal too."""
    body = [tuple(header), *map(tuple, lines)]
    widths = [max(len(line[i]) for line in body) for i in range(len(header))]
    rule = tuple("-" * width for width in widths)
    rows = (
        (cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in (body[0], rule, *body[1:])
    )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def summary(rows: Sequence[Row]) -> str:
    """One line a tool: counts over all its cases, medians of the other columns over the cases it ended with a repro."""
    header = ("tool", "cases", "right", "repros", "alone", "queries", "seconds", "ops", "lines")
    lines = []
    for variant in dict.fromkeys(row.variant for row in rows):
        mine = [row for row in rows if row.variant == variant]
        done = [row for row in mine if row.outcome == REPRO]
        counts = (len(mine), sum(row.right for row in mine), len(done), sum(bool(row.alone) for row in done))
        medians = (median(done, field) for field in ("queries", "seconds", "ops_after", "lines"))
        lines.append((variant, *map(str, counts), *medians))
    return table(header, lines)


def median(rows: Sequence[Row], field: str) -> str:
    values = [value for row in rows if (value := getattr(row, field)) is not None]
    return f"{statistics.median(values):.0f}" if values else "–"


def asked_ratios(rows: Sequence[Row]) -> list[str]:
    found = {row.key: row for row in rows}
    lines = []
    for case, variant, share in ASKED:
        ours, theirs = found.get((case, OURS)), found.get((case, variant))
        if ours and theirs:
            lines.append(f"{case}, minify against {variant}: {ratio(ours, theirs, share)}")
    return lines


def ratio(ours: Row, theirs: Row, share: float) -> str:
    """The share of their time that ours took. Where theirs was stopped at the limit it is an upper bound."""
    asked = f"at most 1/{1 / share:.0f} asked"
    if not ours.right:
        return f"missed, {asked}: minify ended with {ours.outcome!r}"
    if theirs.outcome not in (REPRO, TIME_LIMIT):
        return f"nothing to compare with, {asked}: theirs ended with {theirs.outcome!r}"
    stopped = theirs.outcome == TIME_LIMIT
    took = f"{ours.seconds:.0f} s / {theirs.seconds:.0f} s = {ours.seconds / theirs.seconds:.2f}"
    if ours.script_seconds and theirs.script_seconds:
        alone = ours.seconds - ours.script_seconds, theirs.seconds - theirs.script_seconds
        took += f" (without the script's own run {alone[0]:.0f} s / {alone[1]:.0f} s = {alone[0] / alone[1]:.2f})"
    if ours.seconds <= share * theirs.seconds:
        return f"met, {asked}: {took}{' or less, theirs was stopped at the limit' if stopped else ''}"
    return f"cannot tell, {asked}: {took}, theirs was stopped at the limit" if stopped else f"missed, {asked}: {took}"


def losses(rows: Sequence[Row]) -> list[str]:
    """Each point at which a row of `minify` is worse than a row of PyTorch's on the same case, or wrong by itself."""
    lines = []
    for ours in (row for row in rows if row.variant == OURS):
        if not ours.right:
            lines.append(f"{ours.case}: {cells(ours)[2]} where exit {ours.expected} is right. {ours.note}".rstrip(". "))
        elif ours.alone is False:
            lines.append(f"{ours.case}: the repro does not show the failure when copied alone")
        for theirs in (row for row in rows if row.case == ours.case and row.variant != OURS):
            if points := lost_points(ours, theirs):
                doubt = " (whose repro does not reproduce alone)" if theirs.alone is False else ""
                lines.append(f"{ours.case}, against {theirs.variant}{doubt}: {'; '.join(points)}")
    return lines


def lost_points(ours: Row, theirs: Row) -> list[str]:
    """What is worse in ours. Sizes are compared between two repros, times between two right answers of any sort."""
    if not theirs.right:
        return []
    if not ours.right:
        return [f"theirs is right ({theirs.outcome})"]
    fields = SMALLER_IS_BETTER if theirs.outcome == REPRO else (("seconds", "s"),)
    points = ["theirs reproduces alone"] if theirs.alone and not ours.alone else []
    for field, unit in fields:
        mine, other = getattr(ours, field), getattr(theirs, field)
        if None not in (mine, other) and round(mine) > round(other):
            points.append(f"{mine:.0f} {unit} for {other:.0f}")
    return points


def document(rows: Sequence[Row], facts: Sequence[str]) -> str:
    """The whole report as Markdown; `facts` are lines on when and where it was measured."""
    parts = ["# `minify` and PyTorch's own minifier, side by side", "\n".join(f"- {fact}" for fact in facts)]
    parts += [table(HEADER, map(cells, rows)), summary(rows)]
    if ratios := asked_ratios(rows):
        parts.append("\n".join(f"- {line}" for line in ratios))
    sides = {row.variant == OURS for row in rows}
    none = "Nowhere in these rows." if len(sides) == 2 else "Only one side was run: nothing is compared."
    parts += ["## Where minify loses", "\n".join(f"- {line}" for line in losses(rows)) or none]
    return "\n\n".join(parts) + "\n"
