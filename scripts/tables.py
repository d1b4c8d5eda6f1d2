"""Tables as the scripts write them: on a terminal, and for a document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console

Column = str | tuple[str, str]  # its title, of numbers with `right`


def wide_console() -> Console:
    """Standard output, wide enough for a table where it is no terminal."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 240
    return console


def markdown_table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    named = [(column, "left") if isinstance(column, str) else column for column in columns]
    return [
        _line(title for title, _ in named),
        "|" + "|".join("---:" if justify == "right" else "---" for _, justify in named) + "|",
        *(_line(cell.replace("|", r"\|") for cell in row) for row in rows),
    ]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
