"""The ATen graphs that Inductor compiles, each as it was before a pass of Inductor's touched it, and with what it is run on."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from minify.torch_internals.switches import exists, replaced

_COMPILE = "torch._inductor.compile_fx:_compile_fx_inner"
_CALL = "torch._inductor.output_code:CompiledFxGraph.__call__"
OnRun = Callable[[str, torch.fx.GraphModule, Sequence[Any], Callable[[Sequence[Any]], Any]], Any]


@contextlib.contextmanager
def watched_graphs(on_run: OnRun) -> Iterator[None]:
    """Each graph that is compiled meanwhile is run by `on_run(part, graph, inputs, run)`, `part` being `forward` or `backward`; none
    is where this torch lacks one of the two places."""
    if not (exists(_COMPILE) and exists(_CALL)):
        yield
        return
    met: dict[int, tuple[Any, str, torch.fx.GraphModule]] = {}

    def compiling(compile_inner: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(compile_inner)
        def kept(module: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
            graph = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
            compiled = compile_inner(module, *args, **kwargs)
            met[id(compiled)] = compiled, "backward" if kwargs.get("is_backward") else "forward", graph
            return compiled

        return kept

    def calling(call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def called(compiled: Any, inputs: Sequence[Any]) -> Any:
            if id(compiled) not in met:
                return call(compiled, inputs)
            _, part, graph = met[id(compiled)]
            return on_run(part, graph, inputs, functools.partial(call, compiled))

        return called

    with replaced(_COMPILE, compiling), replaced(_CALL, calling):
        yield
