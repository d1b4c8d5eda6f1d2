"""Capture in tests: the graph that Dynamo makes of a function, with its real inputs, and what running it gave."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from minify import interpret, torch_internals
from minify.capture import snapshot
from minify.capture.convert import convert
from minify.case import Case, TensorMeta


@dataclasses.dataclass
class Captured:
    """One run of one graph: its case, and the facts of its outputs and of its inputs afterwards."""

    case: Case
    taken: snapshot.Snapshot
    outputs: list[Any]
    inputs: list[Any]


def capture(fn: Callable[..., Any], inputs: Sequence[Any], root: Path, **how: Any) -> list[Captured]:
    """Every graph of `fn(*inputs)`, run eagerly from seed 0; `how` as for torch.compile."""
    found: list[Captured] = []

    def record(module: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        converted = convert(module)

        def run(*args: Any) -> Any:
            settings = snapshot.current_settings(how, lambda value: None, backward=torch.is_grad_enabled())
            taken = snapshot.take(converted, args, settings)
            torch.manual_seed(0)
            result = module(*args)
            given = [snapshot.given(param, args) for param in converted.params]
            rows = facts([*given, *result])
            found.append(Captured(taken.case(root), taken, rows[len(given) :], rows[: len(given)]))
            return result

        return run

    torch.compiler.reset()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Dynamo warns of its own doings
            torch.compile(fn, backend=record, dynamic=how.get("dynamic"))(*inputs)
    finally:
        torch.compiler.reset()
    return found


def facts(values: Sequence[Any]) -> list[Any]:
    """What matters of values: layout, flags, being a leaf, sharing memory with each other, and every element."""
    numbers = interpret.StorageNumbers()
    rows: list[Any] = []
    for position, value in enumerate(values):
        if not isinstance(value, torch.Tensor):
            rows.append((type(value), str(value)))
            continue
        meta = interpret.describe(value, numbers, str(position))
        assert isinstance(meta, TensorMeta)
        zero = torch_internals.is_zerotensor(value)
        elements = 0 if zero else value.detach().resolve_conj().resolve_neg().tolist()
        rows.append((meta, value.is_leaf, str(elements)))
    return rows
