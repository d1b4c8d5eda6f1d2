"""The first question of a search, asked while the script still compiles the region that it is about: a core is idle then.

A guess. Should the region turn out to be wrong, its answer is on record or under way; if not, one compile was in vain.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

from minify import case as cases
from minify import store
from minify.attempt import Attempt
from minify.baseline import computes_in_half
from minify.errors import MinifyError, Stopped
from minify.reduce import first_screen, worth_a_screen
from minify.reduce.session import annotated


@contextlib.contextmanager
def asking_ahead(this: Attempt) -> Iterator[Callable[[Path], None]]:
    """Yields what is to be called with the saved case of each region that is about to be compiled. Once the block is left the oracle
    is the caller's alone again."""
    asked: list[Future[None]] = []
    with ThreadPoolExecutor(1) as pool:
        yield lambda path: asked.append(pool.submit(_ask, this, path))
    for one in asked:
        with contextlib.suppress(MinifyError, Stopped):  # it comes again where the answer is wanted
            one.result()


def _ask(this: Attempt, path: Path) -> None:
    """Put the screen of this case to a worker, where the search would begin with that."""
    bare = cases.load(path)
    if not worth_a_screen(bare):
        return
    case = annotated(bare, this.oracle.trace(bare))
    if computes_in_half(case, [op.meta for op in case.graph.ops]):
        return
    screen = first_screen(case, partial(store.save_base, this.folder.store))
    if screen is not None:
        this.oracle.ask_ahead(screen)
