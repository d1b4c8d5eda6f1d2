"""The reference: a case run eagerly with the same one precision up beside it (design §4).

Owns which precision that is, and the runs of eager that round otherwise. Compiles nothing.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from minify import store, torch_internals
from minify.case import Case, Input
from minify.crashes import first_line
from minify.graph import TensorMeta, ValueMeta
from minify.interpret import (
    MODULES,
)
from minify.lockstep import Lockstep, higher_dtype, raised_copy
from minify.replay import seeded
from minify.rounding import memory_of
from minify.trial import Run, cotangents, gradients, out_of_memory, undisturbed
from minify.verdict import Divergence

NOTHING: Mapping[str, Any] = types.MappingProxyType({})
_LOW = ("float16", "bfloat16", "complex32")
_HIGH = ("float32", "complex64", "float64", "complex128")


@dataclasses.dataclass
class Pair:
    """Eager and reference after a lockstep run: inputs as the run left them, outputs in `steps`, gradients by input, and
    the cotangents they came from."""

    steps: Lockstep
    low: tuple[Any, ...]
    high: tuple[Any, ...] | None
    low_grads: dict[str, Any]
    high_grads: dict[str, Any]
    flows: tuple[torch.Tensor, ...] = ()


def lockstep(
    case: Case,
    make_inputs: Callable[[], tuple[Any, ...]],
    asked: str,
    *,
    wants_reference: bool,
    scope: Mapping[str, Any] = MODULES,
) -> Pair:
    """Eager op by op, noting every value, with the reference beside it where one is wanted. Raises what eager raises.

    `scope` has the names of the prelude."""
    precision = precision_of(case, asked) if wants_reference else "fp64"
    pair = _run_pair(case, make_inputs, precision, scope, wants_reference=wants_reference)
    if wants_reference and asked == "auto" and precision == "fp32" and _computes_in(pair.steps.trace, _HIGH):
        pair = _run_pair(case, make_inputs, "fp64", scope, wants_reference=True)  # half inputs, but float32 inside
    return pair


def forward_run(
    case: Case,
    make_inputs: Callable[[], tuple[Any, ...]],
    coin: torch.Generator | None = None,
    scope: Mapping[str, Any] = MODULES,
    patches: Mapping[str, Any] = NOTHING,
) -> Run | None:
    """Eager, op by op, without gradients, each result rounded otherwise where there is a `coin`, and replaced where there is
    one by its op's name in `patches`; None where it raises, as inputs or values that were moved may leave the domain of an
    op. Raises what `out_of_memory` knows."""
    try:
        with undisturbed():
            values = make_inputs()
            steps = Lockstep(case.graph, "fp64", scope, coin=coin, patches=patches)
            with seeded(case):
                steps.run(values, None)
    except Exception as error:
        if out_of_memory(error):
            raise
        return None
    return Run(values, steps.eager, {})


def rounded_runs(
    case: Case,
    make_inputs: Callable[[], tuple[Any, ...]],
    wrong: Sequence[Divergence],
    count: int,
    scope: Mapping[str, Any] = MODULES,
) -> list[Run | None]:
    """Runs that round otherwise, where an integer is among what is `wrong`; what they change too is decided by rounding."""
    if not any(row.kind == "integer" for row in wrong):
        return []
    coins = [torch.Generator().manual_seed(number) for number in range(1, count + 1)]
    return [forward_run(case, make_inputs, coin, scope) for coin in coins]


def precision_of(case: Case, asked: str) -> str:
    """Which precision the reference starts at: one up from that of the inputs (design §4)."""
    if asked != "auto":
        return asked
    dtypes = {item.meta.dtype for item in case.inputs if isinstance(item, Input)}
    only_half = bool(dtypes & set(_LOW)) and not dtypes & set(_HIGH)
    autocast = case.settings.autocast or any(op.target.endswith("._enter_autocast") for op in case.graph.ops)
    return "fp32" if only_half and not autocast else "fp64"


def _computes_in(trace: Sequence[tuple[str, ValueMeta]], dtypes: Sequence[str]) -> bool:
    return any(isinstance(meta, TensorMeta) and meta.dtype in dtypes for _, meta in trace)


def _run_pair(
    case: Case,
    make_inputs: Callable[[], tuple[Any, ...]],
    precision: str,
    scope: Mapping[str, Any],
    *,
    wants_reference: bool,
) -> Pair:
    with undisturbed():
        low = make_inputs()
        high = raised_inputs(make_inputs(), precision) if wants_reference else None
        steps = Lockstep(case.graph, precision, scope)
        with seeded(case):
            steps.run(low, high)
        flows = tuple(cotangents(case, steps.eager))
        pair = Pair(steps, low, high, gradients(case, low, steps.eager, flows), {}, flows)
        if flows and high is not None and steps.reference is not None:
            pair.high_grads = _reference_gradients(case, pair, high, steps.reference)
        return pair


def _reference_gradients(case: Case, pair: Pair, high: tuple[Any, ...], outputs: tuple[Any, ...]) -> dict[str, Any]:
    """{} with a note where the reference has none; eager's then count as true."""
    if pair.steps.severed:
        pair.steps.notes.append("no reference gradient: the reference had to borrow values from eager")
        return {}
    try:
        return gradients(case, high, outputs, [raised_copy(flow, pair.steps.precision) for flow in pair.flows])
    except Exception as error:  # an op without a double backward kernel, say
        if out_of_memory(error):
            raise
        pair.steps.notes.append(f"no reference gradient: {first_line(str(error))}")
        return {}


def reference_run(pair: Pair) -> Run | None:
    """The reference's results, None where there is no reference."""
    if pair.steps.reference is None or pair.high is None:
        return None
    return Run(pair.high, pair.steps.reference, pair.high_grads)


def raised_inputs(values: tuple[Any, ...], precision: str) -> tuple[Any, ...]:
    """Inputs one precision up, in place of `values`; those that share memory and dtype keep sharing it."""
    bases: dict[tuple[int, torch.dtype, bool], torch.Tensor] = {}
    return tuple(_raised_input(value, precision, bases) for value in values)


def _raised_input(value: Any, precision: str, bases: dict[tuple[int, torch.dtype, bool], torch.Tensor]) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    wanted = higher_dtype(value.dtype, precision)
    if wanted == value.dtype:
        return value
    memory, nonleaf = memory_of(value), not value.is_leaf
    if memory is None:
        return value.detach().to(wanted).requires_grad_(value.requires_grad)
    key = (memory, value.dtype, nonleaf)
    if key not in bases:
        wide = store.storage_of(value).to(wanted)
        bases[key] = wide.requires_grad_().clone() if nonleaf else wide
    view = torch.as_strided(bases[key], value.shape, value.stride(), value.storage_offset())
    view = torch_internals.neg_view(view) if value.is_neg() else view
    view = view.conj() if value.is_conj() else view
    return view if nonleaf else view.requires_grad_(value.requires_grad)
