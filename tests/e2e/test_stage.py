"""`minify stage` as a user runs it: faults put in from outside at known stages, a healthy program, and scripts that raise."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from minify.kernels.finding import INDUCTOR as GENERATED
from tests.running import Run, report

NET = """
def model(x, w):
    return torch.relu(x @ w).sum(-1)


torch.manual_seed(0)
inputs = (torch.randn(4, 8), torch.randn(8, 8))
"""
INJECTED_RELU = f"""
import torch
import torch._inductor.config

torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
{NET}
"""
WRONG_DECOMPOSITION = """
import torch
from torch._inductor.decomposition import register_decomposition


@torch.library.custom_op("stage_test::halved", mutates_args=())
def halved(x: torch.Tensor) -> torch.Tensor:
    return x / 2


@halved.register_fake
def _(x):
    return torch.empty_like(x)


@register_decomposition(torch.ops.stage_test.halved.default)
def decomposed(x):
    return x * 0.51


def model(x):
    return torch.sin(halved(x + 1)) * 2


torch.manual_seed(0)
inputs = (torch.randn(4, 8),)
"""
HEALTHY_DROPOUT = """
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.GELU(), torch.nn.LayerNorm(8))
inputs = (torch.randn(4, 8),)
"""
# As a repro does it: what the compiler raises never leaves the script.
RAISING_BACKEND = """
import sys

import torch


def raising(gm, example_inputs):
    raise NotImplementedError("no kernel for relu")


def fn(x):
    return torch.relu(x) + 1


try:
    torch.compile(fn, backend=raising)(torch.ones(3))
except Exception as error:
    print(error)
    sys.exit(1)
"""
NO_GRAPH = """
import torch


def fn(x):
    if torch.compiler.is_compiling():
        raise ValueError("not while compiling")
    return x + 1


torch.compile(fn, fullgraph=True)(torch.ones(3))
"""
EAGER, DYNAMO, AOT, DECOMPOSED = "eager", "Dynamo", "AOTAutograd", "decompositions"
EXTERN, INDUCTOR = "Inductor's extern calls", "Inductor"


def staged(text: str, folder: Path, *options: object) -> tuple[int, str, str, dict[str, Any]]:
    """Exit code, stdout, stderr and the report of `minify stage` on a script of this text."""
    script, out = folder / "given.py", folder / "out"
    script.write_text(text)
    with Run(folder, "stage", script, "--out", out, "--workers", 2, *options) as run:
        code = run.code()
        return code, run.stdout, run.stderr, report(out)


def answers(row: dict[str, Any]) -> dict[str, str]:
    return {rung["stage"]: rung["outcome"] for rung in row["ladder"]}


def digests(row: dict[str, Any]) -> dict[str, str]:
    return {rung["stage"]: rung["digest"] for rung in row["ladder"]}


@pytest.mark.parametrize(
    ("text", "stage", "passing", "failing"),
    [
        (INJECTED_RELU, INDUCTOR, [EAGER, DYNAMO, AOT, DECOMPOSED, EXTERN], [INDUCTOR]),
        # In lite mode nothing is decomposed, so that the fault cannot show there.
        (WRONG_DECOMPOSITION, DECOMPOSED, [EAGER, DYNAMO, AOT, EXTERN], [DECOMPOSED, INDUCTOR]),
    ],
    ids=["injected relu", "wrong decomposition"],
)
def test_a_fault_at_a_known_stage_is_named_by_two_queries(
    text: str, stage: str, passing: list[str], failing: list[str], tmp_path: Path
) -> None:
    code, stdout, stderr, row = staged(text, tmp_path)
    assert (code, stdout) == (0, f"{stage}\n"), stderr
    assert answers(row) == dict.fromkeys(passing, "passes") | dict.fromkeys(failing, "fails")
    below = list(answers(row))[list(answers(row)).index(stage) - 1]
    assert row["stage_pair"] == {"fails": digests(row)[stage], "passes": digests(row)[below]}
    assert row["kernel"].get("blame", "") == (GENERATED if stage == INDUCTOR else "")
    worst = {rung["stage"]: rung["numbers"]["excess"] for rung in row["ladder"]}
    assert all(worst[name] < 1 for name in passing) and all(worst[name] > 100 for name in failing)
    assert len(row["ladder"]) <= 12 and row["queries"] <= 40
    if stage == INDUCTOR:  # the code of a relu cannot be had otherwise, but that of eager can
        assert row["inside"].startswith("lowering relu") and f"inside {stage}: {row['inside']}" in stderr
        assert {answer["outcome"] for answer in row["ablations"]} >= {"passes", "fails"}
    else:
        assert row["notes"] == [f"it passes again at {EXTERN}"]


def test_a_row_that_is_asked_again_by_its_own_command_gives_the_same_answer_from_anywhere(tmp_path: Path) -> None:
    row = staged(INJECTED_RELU, tmp_path)[3]
    rungs = {one["stage"]: one for one in row["ladder"]}
    left_out = {one["left_out"]: one for one in row["ablations"]}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for number, asked in enumerate((rungs[AOT], left_out["--off lowering:relu"], left_out["nothing off"])):
        command = shlex.split(asked["replay"])
        assert command[:1] == ["cd"] and command[2:5] == ["&&", "minify", "stage"]
        out = elsewhere / str(number)
        with Run(elsewhere, *command[4:], "--out", out) as run:
            code, stderr = run.code(), run.stderr
        again = report(out)
        assert again["ablations"] or again["ladder"], stderr
        (*_, last) = again["ablations"] or again["ladder"]
        assert (last["outcome"], last["digest"]) == (asked["outcome"], asked["digest"])
        assert code == {"passes": 0, "fails": 1}[asked["outcome"]]


def test_a_healthy_program_with_dropout_answers_no_divergence_at_every_rung(tmp_path: Path) -> None:
    code, stdout, stderr, row = staged(HEALTHY_DROPOUT, tmp_path, "--train")
    assert (code, stdout, row["stage"]) == (1, "no divergence\n", ""), stderr
    assert set(answers(row).values()) == {"passes"} and len(row["ladder"]) == 6
    assert all(rung["numbers"]["excess"] < 1 for rung in row["ladder"])


def test_a_crash_that_the_script_catches_is_the_backends(tmp_path: Path) -> None:
    code, stdout, stderr, row = staged(RAISING_BACKEND, tmp_path)
    assert (code, stdout) == (0, "the backend `raising`\n"), stderr
    assert row["kind"] == "crash" and row["signature"]["name"] == "NotImplementedError"
    assert answers(row) == {EAGER: "passes", DYNAMO: "passes", "the backend `raising`": "fails"}


def test_a_failure_before_there_is_a_graph_is_dynamos(tmp_path: Path) -> None:
    code, stdout, stderr, row = staged(NO_GRAPH, tmp_path)
    assert (code, stdout) == (0, "Dynamo\n"), stderr
    assert row["stage_pair"]["passes"].startswith("TORCHDYNAMO_DISABLE=1 python ")
