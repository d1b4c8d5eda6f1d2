"""The oracle: does this case still show the same failure?

`Oracle` is the Protocol that `reduce` and `pipeline` see. Behind it stand a verdict cache, a journal, repeats and a
pool of warm worker processes; a test puts a fake in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from minify.case import Case
from minify.verdict import Signature, Verdict


class Oracle(Protocol):
    """Answers for cases. `queries` counts the questions whose answer was consumed and was not in the cache."""

    queries: int
    cache_hits: int

    def judge(self, case: Case, signature: Signature) -> Verdict:
        """The verdict on one case. Raises `Stopped` when the run is told to stop."""
        ...

    def glimpse(self, case: Case, signature: Signature) -> Verdict:
        """What one run shows, with none of the runs that make a verdict sure: enough for a hint. Raises `Stopped`."""
        ...

    def judge_in_order(self, cases: Iterable[Case], signature: Signature) -> Iterator[Verdict]:
        """Verdicts in the order of `cases`, looking ahead as far as there are workers.

        Closing the iterator drops what was not asked for, so that 1 worker and 8 consume the same answers."""
        ...
