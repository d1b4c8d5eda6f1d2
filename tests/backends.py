"""A program and a graph compiler that is wrong, in a module of their own: a case that names them takes its text along."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def scaled(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) * by


def off_by_one(module: torch.fx.GraphModule, example_inputs: list[Any], **_: Any) -> Callable[..., Any]:
    """A backend that is wrong."""
    return lambda *args: [out + 1 for out in module(*args)]


def unrelated() -> None:
    """What no case needs."""
