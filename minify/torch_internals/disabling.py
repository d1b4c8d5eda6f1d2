"""Parts of the compiler that one run can do without, by name: what a question of `localize` leaves out.

Whoever adds a part adds a row: a function from which of it (a pass's name, say) to a context in which that is left out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

DISABLE: dict[str, Callable[[Any], contextlib.AbstractContextManager[Any]]] = {
    "dynamo": lambda which: torch.compiler.set_stance("force_eager"),  # all of it: the program runs as Python
}


@contextlib.contextmanager
def disabled(parts: Sequence[tuple[str, Any]]) -> Iterator[None]:
    """Leave out (part, which of it) of the compiler meanwhile. Raises LookupError for a part that is not known."""
    with contextlib.ExitStack() as stack:
        for part, which in parts:
            stack.enter_context(DISABLE[part](which))
        yield
