"""Which graph, and which node of it, is said to differ first; where something is compiled, Dynamo is all that does it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from minify import worker
from minify.case import Case, Const, Recipe, Ref, Settings
from minify.graphs import Recorder, judged
from minify.interpret import random_state
from minify.localize.nodes import ATEN, CAPTURED, FirstNode, first_node, returning_all
from minify.tolerance import Tolerance
from minify.verdict import Divergence, GraphSeen, Question, Signature, Verdict, classify
from tests.cases import build, given, op, tensor

R = Ref
VALUE = Signature("accuracy", "value", "value")
OFF = Divergence("y", "value", max_abs=1.0, excess=1e4, ratio=1e4)
WRONG_TANH = """
def off(module, inputs):
    for node in module.graph.nodes:
        if node.target is torch.tanh:
            node.target = torch.sin
    module.recompile()
    return module.forward
"""


def chain(settings: Settings) -> Case:
    inputs = [given("x", tensor((4, 3), requires_grad=bool(settings.backward)), Recipe("randn"))]
    calls = [
        op("a", "torch.exp", R("x")),
        op("b", "torch.tanh", R("a")),
        op("c", "torch.abs", R("b")),
        op("y", "torch.sum", R("c")),
    ]
    case = build(inputs, calls, ["y"], settings)
    return dataclasses.replace(case, program=dataclasses.replace(case.program, prelude=WRONG_TANH))


class Oracle:
    """Judges in this process; of graphs it says what it is told to."""

    def __init__(self, root: Path, graphs: tuple[GraphSeen, ...] = ()) -> None:
        self.root, self.seen, self.asked = root, graphs, list[Case]()

    def judge(self, case: Case, signature: Signature) -> Verdict:
        self.asked.append(case)
        return classify(
            worker.judge(Question("judge", case, "accuracy", str(self.root)), lambda phase: None), signature
        )

    def graphs(self, case: Case) -> tuple[GraphSeen, ...]:
        return self.seen


def test_of_a_captured_graph_the_first_call_that_differs_is_named(tmp_path: Path) -> None:
    oracle = Oracle(tmp_path)
    found = first_node(chain(Settings(backend=Const("off"))), VALUE, oracle)
    assert found and (found.kind, found.part, found.node, found.call) == (CAPTURED, "forward", "b", "torch.tanh")
    assert found.numbers and found.numbers.where == "output:b" and len(oracle.asked) == 1


@pytest.mark.parametrize(("backward", "part"), [("", "forward"), ("ones", "backward")])
def test_where_every_value_is_right_no_node_is_named(backward: str, part: str, tmp_path: Path) -> None:
    case = chain(Settings(backend="eager", backward=backward, grad_mode="grad" if backward else "no_grad"))
    found = first_node(case, VALUE, Oracle(tmp_path))
    assert found and (found.part, found.node, found.numbers) == (part, "", None)


def test_the_graph_that_inductor_gets_wrong_comes_first_and_those_that_are_right_are_passed_over(
    tmp_path: Path,
) -> None:
    seen = (GraphSeen("forward"), GraphSeen("backward", OFF, "mul_2", "aten.mul.Tensor", "x * y", OFF))
    found = first_node(chain(Settings()), VALUE, Oracle(tmp_path, seen))
    assert found == FirstNode(ATEN, "backward", "mul_2", "aten.mul.Tensor", "x * y", OFF)


def test_a_crash_has_no_first_node(tmp_path: Path) -> None:
    oracle = Oracle(tmp_path)
    assert first_node(chain(Settings()), Signature("crash", "exception", "E"), oracle) is None and not oracle.asked


def test_every_call_is_returned_and_no_backward_is_asked_for(tmp_path: Path) -> None:
    every = returning_all(chain(Settings(backward="ones", grad_mode="grad")))
    assert [output.name for output in every.graph.outputs if isinstance(output, Ref)] == ["a", "b", "c", "y"]
    assert every.settings.backward == ""


# --- ATen graphs --------------------------------------------------------------------------------------------------------

Graph = torch.fx.GraphModule
NEGATIVE, POSITIVE = torch.tensor([-1.0, 2.0, -3.0, 4.0]), torch.arange(1.0, 5.0)


def recorded(graph: Graph, run: Callable[..., Any], *inputs: torch.Tensor) -> Recorder:
    recorder = Recorder()
    recorder("backward", graph, list(inputs), lambda values: run(*values))
    return recorder


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a = torch.ops.aten.mul.Tensor(x, y)
        b = torch.ops.aten.relu.default(a)
        return torch.ops.aten.neg.default(b), torch.ops.aten.add.Tensor(a, 1)


def swapped(graph: Graph) -> Graph:
    """A compiler that takes relu for abs."""
    for node in graph.graph.nodes:
        if node.target is torch.ops.aten.relu.default:
            node.target = torch.ops.aten.abs.default
    graph.recompile()
    return graph


def wrong(*values: torch.Tensor) -> Any:
    return swapped(torch.fx.symbolic_trace(Net()))(*values)


def test_of_an_aten_graph_the_first_node_that_differs_is_named() -> None:
    recorder = recorded(torch.fx.symbolic_trace(Net()), wrong, NEGATIVE, POSITIVE)
    (seen,) = judged(recorder.records, swapped, Tolerance())
    assert (seen.part, seen.node, seen.call) == ("backward", "relu_default", "aten.relu.default")
    assert seen.wrong and seen.wrong.where == "neg_default" and seen.numbers and not seen.why


def test_a_graph_that_is_right_is_not_compiled_again() -> None:
    recorder = recorded(torch.fx.symbolic_trace(Net()), Net(), NEGATIVE, POSITIVE)
    assert judged(recorder.records, lambda graph: pytest.fail("compiled"), Tolerance()) == (GraphSeen("backward"),)


def test_what_a_graph_needs_to_be_fused_is_said_where_every_value_returned_makes_it_right() -> None:
    recorder = recorded(torch.fx.symbolic_trace(Net()), wrong, NEGATIVE, POSITIVE)
    (seen,) = judged(recorder.records, lambda graph: graph, Tolerance())
    assert seen.wrong and not seen.node and "changes what is fused" in seen.why


def test_a_graph_that_writes_to_its_inputs_and_draws_is_interpreted_on_what_it_was_given() -> None:
    class Writes(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
            grown = torch.ops.aten.add.Tensor(x, torch.ops.aten.rand_like.default(x))
            torch.ops.aten.copy_.default(x, grown)
            return (torch.ops.aten.mul.Tensor(grown, 2),)

    graph, given_x = torch.fx.symbolic_trace(Writes()), torch.randn(4)
    recorder = recorded(graph, Writes(), given_x)
    assert judged(recorder.records, lambda graph: pytest.fail("compiled"), Tolerance()) == (GraphSeen("backward"),)
    assert len(random_state()) and torch.equal(recorder.records[0].outputs[0], given_x * 2)
