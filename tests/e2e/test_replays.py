"""A compiler that keeps its first result, as a user meets it: right in the first call, wrong in the next."""

from __future__ import annotations

from pathlib import Path

from tests.running import Run, report

STALE = """
import torch


def keeping(module, example_inputs):
    results = {}

    def run(*args):
        return results.setdefault("first", module(*args))

    return run


def model(x):
    return torch.tanh(x) * 2 + 1


if __name__ == "__main__":
    torch.manual_seed(0)
    compiled = torch.compile(model, backend=keeping)
    for _ in range(3):
        compiled(torch.randn(4, 8))
"""


def test_what_a_later_call_gets_wrong_is_reduced_to_a_repro_with_calls_before_the_one_that_is_checked(
    tmp_path: Path,
) -> None:
    script = tmp_path / "stale.py"
    script.write_text(STALE)
    with Run(tmp_path, "accuracy", script, "--out", tmp_path / "out") as run:
        assert run.code() == 0, run.stderr
    row = report(tmp_path / "out")
    assert row["reduced"]["ops"] == 1
    assert "calls with other values before it; the first call passes" in row["decisive"]
    assert "f(*other_inputs(0))" in (tmp_path / "out" / "repro.py").read_text()
