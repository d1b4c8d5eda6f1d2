"""Inductor's lowering, node by node: which nodes it lowers at all, and which results it lets their readers compute again."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

from minify.torch_internals.switches import Handle, Switch, replaced

_FALLS_BACK = "torch._inductor.graph:should_fallback_by_default"
_RUN_NODE = "torch._inductor.graph:GraphLowering.run_node"


def graph_name(name: str) -> str:
    """`name` as it is called across the graphs of one program: the backward's names are its own."""
    graph = importlib.import_module("torch._inductor.virtualized").V.graph
    return f"backward.{name}" if getattr(graph, "is_backward", False) else name


@contextlib.contextmanager
def _lowerings(switch: Switch) -> Iterator[None]:
    """A node that is off calls eager's own kernel. Which nodes can is what `mode="lite"` goes by."""
    config: Any = importlib.import_module("torch._inductor.config")

    def wrap(decide: Callable[[Any], bool]) -> Callable[[Any], bool]:
        @functools.wraps(decide)
        def asked(node: Any) -> bool:
            if decide(node):
                return True
            with config.patch(fallback_by_default=True):
                can = decide(node)
            return can and not switch(graph_name(node.name), str(node.target))

        return asked

    with replaced(_FALLS_BACK, wrap):
        yield


@contextlib.contextmanager
def _inlinings(switch: Switch) -> Iterator[None]:
    """A result that is off is written to memory before anything reads it. What only the caller reads is written anyway."""
    ir: Any = importlib.import_module("torch._inductor.ir")

    def wrap(run_node: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        @functools.wraps(run_node)
        def asked(graph: Any, node: Any) -> Any:
            result = run_node(graph, node)
            read = node.op == "call_function" and any(user.op != "output" for user in node.users)
            box = result.data if read and isinstance(result, ir.TensorBox) else None
            loops = isinstance(box, ir.StorageBox) and isinstance(box.data, ir.Loops)
            if loops and not switch(graph_name(node.name), str(node.target)):
                result.realize()
            return result

        return asked

    with replaced(_RUN_NODE, wrap):
        yield


HANDLES = (
    Handle("lowering", (_FALLS_BACK, "torch._inductor.config:fallback_by_default"), _lowerings),
    Handle("inlining", (_RUN_NODE, "torch._inductor.ir:Loops"), _inlinings),
)
