"""Few pieces of many items, so that a pass has few sites however large the program."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def pieces(items: Sequence[T], most: int) -> list[Sequence[T]]:
    """`items` in order, in `most` pieces as equal in length as can be; as singles where they are no more than that."""
    count = min(most, len(items))
    bounds = [len(items) * number // max(count, 1) for number in range(count + 1)]
    return [items[start:end] for start, end in itertools.pairwise(bounds)]
