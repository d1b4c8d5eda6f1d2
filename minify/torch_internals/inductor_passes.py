"""Inductor's passes over FX graphs, and the single matches of its patterns, one by one."""

from __future__ import annotations

import collections
import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from minify.torch_internals.switches import Handle, Switch, replaced

_OBSERVER = "torch.fx.passes.graph_transform_observer:GraphTransformObserver"
_APPLY = (f"{_OBSERVER}.apply_graph_pass", f"{_OBSERVER}.apply_gm_pass")
_ENTRIES = tuple(
    f"torch._inductor.pattern_matcher:{name}.apply"
    for name in ("LoweringPatternEntry", "GraphPatternEntry", "ReplacementPatternEntry")
)
# They put in order what others left, or take apart what has no lowering: without them nothing compiles.
_NEEDED = frozenset((
    "stable_sort", "decompose_triton_kernel_wrapper_functional", "decompose_auto_functionalized",
    "decompose_scan_to_while_loop", "decompose_map_to_while_loop",
))  # fmt: skip


@contextlib.contextmanager
def _passes(switch: Switch) -> Iterator[None]:
    """A pass is named by the stage it belongs to, by itself and, from its second run on, by which run it is: with a backward,
    post-grad passes run on two graphs."""
    runs: collections.Counter[str] = collections.Counter()

    def wrap(apply: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        @functools.wraps(apply)
        def asked(observer: Any, action: Any) -> Any:
            if observer.passname in _NEEDED:
                return apply(observer, action)
            stage = str(getattr(observer, "subsystem", None) or "").removesuffix("_passes").removesuffix("_graph")
            base = f"{stage}.{observer.passname}" if stage else observer.passname
            runs[base] += 1
            name = base if runs[base] == 1 else f"{base}#{runs[base]}"
            if not switch(name, _function(action)):
                return None
            before = str(observer.gm.graph)
            result = apply(observer, action)
            switch.note(name, _function(action), idle=before == str(observer.gm.graph))
            return result

        return asked

    with contextlib.ExitStack() as stack:
        for place in _APPLY:
            stack.enter_context(replaced(place, wrap))
        yield


@contextlib.contextmanager
def _patterns(switch: Switch) -> Iterator[None]:
    """A match is named by the pattern and the node it was found at. A pattern that is off at a node leaves it to the next one, which
    is another application."""

    def wrap(apply: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(apply)
        def asked(entry: Any, match: Any, graph: Any, node: Any) -> Any:
            name = f"{_pattern(entry)}@{node.name}"
            if switch(name, f"matches {', '.join(str(each) for each in match.nodes)}"):
                return apply(entry, match, graph, node)
            return None

        return asked

    with contextlib.ExitStack() as stack:
        for place in _ENTRIES:
            stack.enter_context(replaced(place, wrap))
        yield


def _function(action: Any) -> str:
    """The function that a pass runs, as its author would find it."""
    while isinstance(action, functools.partial):
        action = action.func
    owner = getattr(action, "__self__", None)
    name = getattr(action, "__qualname__", "") or type(action).__name__
    module = getattr(action, "__module__", "") or type(action).__module__
    named = getattr(owner, "pass_name", None)
    return f"{module}.{name}" + (f" of {named}" if named else "")


def _pattern(entry: Any) -> str:
    """What its author calls a pattern: the function that it was traced from or that it calls, else what it looks for."""
    held = getattr(entry, "handler", None) or _traced(getattr(entry, "extra_check", None))
    while isinstance(held, functools.partial):
        held = held.func
    return getattr(held, "__name__", "") or getattr(entry, "pattern_name", None) or type(entry.pattern).__name__


def _traced(check: Any) -> Any:
    """The function that a replacement was traced from, which is known to its check alone."""
    with contextlib.suppress(AttributeError, TypeError, KeyError, ValueError):  # another check; an empty cell
        return dict(zip(check.__code__.co_freevars, check.__closure__, strict=True))["search_fn"].cell_contents
    return None


HANDLES = (
    Handle("pass", _APPLY, _passes),
    Handle("pattern", _ENTRIES, _patterns),
)
