"""Which ATen graph that Inductor compiled is wrong, and which node of it first: each held against itself, interpreted in eager on
the very inputs that the compiled one was run on.

A node that is no output is seen only if it is made one, which changes what is fused: the graph is compiled once more for that, and
only where one of its own outputs is wrong.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from minify import interpret
from minify.compare import compare_results
from minify.crashes import first_line
from minify.tolerance import Tolerance
from minify.trial import out_of_memory
from minify.truth import Truth, copies, truths
from minify.verdict import Divergence, GraphSeen

Compile = Callable[[torch.fx.GraphModule], Callable[..., Any]]


@dataclasses.dataclass(frozen=True)
class Record:
    """One run of a compiled graph: the graph as it was given to Inductor, the inputs and the random state that the run started from,
    and what it gave."""

    part: str
    graph: torch.fx.GraphModule
    inputs: tuple[Any, ...]
    random: tuple[bytes, ...]
    outputs: tuple[Any, ...]


class Recorder:
    """Keeps the first run of each graph. To be called in place of it."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def __call__(
        self, part: str, graph: torch.fx.GraphModule, inputs: Sequence[Any], run: Callable[[Sequence[Any]], Any]
    ) -> Any:
        if any(record.graph is graph for record in self.records):
            return run(inputs)
        before, state = copies(inputs), interpret.random_state()
        outputs = run(inputs)
        self.records.append(Record(part, graph, before, state, copies(outputs)))
        return outputs


def judged(records: Iterable[Record], compile_graph: Compile, tolerance: Tolerance) -> tuple[GraphSeen, ...]:
    """What there is to say of each graph, in the order in which they ran. Raises what `out_of_memory` knows."""
    return tuple(_judged(record, compile_graph, tolerance) for record in records)


def _judged(record: Record, compile_graph: Compile, tolerance: Tolerance) -> GraphSeen:
    interpret.restore_random(record.random)
    try:
        known = truths(record.graph, record.inputs, frozenset(node.name for node in record.graph.graph.nodes))
    except Exception as error:  # noqa: BLE001 - an op that eager has no kernel for, say
        return GraphSeen(record.part, why=_why("it cannot be interpreted", error))
    due = {name: each for name, each in known.items() if isinstance(each.eager, torch.Tensor)}
    names = [node.name if isinstance(node, torch.fx.Node) else "" for node in _results(record.graph)]
    own = _first_wrong(zip(names, record.outputs, strict=True), due, tolerance)
    if own is None:
        return GraphSeen(record.part)
    nodes = [node for node in record.graph.graph.nodes if node.op == "call_function" and node.name in due]
    try:
        interpret.restore_random(record.random)
        every = compile_graph(_returning(record.graph, [node.name for node in nodes]))(*copies(record.inputs))
    except Exception as error:  # noqa: BLE001 - the compiler may do anything
        return GraphSeen(record.part, own, why=_why("with every value returned as well it cannot be run", error))
    found = _first_wrong(zip([node.name for node in nodes], every, strict=True), due, tolerance)
    if found is None:
        return GraphSeen(
            record.part, own, why="with every value returned as well, which changes what is fused, none differs"
        )
    (node,) = (node for node in nodes if node.name == found.where)
    return GraphSeen(record.part, own, node.name, str(node.target), _source(node), found)


def _first_wrong(
    values: Iterable[tuple[str, Any]], due: Mapping[str, Truth], tolerance: Tolerance
) -> Divergence | None:
    """Of values in order. Strides are not compared: those of what the backward is handed are the compiler's own business."""
    with torch.no_grad():
        for name, value in values:
            if name in due:
                eager, reference = due[name].eager, due[name].reference
                rows = compare_results(name, value, eager, reference, tolerance, (), strides=False)
                if wrong := next((row.wrong for row in rows if row.wrong), None):
                    return wrong
    return None


def _results(graph: torch.fx.GraphModule) -> tuple[Any, ...]:
    (output,) = (node for node in graph.graph.nodes if node.op == "output")
    return tuple(output.args[0]) if isinstance(output.args[0], list | tuple) else (output.args[0],)


def _returning(graph: torch.fx.GraphModule, names: Sequence[str]) -> torch.fx.GraphModule:
    """The graph with the results of these nodes for outputs."""
    grown = copy.deepcopy(graph.graph)
    nodes = {node.name: node for node in grown.nodes}
    (output,) = (node for node in grown.nodes if node.op == "output")
    output.args = (tuple(nodes[name] for name in names),)
    return torch.fx.GraphModule(graph, grown)


def _source(node: torch.fx.Node) -> str:
    """The line of the program that the node comes from, "" where that is not known."""
    lines = [line.strip() for line in str(node.meta.get("stack_trace") or "").splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _why(what: str, error: Exception) -> str:
    """Raises the error where it tells of the machine and not of the graph."""
    if out_of_memory(error):
        raise error
    return f"{what}: {type(error).__name__}: {first_line(str(error))}"
