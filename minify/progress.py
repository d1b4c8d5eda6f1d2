"""Whom a run tells what it is at. `cli` shows it on stderr, `api` hands it on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from minify.reduce import Session


class Progress(Protocol):
    """Whoever shows a run to the user."""

    def step(self, text: str) -> None:
        """A new step of the story begins."""
        ...

    def searching(self, session: Session) -> None:
        """A query of the search was answered."""
        ...


def counted(count: int, noun: str) -> str:
    """`1 query`, `2 queries`, `2 ops`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"
