"""Dropping what of the prelude nothing reads any more."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from minify.case import Case, Const, Graph, Op, Ref, Settings
from minify.graph import Subgraph
from minify.passes.prune_prelude import PRUNE_PRELUDE
from tests.cases import build, op

R = Ref
TWO = """import torch

class First(torch.autograd.Function):
    pass

class Second(torch.autograd.Function):
    pass

def backend(graph, inputs):
    return graph
"""
OPS = """import torch
from torch import Tensor

@torch.library.custom_op("mine::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return x * 2

@torch.library.custom_op("other::thrice", mutates_args=())
def thrice(x: Tensor) -> Tensor:
    return x * 3
"""


def program(prelude: str, *ops: Op, backend: str = "inductor") -> Case:
    settings = Settings(backend=backend if backend == "inductor" else Const(backend))
    case = build(["x"], list(ops), [ops[-1].name], settings)
    return dataclasses.replace(case, program=dataclasses.replace(case.program, prelude=prelude))


def left(case: Case) -> str:
    ((site,),) = (PRUNE_PRELUDE.find(case),)
    return PRUNE_PRELUDE.rewrite(case, (site,)).program.prelude


APPLY = op("a", ".apply", Const("Second"), R("x"))
CLAMP = op("a", "torch.relu", R("x"))


def test_a_class_that_no_call_names_goes() -> None:
    text = left(program(TWO, APPLY))
    assert "class Second" in text and "import torch" in text
    assert "First" not in text and "backend" not in text


def test_a_name_inside_a_body_counts() -> None:
    body = Subgraph(Graph(("t",), (op("y", ".apply", Const("First"), R("t")),), (R("y"),)))
    text = left(program(TWO, op("a", "torch.cond", True, body, body, (R("x"),))))
    assert "class First" in text and "Second" not in text


def test_a_backend_of_the_script_stays() -> None:
    text = left(program(TWO, CLAMP, backend="backend"))
    assert "def backend" in text and "First" not in text


def test_nothing_is_left_where_nothing_is_read() -> None:
    assert left(program(TWO, CLAMP)) == ""


def test_only_the_ops_called_stay_registered() -> None:
    text = left(program(OPS, op("a", "torch.ops.other.thrice.default", R("x"))))
    assert "other::thrice" in text and "mine::twice" not in text


@pytest.mark.parametrize("target", ["torch.ops.aten.relu.default", "torch.ops.higher_order.cond"])
def test_ops_that_every_torch_has_need_no_prelude(target: str) -> None:
    assert left(program(OPS, op("a", target, R("x")))) == ""


def test_the_scripts_folder_stays_as_long_as_a_file_of_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Second: ...\n")
    opening = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
    text = f"{opening}import torch\nfrom mine import Second\n\nclass First(torch.nn.Module):\n    pass\n"
    assert left(program(text, APPLY)) == f"{opening}from mine import Second\n"
    assert left(program(text, CLAMP)) == ""


NO_OPS = [
    ("no prelude", program("", CLAMP)),
    ("all of it is read", program("class Second:\n    pass\n", APPLY)),
    ("text that does not parse", program("class (", APPLY)),
]


@pytest.mark.parametrize("case", [row[1] for row in NO_OPS], ids=[row[0] for row in NO_OPS])
def test_there_is_nothing_to_drop(case: Case) -> None:
    assert PRUNE_PRELUDE.find(case) == ()
