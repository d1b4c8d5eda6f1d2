"""A `torch.autograd.Function` as Dynamo captured it -> the class a user would write, for the prelude.

Owns the text of the class. Dynamo hands over two graphs: `forward` returns its results and what is saved, `backward`
takes the gradients of the results and what was saved.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

import libcst as cst

from minify import render
from minify.graph import Arg, Graph, Op

CONTEXT = "ctx"


@dataclasses.dataclass(frozen=True)
class AutogradFunction:
    """`in_saved_tensors`, `dirty` and `non_differentiable` are positions among the saved values and the results."""

    forward: Graph
    backward: Graph
    in_saved_tensors: Collection[int]
    dirty: Collection[int] = ()
    non_differentiable: Collection[int] = ()


def definition(function: AutogradFunction, name: str) -> str:
    """The class as text. Raises ValueError where `forward` is not a pair of results and saved values."""
    apart = _static(_backward(function)).with_changes(leading_lines=[cst.EmptyLine(indent=False)])
    body = cst.IndentedBlock([_static(_forward(function)), apart])
    return render.text(cst.ClassDef(cst.Name(name), body, [cst.Arg(render.dotted("torch.autograd.Function"))]))


def _forward(function: AutogradFunction) -> cst.FunctionDef:
    results, saved = _results(function.forward)
    graph = Graph((CONTEXT, *function.forward.params), _without_grad_modes(function.forward.ops), (*results, *saved))
    lines = _body(render.function(graph, "forward", bare=False))[:-1]
    tensors = [value for at, value in enumerate(saved) if at in function.in_saved_tensors]
    for method, values in (
        ("save_for_backward", tensors),
        ("mark_dirty", [results[at] for at in sorted(function.dirty)]),
        ("mark_non_differentiable", [results[at] for at in sorted(function.non_differentiable)]),
    ):
        if values:
            lines.append(_line(f"{CONTEXT}.{method}({', '.join(map(render.text_of, values))})"))
    for at, value in enumerate(saved):
        if at not in function.in_saved_tensors:
            lines.append(_line(f"{CONTEXT}.saved{at} = {render.text_of(value)}"))
    return _function("forward", graph.params, [*lines, _line(f"return {render.text_of(results)}")])


def _backward(function: AutogradFunction) -> cst.FunctionDef:
    results, _ = _results(function.forward)
    gradients, saved = function.backward.params[: len(results)], function.backward.params[len(results) :]
    tensors = [name for at, name in enumerate(saved) if at in function.in_saved_tensors]
    lines = [_line(f"{', '.join(tensors)}, = {CONTEXT}.saved_tensors")] if tensors else []
    lines += [
        _line(f"{name} = {CONTEXT}.saved{at}") for at, name in enumerate(saved) if at not in function.in_saved_tensors
    ]
    ops = _without_grad_modes(function.backward.ops)
    whole = render.function(Graph((CONTEXT, *gradients), ops, function.backward.outputs), "backward", bare=False)
    return _function("backward", (CONTEXT, *gradients), [*lines, *_body(whole)])


def _results(forward: Graph) -> tuple[tuple[Arg, ...], tuple[Arg, ...]]:
    if len(forward.outputs) != 2:
        raise ValueError(f"the forward of an autograd function returns {len(forward.outputs)} things")
    results, saved = (part if isinstance(part, tuple) else (part,) for part in forward.outputs)
    return results, saved


def _without_grad_modes(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """The ops without the switch around them: autograd turns gradients off by itself."""
    if len(ops) > 1 and all(op.target == "torch.set_grad_enabled" for op in (ops[0], ops[-1])):
        return ops[1:-1]
    return ops


def _function(name: str, params: tuple[str, ...], lines: list[cst.BaseStatement]) -> cst.FunctionDef:
    given = cst.Parameters([cst.Param(cst.Name(param)) for param in params])
    return cst.FunctionDef(cst.Name(name), given, cst.IndentedBlock(lines))


def _static(function: cst.FunctionDef) -> cst.FunctionDef:
    return function.with_changes(decorators=[cst.Decorator(cst.Name("staticmethod"))])


def _body(function: cst.FunctionDef) -> list[cst.BaseStatement]:
    assert isinstance(function.body, cst.IndentedBlock)
    return list(function.body.body)


def _line(text: str) -> cst.BaseStatement:
    return cst.parse_statement(text)
