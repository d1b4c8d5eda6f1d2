"""A region's graph module -> the ATen graphs that AOTAutograd makes of it, each with the arguments of its first run.

Owns running AOTAutograd beside the user's compiler, on copies of the region's inputs. `convert` and `snapshot` do the rest.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from functorch.compile import (  # type: ignore[import-untyped]
    aot_module_simplified,
    make_boxed_func,
    min_cut_rematerialization_partition,
)

from minify import interpret, torch_internals, trial
from minify.capture import snapshot
from minify.capture.convert import Converted, convert
from minify.case import Settings

Parts = dict[str, snapshot.Snapshot]


def kept(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph as it is now, whatever a compiler does to `module` later."""
    return torch.fx.GraphModule(module, copy.deepcopy(module.graph))


def aten_snapshots(
    module: torch.fx.GraphModule, values: Sequence[Any], settings: Settings
) -> tuple[tuple[str, snapshot.Snapshot], ...]:
    """The parts `forward` (or `inference`) and, where `settings` ask for one, `backward`, in the order they ran.

    `values` are the region's real inputs; only copies of them are run on. What a part is compiled with are `settings`, save
    that autograd and autocast are in its graph already. Raises Unrepresentable, and what AOTAutograd or the graph raises."""
    parts: Parts = {}
    state = interpret.random_state()
    try:
        # In a thread of its own, where no compile is under way and the user's modes are not in force.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(contextvars.copy_context().run, _run, module, values, settings, parts).result()
    finally:
        interpret.restore_random(state)
    return tuple(parts.items())


def _run(module: torch.fx.GraphModule, values: Sequence[Any], settings: Settings, parts: Parts) -> None:
    """Forward and backward, each part filling in its own of `parts`."""
    plain = dataclasses.replace(settings, grad_mode="no_grad", backward="", autocast=())
    examples = _examples(module, values)

    def compiler(part: str) -> Callable[..., Any]:
        def compile_part(graph: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
            converted = _converted(graph)
            return make_boxed_func(lambda *args: _run_part(part, converted, graph, args, plain, parts))  # type: ignore[no-any-return]

        return compile_part

    with contextlib.ExitStack() as modes:
        for device, dtype in settings.autocast:
            modes.enter_context(torch.autocast(device, getattr(torch, dtype)))
        modes.enter_context(torch.inference_mode(settings.grad_mode == "inference"))
        modes.enter_context(torch.set_grad_enabled(settings.grad_mode == "grad"))
        with torch_internals.tracing_like(examples):
            compiled = aot_module_simplified(
                module,
                examples,
                fw_compiler=compiler("forward"),
                bw_compiler=compiler("backward"),
                inference_compiler=compiler("inference"),
                decompositions=torch_internals.inductor_decompositions(),
                partition_fn=min_cut_rematerialization_partition,
                keep_inference_input_mutations=True,
            )
        outputs = compiled(*_copies(values))
    if settings.backward:
        _run_backward(outputs if isinstance(outputs, list | tuple) else (outputs,), settings.seed)


def _run_part(
    part: str,
    converted: Converted,
    graph: torch.fx.GraphModule,
    args: Sequence[Any],
    settings: Settings,
    parts: Parts,
) -> Any:
    if part not in parts:
        bare = [arg.detach() if isinstance(arg, torch.Tensor) else arg for arg in args]
        parts[part] = dataclasses.replace(snapshot.take(converted, bare, settings), level="aten")
    return graph(*args)


def _run_backward(outputs: Sequence[Any], seed: int) -> None:
    roots = trial.differentiable(outputs)
    if roots:
        torch.manual_seed(seed)
        torch.autograd.backward(roots, [torch.randn_like(root) for root in roots])


def _converted(graph: torch.fx.GraphModule) -> Converted:
    """Without the gradients there are none of (None) and the sizes handed to the backward: no results of a program."""
    whole = convert(graph)
    (results,) = (node.args[0] for node in graph.graph.nodes if node.op == "output")
    given = results if isinstance(results, list | tuple) else (results,)
    tensors = [
        output
        for output, node in zip(whole.graph.outputs, given, strict=True)
        if isinstance(node, torch.fx.Node) and isinstance(torch_internals.placeholder_example(node), torch.Tensor)
    ]
    return dataclasses.replace(whole, graph=dataclasses.replace(whole.graph, outputs=tuple(dict.fromkeys(tensors))))


def _examples(module: torch.fx.GraphModule, values: Sequence[Any]) -> list[Any]:
    """What Dynamo traced with, where all of it is still known, else copies of the real inputs."""
    nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
    fakes = [torch_internals.placeholder_example(node) for node in nodes]
    return _copies(values) if any(fake is None for fake in fakes) else fakes


def _copies(values: Sequence[Any]) -> list[Any]:
    """Inputs in memory of their own, sharing it where the originals do."""
    memory: dict[int, Any] = {}
    return [_copied(value, memory) if isinstance(value, torch.Tensor) else value for value in values]


def _copied(value: torch.Tensor, memory: dict[int, Any]) -> torch.Tensor:
    if type(value) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) or value.layout != torch.strided:
        return value.detach().clone().requires_grad_(value.requires_grad)
    if torch_internals.is_zerotensor(value):
        return value.detach().clone().requires_grad_(value.requires_grad)
    key = torch_internals.storage_key(value)
    if key not in memory:
        memory[key] = value.detach().untyped_storage().clone()
    with torch.no_grad():
        bare = torch.empty(0, dtype=value.dtype, device=value.device)
        bare.set_(memory[key], value.storage_offset(), value.shape, value.stride())
    bare = bare.conj() if value.is_conj() else bare
    bare = torch_internals.neg_view(bare) if value.is_neg() else bare
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(bare, requires_grad=value.requires_grad)
    copied = bare.requires_grad_(value.requires_grad)
    return copied if value.is_leaf else copied.clone()
