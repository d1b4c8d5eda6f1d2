"""PASSES: every kind of edit, in the order the schedule tries them, one line each; one file per pass.

A pass knows how to edit a case and nothing of oracles, budgets or search; `contract` says what it must keep to.
"""

from __future__ import annotations

from minify.passes.bypass import BYPASS
from minify.passes.contract import Pass, Site
from minify.passes.cut_ops import CUT_OPS
from minify.passes.cut_pairs import CUT_PAIRS
from minify.passes.drop_inputs import DROP_INPUTS
from minify.passes.drop_outputs import DROP_OUTPUTS
from minify.passes.fold_blocks import FOLD_BLOCKS
from minify.passes.idiomatic_calls import IDIOMATIC_CALLS
from minify.passes.inline_bodies import INLINE_BODIES
from minify.passes.merge_inputs import MERGE_INPUTS
from minify.passes.prune_prelude import PRUNE_PRELUDE
from minify.passes.shrink_dims import SHRINK_DIMS
from minify.passes.simplify_constants import SIMPLIFY_CONSTANTS
from minify.passes.simplify_dtypes import SIMPLIFY_DTYPES
from minify.passes.simplify_layouts import SIMPLIFY_LAYOUTS
from minify.passes.simplify_ops import SIMPLIFY_OPS
from minify.passes.simplify_settings import SIMPLIFY_SETTINGS
from minify.passes.simplify_values import SIMPLIFY_VALUES

PASSES: tuple[Pass, ...] = (
    DROP_OUTPUTS,
    BYPASS,
    FOLD_BLOCKS,
    CUT_OPS,
    INLINE_BODIES,
    SIMPLIFY_OPS,
    DROP_INPUTS,
    MERGE_INPUTS,
    PRUNE_PRELUDE,
    SIMPLIFY_SETTINGS,
    SIMPLIFY_DTYPES,
    SHRINK_DIMS,
    SIMPLIFY_LAYOUTS,
    SIMPLIFY_VALUES,
    SIMPLIFY_CONSTANTS,
    IDIOMATIC_CALLS,
    CUT_PAIRS,
)

__all__ = ["PASSES", "Pass", "Site"]
