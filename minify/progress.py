"""Whom a run tells what it is at. `cli` shows it on stderr, `api` hands it on."""

from __future__ import annotations

from typing import Protocol

from minify.reduce import Session


class Progress(Protocol):
    """Whoever shows a run to the user."""

    def step(self, text: str) -> None:
        """A new step of the story begins."""
        ...

    def searching(self, session: Session) -> None:
        """A query of the search was answered."""
        ...
