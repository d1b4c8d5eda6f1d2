"""Cut two ops at a time, once so few are left that all pairs can be asked: two ops that need each other and not the failure
go only together.

May lose what `cut ops` may. One op at a time is `cut ops`' own affair.
"""

from __future__ import annotations

from itertools import combinations

from minify.case import Case, digest
from minify.passes.contract import Pass, Site
from minify.passes.cut_ops import keep, op_names

FEWEST, MOST = 3, 6  # of 2 nothing would remain; 7 have 21 pairs


def find(case: Case) -> tuple[Site, ...]:
    names = op_names(case)
    return tuple(combinations(names, 2)) if FEWEST <= len(names) <= MOST else ()


def rewrite(case: Case, sites: tuple[Site, ...]) -> Case:
    removed = {name for site in sites for name in site}
    return keep(case, frozenset(op_names(case)) - removed, digest(case), "outputs")


CUT_PAIRS = Pass("cut pairs", find, rewrite, alternatives=True, polish=True)
