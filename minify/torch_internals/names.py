"""Functions by dotted name: `function_name` writes one, `resolve` reads it."""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import operator
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch

_NAMESPACES: tuple[tuple[str, Any], ...] = (
    ("torch", torch),
    ("torch.nn.functional", torch.nn.functional),
    *((f"torch.{name}", getattr(torch, name)) for name in ("special", "linalg", "fft", "sparse", "nested")),
    ("torch.nn.attention.flex_attention", importlib.import_module("torch.nn.attention.flex_attention")),
    ("operator", operator),
    ("math", math),
)
# Higher-order ops whose own form takes graph modules, by the function that users call.
_HIGHER_ORDER = {"cond": "torch.cond", "tag_activation_checkpoint": "torch.utils.checkpoint.checkpoint"}
_ALIASES = {"torch._C._set_grad_enabled": "torch.set_grad_enabled", "_operator": "operator"}


@functools.cache
def _public_names() -> dict[int, str]:
    names: dict[int, str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for prefix, module in _NAMESPACES:
            for name in dir(module):
                value = getattr(module, name, None)
                private = name.startswith("_") and not name.startswith("_foreach_")
                if callable(value) and not private and not isinstance(value, type):
                    names.setdefault(id(value), f"{prefix}.{name}")
    return names


def function_name(function: Any) -> str:
    """The dotted name under which `resolve` finds `function` again, public where there is one. Raises ValueError if none does."""
    if isinstance(function, torch._ops.OpOverload):
        return f"torch.ops.{function.namespace}.{function._schema.name.split('::')[1]}.{function._overloadname}"
    if isinstance(function, torch._ops.OpOverloadPacket):
        return f"torch.ops.{function}"
    if isinstance(function, torch._ops.HigherOrderOperator):
        return _HIGHER_ORDER.get(function.name(), f"torch.ops.higher_order.{function.name()}")
    known = _public_names().get(id(function))
    if known:
        return known
    module, qualname = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if getattr(torch.Tensor, name := qualname.rpartition(".")[2], None) is function:
        return f"torch.Tensor.{name}"
    owner = getattr(function, "__self__", None)
    if module is None and isinstance(owner, types.ModuleType):
        module = owner.__name__
    dotted = f"{_ALIASES.get(module or '', module)}.{qualname}"
    dotted = _ALIASES.get(dotted, dotted)
    with contextlib.suppress(AttributeError, ImportError, ValueError):
        if resolve(dotted) is function or dotted in _ALIASES.values():
            return dotted
    raise ValueError(f"no importable name for {function!r}")


def resolve(target: str) -> Callable[..., Any]:
    """The function behind a dotted name. Raises AttributeError or ImportError where torch has no such thing."""
    # A custom op may be defined anew, and calling the one that was is a segmentation fault (seen on torch 2.13).
    return _found(target) if target.startswith("torch.ops.") else _found_before(target)


def _found(target: str) -> Callable[..., Any]:
    parts = target.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        if not callable(found):
            raise AttributeError(f"{target} is not callable")
        return found  # type: ignore[no-any-return]
    raise ImportError(f"no module holds {target}")


_found_before = functools.cache(_found)
