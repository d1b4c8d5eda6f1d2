"""Tensors beyond their public face: special kinds of them, their memory, and the containers they come in."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch


def map_leaves(change: Callable[[Any], Any], value: Any) -> Any:
    """`value` rebuilt with `change` applied to every leaf of the tuples, lists and dicts (pytrees) it is made of."""
    return importlib.import_module("torch.utils._pytree").tree_map(change, value)


def is_zerotensor(tensor: torch.Tensor) -> bool:
    return bool(tensor._is_zerotensor())


def zerotensor(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    """The zero that autograd keeps without memory."""
    return torch._efficientzerotensor(shape, dtype=dtype, device=device)


def neg_view(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory read with the opposite sign, or, of such a view, the memory as it is."""
    return torch._neg_view(tensor)


def version(tensor: torch.Tensor) -> int:
    """Counts the in-place writes to the memory of `tensor`; always 0 for inference tensors, which keep no count."""
    return 0 if tensor.is_inference() else int(tensor._version)


def storage_key(tensor: torch.Tensor) -> int:
    """Equal for two tensors exactly when they lie in the same live memory."""
    return int(tensor.untyped_storage()._cdata)
