"""What each node of an FX graph is due: the graph run op by op in eager, with the same one precision up beside it.

What a graph does in eager is what is compiled of it has to do: a fault of an earlier stage is in the graph itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.fx

from minify import store, torch_internals
from minify.interpret import NoDispatch, leaves, map_tensors
from minify.lockstep import higher_dtype, raise_like, raised_copy, same_structure
from minify.reference import raised_inputs
from minify.rounding import shaken_values
from minify.trial import out_of_memory, undisturbed

PRECISION = "fp64"
_Env = dict[torch.fx.Node, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Truth:
    """The value of one node: eager's, the reference's, and eager's on shaken inputs."""

    eager: Any
    reference: Any
    shaken: tuple[Any, ...] = ()


def truths(
    module: torch.fx.GraphModule, inputs: Sequence[Any], wanted: frozenset[str], noise: int = 0
) -> dict[str, Truth]:
    """Of each node in `wanted`, by its name, `noise` runs on shaken inputs with it. Raises what an op raises in eager."""
    with undisturbed(), torch.no_grad(), NoDispatch(), _same_random():
        low = _values(module, copies(inputs), raised_inputs(copies(inputs), PRECISION), wanted)
        trials = [_trial(module, inputs, seed, wanted) for seed in range(noise)]
    found = {}
    for name, (eager, reference) in low.items():
        shaken = tuple(trial[name][0] for trial in trials if name in trial)
        found[name] = Truth(eager, reference, shaken)
    return found


def _trial(module: torch.fx.GraphModule, inputs: Sequence[Any], seed: int, wanted: frozenset[str]) -> dict[str, Any]:
    """{} where what was moved leaves the domain of an op."""
    try:
        return _values(module, shaken_values(copies(inputs), seed, half=True), None, wanted)
    except Exception as error:  # any op may raise anything of it
        if out_of_memory(error):
            raise
        return {}


@contextlib.contextmanager
def _same_random() -> Iterator[None]:
    """Whoever draws while the graph runs for itself leaves the generators as what is compiled of it has to find them."""
    with torch.random.fork_rng(devices=list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []):
        yield


def copies(values: Iterable[Any]) -> tuple[Any, ...]:
    """In memory of their own, laid out and shared as the originals are."""
    memory: dict[tuple[int, torch.dtype], torch.Tensor] = {}

    def copied(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        value = value.detach()
        if value.layout is not torch.strided or value.is_conj() or value.is_neg():
            return value.clone()
        key = (torch_internals.storage_key(value), value.dtype)
        if key not in memory:
            memory[key] = store.storage_of(value).clone()
        return torch.as_strided(memory[key], value.shape, value.stride(), value.storage_offset())

    with torch.no_grad():
        return tuple(map(copied, values))


def _copied(value: Any) -> Any:
    return map_tensors(value, lambda tensor: tensor.detach().clone())


def _values(
    module: torch.fx.GraphModule, inputs: Sequence[Any], raised: Sequence[Any] | None, wanted: frozenset[str]
) -> dict[str, tuple[Any, Any]]:
    """Eager's and the reference's values, copied as they are when their node has run: it may be written to later."""
    low: _Env = {}
    high: _Env | None = None if raised is None else {}
    found: dict[str, tuple[Any, Any]] = {}
    places = iter(range(len(inputs)))
    for node in module.graph.nodes:
        if node.op == "output":
            break
        if node.op == "placeholder":
            place = next(places)
            low[node] = inputs[place]
            if high is not None and raised is not None:
                high[node] = raised[place]
            continue
        low[node] = _ran(module, node, low)
        if high is not None:
            high[node] = _raised(module, node, low, high)
        if node.name in wanted:
            found[node.name] = (_copied(low[node]), None if high is None else _copied(high[node]))
    return found


def _ran(
    module: torch.fx.GraphModule, node: torch.fx.Node, env: _Env, change: Callable[[Any], Any] | None = None
) -> Any:
    if node.op == "get_attr":
        return _attribute(module, str(node.target))
    assert callable(node.target), node.op
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda read: env[read])
    if change is not None:
        args, kwargs = torch.fx.node.map_aggregate((args, kwargs), change)
    return node.target(*args, **kwargs)


def _attribute(module: torch.nn.Module, path: str) -> Any:
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _raised(module: torch.fx.GraphModule, node: torch.fx.Node, low: _Env, high: _Env) -> Any:
    """The reference's value; eager's where the op cannot be had one precision up, or draws."""
    eager = low[node]
    if not list(leaves(eager)) or torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return raised_copy(eager, PRECISION)
    try:
        value = _ran(
            module, node, high, lambda arg: higher_dtype(arg, PRECISION) if isinstance(arg, torch.dtype) else arg
        )
    except Exception as error:  # no such kernel: eager's value has to do
        if out_of_memory(error):
            raise
        return raised_copy(eager, PRECISION)
    return raise_like(value, eager, PRECISION) if same_structure(value, eager) else raised_copy(eager, PRECISION)
