"""Whatever kills, fills up, hangs or interrupts a run: a clear end, no process or folder left, and a way to go on."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running import WRONG_RELU, Run, report

OPTIONS = ("--workers", 2, "--runs", 1)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A search of a few seconds whatever the machine: each compile takes half a second of sleep."""
    return write(tmp_path / "wrong.py", WRONG_RELU.format(seconds=0.5))


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def start(script: Path, out: Path, *options: object, command: str = "accuracy") -> Run:
    return Run(out.parent, command, script, "--out", out, *OPTIONS, *options)


def resume(out: Path, folder: Path) -> Run:
    return Run(folder, "resume", out)


def answers(out: Path) -> int:
    return len(list((out / "verdicts").glob("*")))


def assert_relu_alone(out: Path) -> None:
    row = report(out)
    assert (row["outcome"], row["reduced"]["ops"], row["one_minimal"]) == ("reduced", 1, True)
    assert row["verified"] == {"runs": row["verified"]["runs"], "reproduced": row["verified"]["runs"], "alone": True}


def test_workers_killed_in_the_middle_of_a_query_cost_nothing_but_time(script: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with start(script, out) as run:
        run.until_it_says("reducing").until(lambda: bool(run.processes("minify.worker")))
        for _ in range(2):  # as the kernel does when memory is short
            time.sleep(0.3)
            for pid in run.processes("minify.worker"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        assert run.code() == 0, run.stderr
        assert run.stdout == f"{out / 'repro.py'}\n"
    assert_relu_alone(out)


def test_a_run_killed_in_its_search_goes_on_where_it_was(script: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with start(script, out) as run:
        run.until_it_says("reducing").until(lambda: answers(out) >= 6)
        run.send(signal.SIGKILL)
        assert run.code() == -signal.SIGKILL
    known = answers(out)
    with resume(out, tmp_path) as run:
        assert run.code() == 0, run.stderr
    assert_relu_alone(out)
    row = report(out)
    assert row["cache_hits"] >= known - 2, "what was answered is not asked again"
    assert row["queries"] <= answers(out) - known + 2
    assert "under watch" not in run.stderr, "nor is the script run again"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", disk], capture_output=True).returncode:
        pytest.skip("may not mount a small disk")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def fill(disk: Path) -> Path:
    ballast = disk / "ballast"
    with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as stream:
        while True:
            stream.write(bytes(4096))
    return ballast


def test_a_full_disk_ends_the_run_with_nothing_half_written(script: Path, tmp_path: Path, small_disk: Path) -> None:
    out = small_disk / "out"
    with Run(tmp_path, "accuracy", script, "--out", out, *OPTIONS) as run:
        run.until_it_says("reducing")
        ballast = fill(small_disk)
        assert run.code() == 2, run.stderr
        assert "No space left on device" in run.last_line or "no space is left" in run.last_line
        assert run.stdout == ""
    for path in (out / "verdicts").iterdir():
        pickle.loads(path.read_bytes())
    ballast.unlink()
    with resume(out, tmp_path) as run:
        assert run.code() == 0, run.stderr
    assert_relu_alone(out)


def test_a_disk_that_is_full_from_the_start_is_no_healthy_program(
    script: Path, tmp_path: Path, small_disk: Path
) -> None:
    waiting = 'from pathlib import Path\nwhile not Path("go").exists():\n    time.sleep(0.05)\n'
    before, after = script.read_text().split("torch.manual_seed")
    write(script, f"{before}{waiting}torch.manual_seed{after}")
    with Run(tmp_path, "accuracy", script, "--out", small_disk / "out", *OPTIONS) as run:
        run.until(lambda: (small_disk / "out" / "script.log").exists())
        fill(small_disk)
        (tmp_path / "go").touch()
        assert run.code() == 2, run.stderr
        assert "No space left on device" in run.last_line


def test_a_compiled_run_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    text = WRONG_RELU.format(seconds=0).replace("return gm.forward", "return lambda *args: time.sleep(1e6)")
    with start(write(tmp_path / "hangs.py", text), tmp_path / "out", "--timeout", "2s") as run:
        assert run.code() == 1, run.stderr
        assert "region 0 of hangs.py is still running after 2 s" in run.last_line
        assert "minify crash" in run.last_line


def test_ctrl_c_while_the_script_runs_says_how_to_go_on(tmp_path: Path) -> None:
    script, out = (
        write(tmp_path / "slow.py", 'print("up", flush=True)\nimport time\ntime.sleep(1e6)\n'),
        tmp_path / "out",
    )
    with start(script, out) as run:
        run.until(lambda: (out / "script.log").exists() and "up" in (out / "script.log").read_text())
        run.send(signal.SIGINT)
        assert run.code(within=60) == 3
        assert (
            run.last_line
            == f"minify: stopped (interrupted) before a failure was confirmed; `minify resume {out}` goes on"
        )
        assert run.stdout == ""


def test_ctrl_c_before_the_failure_is_confirmed_says_how_to_go_on(script: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with start(write(script, WRONG_RELU.format(seconds=5)), out) as run:
        run.until_it_says("fail alone?")
        run.send(signal.SIGINT)
        assert run.code(within=60) == 3
        assert (
            run.last_line
            == f"minify: stopped (interrupted) before a failure was confirmed; `minify resume {out}` goes on"
        )


@pytest.mark.parametrize(("number", "reason"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")])
def test_an_interrupted_search_gives_the_best_so_far(
    number: signal.Signals, reason: str, script: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with start(script, out) as run:
        run.until_it_says("reducing")
        run.send(number)
        assert run.code() == 3, run.stderr
        assert run.stdout == f"{out / 'repro.py'}\n"
    row = report(out)
    assert (row["outcome"], row["exit_code"], row["stopped_by"]) == ("stopped early", 3, reason)
    assert row["verified"]["reproduced"] == row["verified"]["runs"] == 1


def test_ctrl_c_while_the_repro_is_verified_lets_it_be_verified(script: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with start(script, out) as run:
        run.until_it_says("verifying")
        run.send(signal.SIGINT)
        assert run.code() == 0, run.stderr
    assert_relu_alone(out)


def test_a_second_ctrl_c_leaves_at_once(script: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with start(write(script, WRONG_RELU.format(seconds=2)), out) as run:
        run.until_it_says("reducing").send(signal.SIGINT)
        run.until_it_says("verifying").send(signal.SIGINT)
        began = time.monotonic()
        assert run.code(within=60) == 3
        assert time.monotonic() - began < 15
        assert run.last_line == f"minify: interrupted; `minify resume {out}` goes on"


def test_a_budget_spent_before_anything_was_found_says_so(script: Path, tmp_path: Path) -> None:
    with start(script, tmp_path / "out", "--budget", "1s") as run:
        assert run.code() == 3
        assert run.last_line.startswith("minify: stopped (budget) before a failure was confirmed")


def test_a_budget_ends_the_search_with_what_there_is(script: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with start(write(script, WRONG_RELU.format(seconds=4)), out, "--budget", "24s") as run:
        assert run.code() == 3, run.stderr
    if run.stdout:  # a slow machine may take as long to get this far
        assert report(out)["stopped_by"] == "budget"
        assert report(out)["verified"]["reproduced"] == 1
