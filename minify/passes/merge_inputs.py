"""Merge inputs that are alike: one tensor is handed over and read wherever any of them was read.

May lose: that two operands differ, in their values or in being two objects (a guard on duplicates, a fusion). The values
that stay are the least plain ones. Inputs that share memory, that are written to, or that are not recorded yet are left
alone.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import combinations

from minify.case import Arg, Case, Derived, Ref, map_refs, rewrite_op, tensor_inputs
from minify.passes.bypass import resolve
from minify.passes.contract import Pass, Site
from minify.passes.pieces import pieces
from minify.passes.prune import with_graph, without_inputs, written_inputs
from minify.passes.simplify_values import value_rank

ALL_PAIRS_UP_TO = 3
MOST_PIECES = 4


def find(case: Case) -> tuple[Site, ...]:
    """`(input that stays, inputs that are merged into it...)`."""
    return tuple(site for names in alike(case) for site in sites_of(names))


def sites_of(names: tuple[str, ...]) -> list[Site]:
    """Every pair of a few inputs; of many, the first with a piece of the others."""
    if len(names) <= ALL_PAIRS_UP_TO:
        return list(combinations(names, 2))
    return [(names[0], *piece) for piece in pieces(names[1:], MOST_PIECES)]


def alike(case: Case) -> list[tuple[str, ...]]:
    """Inputs of one shape, dtype, device, layout and gradient, the one with the least plain values first: what nothing
    could simplify is the likeliest to decide."""
    members = Counter(item.meta.storage for item in tensor_inputs(case))
    written = written_inputs(case)
    found: dict[object, list[str]] = {}
    for item in sorted(tensor_inputs(case), key=lambda item: -value_rank(item.value)):
        alone = members[item.meta.storage] == 1 and item.name not in written
        if alone and not isinstance(item.value, Derived):
            layout = dataclasses.replace(item.meta, storage=0, storage_size=0)
            found.setdefault((layout, item.dynamic_dims), []).append(item.name)
    return [tuple(names) for names in found.values() if len(names) > 1]


def rewrite(case: Case, sites: tuple[Site, ...]) -> Case:
    stand_in: dict[str, str] = {}
    for stays, *merged in sites:
        for name in merged:
            stand_in.setdefault(str(name), str(stays))

    def redirect(leaf: Arg) -> Arg:
        return Ref(resolve(leaf.name, stand_in)) if isinstance(leaf, Ref) else leaf

    ops = tuple(rewrite_op(op, redirect) for op in case.graph.ops)
    outputs = tuple(dict.fromkeys(map_refs(output, redirect) for output in case.graph.outputs))
    return without_inputs(with_graph(case, ops, outputs), frozenset(stand_in))


MERGE_INPUTS = Pass("merge inputs", find, rewrite)
