"""A training step whose failure is looked for in the graphs that AOTAutograd makes of it."""

from __future__ import annotations

from pathlib import Path

from tests.running import Run, report

SCRIPT = """
import torch
import torch._inductor.config

torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.Tanh(), torch.nn.Linear(6, 6), torch.nn.ReLU())


@torch.compile
def step(x):
    return net(x).sum()


step(torch.randn(4, 8)).backward()
"""


def test_the_wrong_op_of_a_training_step_is_found_among_its_aten_ops(tmp_path: Path) -> None:
    script, out = tmp_path / "s.py", tmp_path / "out"
    script.write_text(SCRIPT)
    with Run(tmp_path, "accuracy", script, "--level", "aten", "--out", out, "--workers", 1, "--runs", 1) as run:
        assert run.code() == 0, run.stderr
        assert "region 0 forward: does it fail alone" in run.stderr
    row = report(out)
    assert (row["outcome"], row["reduced"]["ops"], row["part"]) == ("reduced", 1, "forward")
    assert "relu" in (out / "repro.py").read_text()
