"""Drop inputs that no op reads and no output returns.

May lose: an unused argument that shares its storage with a used one, or that makes the compiler guard on its layout.
"""

from __future__ import annotations

from minify.case import Case
from minify.passes.contract import Pass, Site
from minify.passes.prune import unread_inputs, without_inputs


def find(case: Case) -> tuple[Site, ...]:
    return tuple((name,) for name in unread_inputs(case))


def rewrite(case: Case, sites: tuple[Site, ...]) -> Case:
    return without_inputs(case, frozenset(str(site[0]) for site in sites))


DROP_INPUTS = Pass("drop inputs", find, rewrite)
