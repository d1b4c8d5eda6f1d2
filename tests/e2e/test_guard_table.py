"""One case of the table of guards, from the user's program to the two repros that lost its fact."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CASE = "offset_input_backend"


def test_a_fact_is_kept_with_every_guard_and_lost_with_one_off(root: Path, tmp_path: Path) -> None:
    out, table = tmp_path / "out", tmp_path / "guards.md"
    command = [sys.executable, str(root / "scripts" / "guard_table.py"), CASE, "--out", str(out)]
    done = subprocess.run([*command, "--markdown", str(table)], capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = (line for line in table.read_text().splitlines() if line.startswith(f"| {CASE} |"))
    assert "elements into its storage; offset 0 passes" in line
    assert "| 1 ops, 1 inputs | shows |" in line
    assert line.endswith("| passes | passes | lost |")
    for repro in out.glob(f"{CASE}/naive-*/*/repro.py"):
        assert "import minify" not in repro.read_text()
    again = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert again.returncode == 0, again.stderr
    assert "1 lose it" in again.stdout, "a case that was through is read back"
