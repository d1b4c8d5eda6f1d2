"""What each pass cost and brought, summed over the reports of many runs.

Owns the rows and their texts; runs nothing and prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from scripts.tables import markdown_table

COLUMNS = ("pass", "queries", "accepted", "share of queries", "seconds", "barren")
LARGE_SHARE = 0.25  # of all queries; a pass that takes more and brings nothing is marked


@dataclass(frozen=True)
class PassRow:
    """One pass over all runs. `queries` are the candidates whose answer was not on record yet."""

    name: str
    queries: int
    accepted: int
    share: float
    seconds: float

    @property
    def barren(self) -> bool:
        """Whether it took more than its share of the queries, and nothing it proposed was ever accepted."""
        return self.share > LARGE_SHARE and not self.accepted


def pass_rows(reports: Iterable[dict[str, Any]]) -> list[PassRow]:
    """The passes of all reports, the most expensive in queries first. Reports without passes count for nothing."""
    sums: dict[str, list[float]] = {}
    for report in reports:
        for name, count in (report.get("passes") or {}).items():
            row = sums.setdefault(name, [0, 0, 0.0])
            for place, key in enumerate(("queries", "accepted", "seconds")):
                row[place] += count.get(key, 0)
    total = sum(row[0] for row in sums.values())
    found = [
        PassRow(name, int(queries), int(accepted), queries / total if total else 0.0, seconds)
        for name, (queries, accepted, seconds) in sums.items()
    ]
    return sorted(found, key=lambda row: (-row.queries, row.name))


def pass_cells(row: PassRow) -> list[str]:
    """The texts of one line, one for each of COLUMNS."""
    return [
        row.name,
        str(row.queries),
        str(row.accepted),
        f"{row.share:.0%}",
        f"{row.seconds:.0f}",
        "BARREN" if row.barren else "",
    ]


def pass_markdown(rows: list[PassRow]) -> str:
    """The table for a document."""
    lines = [
        f"Passes, over all cases; BARREN marks what took more than {LARGE_SHARE:.0%} of the queries and had nothing accepted.",
        "",
        *markdown_table(
            [COLUMNS[0], *((title, "right") for title in COLUMNS[1:-1]), COLUMNS[-1]], map(pass_cells, rows)
        ),
    ]
    return "\n".join(lines) + "\n"
