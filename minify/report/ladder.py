"""A ladder, or an ablation table, as lines of text: what each question was answered, how far off that was and what it took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_NUMBERS = ("max_abs", "max_rel", "excess", "eager_abs")
_HEADINGS = ("answer", "max abs", "max rel", "excess", "eager's own", "seconds", "query")
_TEXTS = 2  # columns that are flush left
_DIGITS = 12  # of a digest


def table(rows: Sequence[Mapping[str, Any]], named: str = "stage") -> list[str]:
    """One line for each row of `Report.ladder`, or of `Report.ablations`, each `named` by what it left out; under a heading.
    `excess` is the worst error in units of the tolerance."""
    cells = [(named.replace("_", " "), *_HEADINGS), *(_cells(row, named) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place < _TEXTS else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]


def short_digest(digest: str) -> str:
    return digest[:_DIGITS] if digest.isalnum() else digest


def _cells(row: Mapping[str, Any], named: str) -> tuple[str, ...]:
    numbers = row["numbers"] or {}
    return (
        row[named],
        row["outcome"],
        *(f"{numbers[name]:.3g}" if name in numbers else "-" for name in _NUMBERS),
        "cached" if row["cached"] else f"{row['seconds']:.1f}" if row["digest"] else "-",
        short_digest(row["digest"]) or "-",
    )
