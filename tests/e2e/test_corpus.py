"""Real failing programs, from the user's script to a repro that stands alone. One of each kind; the rest is `make corpus`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CASES = (
    "argmax_mean_channels_last",
    "complex_angle_stride",
    "zerotensor_segfault",
)
ONE_OP = "complex_angle_stride"  # its region is never asked as a whole


@pytest.mark.parametrize("name", CASES)
def test_a_failing_program_comes_down_to_its_hand_made_size(name: str, root: Path, tmp_path: Path) -> None:
    expected = tomllib.loads((root / "corpus" / name / "expected.toml").read_text())
    out = tmp_path / "out"
    command = [
        sys.executable,
        "-m",
        "minify",
        expected["command"],
        str(root / "corpus" / name / "model.py"),
        "--out",
        str(out),
    ]
    done = subprocess.run([*command, "--runs", "1"], capture_output=True, text=True, timeout=1500)
    assert done.returncode == expected["exit_code"], done.stderr
    report = json.loads((out / "report.json").read_text())
    assert report["reduced"]["ops"] <= expected["max_ops"]
    assert report["verified"] == {"runs": 1, "reproduced": 1, "alone": True}
    assert report["one_minimal"]
    assert ("does it fail alone, in a fresh process" in done.stderr) == (name != ONE_OP)
    assert report["repro_lines"] < 60
    assert done.stdout.strip() == str(out / "repro.py"), "stdout is the path of the repro and nothing else"
    assert not [
        line for line in (out / "repro.py").read_text().splitlines() if re.match(r"\s*(from|import) minify", line)
    ]


def test_what_decides_is_told_with_a_program_that_passes_and_certified_again(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = root / "corpus" / "complex_angle_stride" / "model.py"
    command = [sys.executable, "-m", "minify", "accuracy", str(script), "--runs", "1", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr
    report = json.loads((out / "report.json").read_text())
    assert any("is a transpose" in fact and "contiguous passes" in fact for fact in report["decisive"])
    assert "Decisive: " in (out / "repro.py").read_text()
    assert all(counts["sites"] for counts in report["certificate"].values())
    alone = subprocess.run([sys.executable, "-I", report["passing"]], capture_output=True, text=True, timeout=600)
    assert alone.returncode == 0, alone.stdout + alone.stderr
    again = subprocess.run(
        [sys.executable, "-m", "minify", "certify", str(out)], capture_output=True, text=True, timeout=900
    )
    assert (again.returncode, again.stdout) == (0, "certified\n"), again.stderr


@pytest.mark.parametrize("name", ["healthy_bf16_autocast_mlp", "healthy_bf16_argmax_ties"])
def test_a_healthy_program_has_no_such_failure(name: str, root: Path, tmp_path: Path) -> None:
    script = root / "corpus" / name / "model.py"
    command = [sys.executable, "-m", "minify", "accuracy", str(script), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
