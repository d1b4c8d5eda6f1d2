"""`minify.minify(fn, inputs)` from start to end, with a backend of the test's own that is wrong: no C++ is compiled."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from minify import NoFailure, UsageError, minify
from minify.errors import CHECK_BAD, EXIT_NO_FAILURE, EXIT_REDUCED, EXIT_STOPPED_EARLY


def wrong_relu(module: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """A backend whose relu adds one."""
    for node in list(module.graph.nodes):
        if node.target in (torch.relu, torch.nn.functional.relu):
            with module.graph.inserting_after(node):
                plus = module.graph.call_function(torch.add, (node, 1))
            node.replace_all_uses_with(plus, delete_user_cb=lambda user, plus=plus: user is not plus)
    module.recompile()
    return module.forward


def right(module: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    return module.forward


def block(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    hidden = torch.exp(x @ weight).cos() * 0.5
    return torch.relu(hidden).sin() + x.mean()


INPUTS = (torch.randn(6, 6, generator=torch.Generator().manual_seed(0)), torch.eye(6))


def test_a_wrong_backend_is_reduced_to_the_one_op_it_gets_wrong(tmp_path: Path) -> None:
    told: list[str] = []
    report = minify(block, INPUTS, backend=wrong_relu, workers=1, out=tmp_path / "out", tell=told.append)
    assert (report.exit_code, report.outcome) == (EXIT_REDUCED, "reduced"), report.message
    assert report.one_minimal and report.original["ops"] > 5 and report.reduced["ops"] == 1
    assert report.stage == "the backend `wrong_relu`"
    assert any("reducing" in text for text in told)
    assert report.repro is not None and "def wrong_relu" in report.repro.read_text()
    checked = subprocess.run(
        [sys.executable, str(report.repro)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert checked.returncode == CHECK_BAD, checked.stderr


def test_a_right_backend_shows_no_failure_and_the_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(NoFailure, match="right result"):
        minify(block, INPUTS, backend=right, workers=1, out=tmp_path / "out")
    assert json.loads((tmp_path / "out" / "report.json").read_text())["exit_code"] == EXIT_NO_FAILURE


def test_a_budget_that_runs_out_before_anything_is_confirmed_is_reported_not_raised(tmp_path: Path) -> None:
    report = minify(block, INPUTS, backend=wrong_relu, workers=1, budget=0.0, out=tmp_path / "out")
    assert (report.exit_code, report.stopped_by) == (EXIT_STOPPED_EARLY, "budget")
    assert json.loads((tmp_path / "out" / "report.json").read_text())["stopped_by"] == "budget"


@pytest.mark.parametrize(
    ("fn", "inputs", "how"),
    [(3, (), {}), (block, INPUTS[0], {}), (block, "xw", {}), (block, INPUTS, {"kind": "speed"})],
    ids=["fn", "a bare tensor", "text", "kind"],
)
def test_arguments_that_make_no_sense_are_refused_before_a_folder_is_made(
    fn: Any, inputs: Any, how: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        minify(fn, inputs, **how)
    assert list(Path.cwd().iterdir()) == []
