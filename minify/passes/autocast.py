"""Autocast regions of a program: what becomes of them when the calls that enter and leave them are cut."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from minify.case import Case, Const, Op, Settings, op_refs

ENTER = "torch.amp.autocast_mode._enter_autocast"
EXIT = "torch.amp.autocast_mode._exit_autocast"
DEFAULT_DTYPES = {"cpu": "bfloat16", "cuda": "float16"}


def settings_of_cut_regions(case: Case, kept: Iterable[str]) -> Settings:
    """The settings of `case`, with the autocast regions added that all of `kept` lie in and that are cut themselves.

    Where kept ops lie in different regions nothing is added: a setting holds for the whole program."""
    kept = frozenset(kept)
    regions = {stack for name, stack in open_regions(case).items() if name in kept}
    if len(regions) != 1:
        return case.settings
    cut = [op for op in regions.pop() if op.name not in kept]
    pairs = [pair_of(op) for op in cut]
    if any(pair is None for pair in pairs):
        return case.settings
    autocast = (*case.settings.autocast, *(pair for pair in pairs if pair is not None))
    return dataclasses.replace(case.settings, autocast=autocast)


def open_regions(case: Case) -> dict[str, tuple[Op, ...]]:
    """For each op, the regions it lies in, the outermost first, as the calls that enter them. Those calls, and those
    that leave, lie in no region of their own."""
    stack: tuple[Op, ...] = ()
    found = {}
    for op in case.graph.ops:
        if op.target == ENTER:
            stack = (*stack, op)
        elif op.target == EXIT:
            left = op_refs(op)
            stack = tuple(entered for entered in stack if entered.name not in left)
        else:
            found[op.name] = stack
    return found


def pair_of(enter: Op) -> tuple[str, str] | None:
    """Device and dtype of a region; None for one that switches autocast off, which no setting can say."""
    device, dtype, enabled, *_ = (*enter.args, None, None, None)
    if not isinstance(device, str) or enabled is False:
        return None
    if isinstance(dtype, Const):
        return device, dtype.text.removeprefix("torch.")
    return (device, DEFAULT_DTYPES[device]) if dtype is None and device in DEFAULT_DTYPES else None
