"""What a pass is: the record that every file of this room exports, and the contract behind it.

* `find(case)` lists the sites where the edit applies, the boldest or most promising first; same case, same sites.
* `rewrite(case, sites)` makes the edit at all of `sites` (a subset of what `find` gave) and returns a new case; the old
  one is untouched.
* both are pure: they run no program, read no clock, draw no random number. What they need of true values is in
  `Op.meta`, `Input.meta` and, for a pass that is `sized`, `Case.sizes`.
* an edit that makes no sense raises `InvalidCandidate`; any other exception is a bug in the pass.
* a pass makes one step of progress and never loops to its own fixpoint: the schedule calls it again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeAlias

from minify.case import Case

Site: TypeAlias = tuple[object, ...]
Between: TypeAlias = Callable[[Sequence[Site], Site], "Site | None"]


@dataclasses.dataclass(frozen=True, slots=True)
class Pass:
    """One kind of edit. With `alternatives`, sites exclude each other and are tried one by one, in order, until one is
    accepted; otherwise they add up and the schedule tries all of them, then halves, then singles.

    `polish` passes come after those that remove structure: they change shapes, values and settings, or cost too much to be
    tried before. `sized` ones are given cases that say how their sizes hang together, where that can be known.

    Alternatives may lie on a scale: `between(turned_down, accepted)` is then a site that is bolder than the one accepted and less
    bold than those turned down before it, None where nothing is left between. The schedule asks until then, of one case."""

    name: str
    find: Callable[[Case], tuple[Site, ...]]
    rewrite: Callable[[Case, tuple[Site, ...]], Case]
    alternatives: bool = False
    polish: bool = False
    sized: bool = False
    between: Between | None = None
