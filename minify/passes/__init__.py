"""PASSES: every kind of edit, in the order the schedule tries them, one line each; one file per pass.

A pass knows how to edit a case and nothing of oracles, budgets or search; `contract` says what it must keep to.
"""

from __future__ import annotations

from minify.passes.contract import Pass, Site
from minify.passes.cut_ops import CUT_OPS

PASSES: tuple[Pass, ...] = (CUT_OPS,)

__all__ = ["PASSES", "Pass", "Site"]
