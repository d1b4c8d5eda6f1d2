"""What Dynamo captures: the graph compilers of a script watched, and what is known of a graph's inputs."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._dynamo

GraphCompiler = Callable[..., Any]


def backend(name: str) -> GraphCompiler:
    """The graph compiler registered under `name`. Raises torch's InvalidBackend for an unknown one."""
    return importlib.import_module("torch._dynamo.backends.registry").lookup_backend(name)  # type: ignore[no-any-return]


@contextlib.contextmanager
def watched_compiles(wrap: Callable[[GraphCompiler, dict[str, Any]], GraphCompiler]) -> Iterator[None]:
    """Let `wrap(compiler, how)` stand in for the graph compiler of every `torch.compile` made meanwhile.

    `how` has `backend` (as given), `mode`, `options`, `dynamic` as far as they are known."""
    eval_frame = torch._dynamo.eval_frame
    original, compile_ = eval_frame.get_compiler_fn, torch.compile
    pending: list[dict[str, Any]] = []

    def get_compiler_fn(compiler: Any) -> Any:
        how = dict(pending[-1]) if pending else _how_wrapped(compiler)
        inner = original(compiler)
        return _keep_identity(wrap(inner, how), inner)

    @functools.wraps(compile_)
    def compile_and_note(*args: Any, **kwargs: Any) -> Any:
        if not args and "model" not in kwargs:  # the decorator form calls back with the function
            return lambda model: compile_and_note(model, **kwargs)
        names = ("model", "fullgraph", "dynamic", "backend", "mode", "options")
        pending.append({key: kwargs[key] for key in names[1:] if key in kwargs})
        try:
            return compile_(*args, **kwargs)
        finally:
            pending.pop()

    eval_frame.get_compiler_fn, torch.compile = get_compiler_fn, compile_and_note  # type: ignore[assignment]
    try:
        yield
    finally:
        eval_frame.get_compiler_fn, torch.compile = original, compile_


def _how_wrapped(compiler: Any) -> dict[str, Any]:
    """How a graph compiler was asked for, where `torch.compile` was taken out of torch before it was watched: it then hands
    on a wrapper that holds what it was given."""
    known = {"dynamic": getattr(compiler, "dynamic", None)}
    if hasattr(compiler, "compiler_name") and hasattr(compiler, "config"):
        return {"backend": compiler.compiler_name, "options": dict(compiler.config), **known}
    if hasattr(compiler, "compiler_fn") and hasattr(compiler, "kwargs"):
        named = getattr(compiler, "compiler_name", "") in torch._dynamo.list_backends(exclude_tags=())
        return {"backend": compiler.compiler_name if named else compiler.compiler_fn, **compiler.kwargs, **known}
    return {"backend": compiler}


def _keep_identity(outer: Any, inner: Any) -> Any:
    for name in ("_torchdynamo_orig_backend", "get_compiler_config", "__name__", "compiler_name"):
        if hasattr(inner, name):
            setattr(outer, name, getattr(inner, name))
    return outer


def shape_symbol(value: Any) -> str:
    """The text of a symbolic int (`s77`), "" for a plain one or one whose value is already fixed."""
    if not isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return ""
    return "" if value.node.expr.is_number else str(value.node.expr)


def hint(value: Any) -> Any:
    """The number a symbolic value stands for in this run."""
    return value.node.hint if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool) else value


def placeholder_example(node: torch.fx.Node) -> Any:
    """The fake tensor or symbolic number Dynamo keeps for a graph input, None if it has none."""
    return node.meta.get("example_value", node.meta.get("val"))


def is_symbolic_float(node: torch.fx.Node) -> bool:
    """Whether a graph input is a Python float that Dynamo hands over as a tensor and reads back with `.item()`."""
    argument = node.meta.get("grapharg")
    wrapped = bool(getattr(argument, "pass_arg_as_tensor", False)) and not getattr(argument, "is_tensor", True)
    uses = [user for user in node.users if not (user.op == "call_method" and user.target == "item")]
    return wrapped and not uses
