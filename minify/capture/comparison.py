"""A watched run held against eager: stand-ins for its inputs, runs that round otherwise, and a backward of our own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from minify import case as cases
from minify import reference, rounding, trial
from minify.capture import snapshot
from minify.tolerance import NOISE, Tolerance
from minify.verdict import Divergence


def placeholders(taken: snapshot.Snapshot) -> tuple[Any, ...]:
    """Inputs that carry layout facts only; enough for naming results and finding who wants a gradient."""
    return tuple(
        cases.Input(param.name, meta, cases.Recipe("zeros"))
        if isinstance(meta, cases.TensorMeta)
        else cases.ScalarInput(param.name, meta)
        for param, meta in zip(taken.converted.params, taken.metas, strict=True)
    )


def placed(taken: snapshot.Snapshot, values: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """The region's arguments, with `values` of its parameters in their places."""
    placed = list(args)
    for param, value in zip(taken.converted.params, values, strict=True):
        if param.source is not None:
            handed = args[param.source]
            wrapped = isinstance(handed, torch.Tensor) and not isinstance(value, torch.Tensor)
            placed[param.source] = torch.full_like(handed, value) if wrapped else value
    return placed


def moved_runs(
    case: cases.Case, taken: snapshot.Snapshot, wrong: Sequence[Divergence]
) -> tuple[list[trial.Run | None], list[trial.Run | None]]:
    """Eager on inputs moved by one unit in the last place, and eager that rounds otherwise in between."""
    scope = taken.scope()

    def shaken(seed: int) -> tuple[Any, ...]:
        return rounding.shaken_values(taken.values(), seed)

    trials = [reference.forward_run(case, functools.partial(shaken, seed), scope=scope) for seed in range(NOISE)]
    return trials, reference.rounded_runs(case, taken.values, wrong, NOISE, scope)


def compare_gradients(
    case: cases.Case,
    taken: snapshot.Snapshot,
    compiled: Callable[..., Any],
    args: Sequence[Any],
    pair: reference.Pair,
    tolerance: Tolerance,
) -> trial.Findings:
    """Run the compiled region once more on copies of its inputs, with a backward of our own."""
    values = taken.values()
    result = compiled(*placed(taken, values, args))
    outputs = tuple(result) if isinstance(result, list | tuple) else (result,)
    flows = trial.cotangents(case, outputs, pair.flows)
    ours = trial.Run(values, outputs, trial.gradients(case, values, outputs, flows))
    eager = trial.Run(pair.low, pair.steps.eager, pair.low_grads)
    return trial.compare_runs(case, ours, eager, reference.reference_run(pair), tolerance)
