"""The stage table over real programs: a wrong pass that both name, and a healthy program in which neither finds anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from scripts import stage_table
from scripts.bisector import RIGHT

NAMES = ("stage_post_grad_pass_folds_scale", "healthy_gradients_every_rung")


def test_both_are_asked_of_each_program_and_a_second_run_asks_nothing_again(root: Path, tmp_path: Path) -> None:
    out, table = tmp_path / "out", tmp_path / "table.md"
    command = [
        sys.executable,
        str(root / "scripts" / "stage_table.py"),
        *NAMES,
        "--out",
        str(out),
        "--markdown",
        str(table),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr
    rows = stage_table.read_rows(out)
    assert set(rows) == set(NAMES)
    assert all(row.right and row.cheap and row.verdict == RIGHT for row in rows.values()), rows
    assert rows[NAMES[0]].inside and rows[NAMES[0]].calls > 5
    assert "2 programs. minify: the stage right in 2" in table.read_text()
    again = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0 and "0 of 2 cases to run" in again.stderr
    assert stage_table.read_rows(out) == rows
