"""The user's own metric from the command line to the repro: what it lets pass, what it makes the search find, and how it may fail."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from minify import NoFailure, minify

OPTIONS = ("--workers", "2", "--runs", "1")
SCRIPT = """
import torch

def rough(gm, example_inputs):
    return lambda *args: [out + 0.01 for out in gm.forward(*args)]

def top(scores):
    return scores.argmax(-1).double().mean()

def labels(scores):
    raise FileNotFoundError("labels.csv")

torch.compile(lambda x: torch.relu(x) + 1, backend=rough)(torch.arange(12.0).reshape(3, 4))
"""


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "minify", *map(str, arguments)], capture_output=True, text=True, timeout=1500
    )


def of_corpus(root: Path, name: str, metric: str, *options: object) -> subprocess.CompletedProcess[str]:
    folder = root / "corpus" / name
    return command("accuracy", folder / "model.py", "--metric", f"{folder / 'metric.py'}:{metric}", *OPTIONS, *options)


def test_the_search_finds_what_changes_the_answers_among_much_that_is_off(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = of_corpus(root, "short_scale_backend", "top1", "--metric-tol", "0.02", "--out", out)
    assert done.returncode == 0, done.stderr
    report = json.loads((out / "report.json").read_text())
    assert (report["reduced"]["ops"], [call.rpartition(".")[2] for call in report["calls"]]) == (1, ["linear"])
    assert report["metric"]["compiled"][0] < report["metric"]["reference"][0] - 0.02
    assert report["signature"]["least"] > 1
    assert "the metric moves (" in (out / "repro.py").read_text()
    again = command("resume", out)
    assert (again.returncode, again.stdout) == (0, done.stdout), again.stderr
    assert json.loads((out / "report.json").read_text())["queries"] == 0
    certified = command("certify", out)
    assert (certified.returncode, certified.stdout) == (0, "certified\n"), certified.stderr


def test_a_quantising_backend_that_changes_no_answer_has_no_such_failure(root: Path, tmp_path: Path) -> None:
    done = of_corpus(root, "healthy_int8_dynamic_backend", "top1", "--metric-tol", "0.02", "--out", tmp_path / "out")
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    told = done.stderr.splitlines()[-1]
    assert "drift, no divergence" in told and "the metric lets it pass (0.9" in told and "in eager" in told


@pytest.mark.parametrize(
    ("metric", "code", "said"),
    [
        ("script.py:top", 1, "the metric lets it pass (3 compiled, 3 in eager, 3 by the reference, tolerance 0)"),
        ("script.py:labels", 2, "script.py:labels raised FileNotFoundError: labels.csv, for the eager outputs (float32[3, 4])"),
        ("script.py:nowhere", 2, "raised KeyError: 'nowhere'"),
        ("beside:nowhere", 2, "module 'beside' has no attribute 'nowhere'"),
    ],
)  # fmt: skip
def test_a_metric_that_is_none_is_one_line(metric: str, code: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "beside.py").touch()
    done = command("accuracy", "script.py", "--metric", metric, "--out", tmp_path / "out", *OPTIONS)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert said in done.stderr.splitlines()[-1] and done.stderr.splitlines()[-1].startswith("minify: ")


def rough_relu(module: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """A backend whose relu adds one, and whose sin adds a thousandth."""
    offsets: dict[Any, float] = {torch.relu: 1.0, torch.sin: 0.001}
    for node in list(module.graph.nodes):
        if node.target in offsets:
            with module.graph.inserting_after(node):
                plus = module.graph.call_function(torch.add, (node, offsets[node.target]))
            node.replace_all_uses_with(plus, delete_user_cb=lambda user, plus=plus: user is not plus)
    module.recompile()
    return module.forward


def scores(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(torch.sin(x).cos() * 0.5) + torch.sin(x * 3) * 0.25


def test_the_api_takes_a_metric_of_a_module_in_the_working_folder(tmp_path: Path) -> None:
    (tmp_path / "measures.py").write_text("def mean(y):\n    return y.double().mean()\n")
    x = (torch.randn(8, 8, generator=torch.Generator().manual_seed(0)),)
    how: dict[str, Any] = {"backend": rough_relu, "workers": 1, "runs": 1, "metric": "measures:mean"}
    with pytest.raises(NoFailure, match=r"drift, no divergence.*the metric lets it pass \(1\."):
        minify(scores, x, metric_tol=2.0, out=tmp_path / "lenient", **how)
    report = minify(scores, x, metric_tol=0.1, out=tmp_path / "strict", **how)
    assert report.exit_code == 0 and [call.rpartition(".")[2] for call in report.calls] == ["relu"], report.calls
    assert report.metric is not None and report.metric.by == pytest.approx(1.0, abs=0.01)
