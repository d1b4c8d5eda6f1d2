"""What the command line refuses, and how it leaves: one line on stderr and the exit code of README's table."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from minify import cli
from minify.errors import MinifyError, NoFailure, PassBug, Stopped, Unstable, UsageError, WorkerBug
from minify.progress import counted
from minify.report import Report
from minify.runs import RunFolder
from minify.verdict import Signature
from tests.reducing import line


def minify(*args: object) -> Result:
    return CliRunner().invoke(cli.main, [str(arg) for arg in args])


def lines(result: Result) -> list[str]:
    return result.stderr.splitlines()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_text("raise SystemExit")
    return path


def ending_with(monkeypatch: pytest.MonkeyPatch, outcome: BaseException | Report) -> None:
    """Let a run end that way."""

    def run(*_: object) -> list[Report]:
        if isinstance(outcome, BaseException):
            raise outcome
        return [outcome]

    monkeypatch.setattr(cli, "_run", run)


@pytest.mark.parametrize("command", ["accuracy", "crash"])
@pytest.mark.parametrize("name", ["missing.py", "."])
def test_a_script_that_is_no_file_is_refused_before_a_folder_is_made(command: str, name: str, tmp_path: Path) -> None:
    result = minify(command, name)
    assert result.exit_code == 2
    assert lines(result) == [f"minify: no script at {name}; give the path of a Python file"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--rtol", "big"),
        ("--rtol", "nan"),
        ("--atol", "-1e-3"),
        ("--atol", "inf"),
        ("--timeout", "soon"),
        ("--timeout", "0"),
        ("--timeout", "-3s"),
        ("--budget", "5 parsecs"),
        ("--budget", "nan"),
        ("--budget", "m"),
        ("--budget", ""),
        ("--region", "-1"),
        ("--region", "first"),
        ("--workers", "0"),
        ("--runs", "0"),
        ("--reference", "fp8"),
        ("--metric-tol", "-1"),
        ("--metric-tol", "nan"),
        ("--nonsense", "1"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused(option: str, value: str, script: Path) -> None:
    result = minify("accuracy", script, option, value)
    assert result.exit_code == 2
    assert option in lines(result)[-1] or "is no t" in lines(result)[-1]
    assert not Path("minify-out").exists()


@pytest.mark.parametrize(
    "options", [["--metric", "none.py:f"], ["--metric", "none_such:f"], ["--metric", "f"], ["--metric-tol", "1"]]
)
def test_a_metric_that_is_not_there_is_refused_in_one_line_before_a_folder_is_made(
    options: list[str], script: Path
) -> None:
    result = minify("accuracy", script, *options)
    assert (result.exit_code, len(lines(result))) == (2, 1) and options[0] in result.stderr
    assert not Path("minify-out").exists()


def test_a_metric_is_kept_in_the_request_by_a_name_that_holds_anywhere(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ending_with(monkeypatch, NoFailure("none"))
    minify("accuracy", script, "--metric", "net.py:top1", "--metric-tol", "1e-2", "--out", tmp_path / "out")
    request = RunFolder(tmp_path / "out").load_request()
    assert (request.metric, request.metric_tol) == (f"{script}:top1", 0.01)
    assert (request.plan(tmp_path).metric, request.plan(tmp_path).metric_tol) == (f"{script}:top1", 0.01)
    manner = request.manner(tmp_path)
    assert (manner.metric, manner.metric_tol) == (f"{script}:top1", 0.01)


def test_a_crash_has_no_metric(script: Path) -> None:
    assert minify("crash", script, "--metric", "net.py:top1").exit_code == 2


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("1.5s", 1.5), ("5m", 300), ("2h", 7200)])
def test_times_are_read_with_their_unit(text: str, seconds: float) -> None:
    assert cli.Seconds().convert(text, None, None) == seconds


def test_a_full_out_is_refused(script: Path, tmp_path: Path) -> None:
    result = minify("accuracy", script, "--out", tmp_path)
    assert result.exit_code == 2
    assert lines(result) == [f"minify: output folder {tmp_path} is not empty; give --out a new folder"]


def test_a_resume_of_no_run_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        result = minify("resume", folder)
        assert result.exit_code == 2
        assert len(lines(result)) == 1
        assert f"{folder} is not the folder of a minify run" in result.stderr


def test_a_check_of_a_missing_file_cannot_tell() -> None:
    result = minify("check", "missing.py")
    assert result.exit_code == 125
    assert lines(result) == ["cannot tell: missing.py"]
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NoFailure("none\nhere", "look elsewhere"), 1),
        (UsageError("bad value"), 2),
        (Unstable("now and then"), 4),
        (PassBug("pass broke"), 70),
        (WorkerBug("worker broke"), 70),
    ],
)
def test_every_expected_error_is_one_line_and_its_own_exit_code(
    error: MinifyError, code: int, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending_with(monkeypatch, error)
    result = minify("accuracy", script)
    assert (result.exit_code, result.stdout) == (code, "")
    assert lines(result) == [f"minify: {' '.join(str(error).split())}"]


@pytest.mark.parametrize("error", [Stopped("budget"), KeyboardInterrupt()])
def test_a_run_ended_too_early_says_how_to_go_on(
    error: BaseException, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending_with(monkeypatch, error)
    result = minify("accuracy", script, "--out", tmp_path / "out")
    assert (result.exit_code, result.stdout, len(lines(result))) == (3, "", 1)
    assert f"`minify resume {tmp_path / 'out'}`" in result.stderr


def test_a_full_disk_is_one_line_and_usage(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ending_with(monkeypatch, OSError(28, "No space left on device"))
    result = minify("accuracy", script)
    assert (result.exit_code, len(lines(result))) == (2, 1)
    assert result.stderr.startswith("minify: No space left on device: ")


def test_a_bug_of_ours_is_never_taken_for_no_such_failure(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ending_with(monkeypatch, ZeroDivisionError("oops"))
    result = minify("accuracy", script)
    assert (result.exit_code, len(lines(result))) == (70, 1)
    (told,) = tmp_path.glob("minify_bug_*.txt")
    assert str(told) in result.stderr
    assert "ZeroDivisionError: oops" in told.read_text()


def report(folder: Path, code: int = 0) -> Report:
    sizes = {"ops": 1, "inputs": 1, "elements": 1, "recorded_inputs": 0}
    signature = Signature("accuracy", "value", "value")
    return Report(
        "reduced",
        code,
        "accuracy",
        folder,
        folder / "repro.py",
        signature,
        original=sizes,
        reduced=sizes,
        verified={"runs": 2},
    )


def test_stdout_holds_the_path_of_the_repro_and_nothing_else(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending_with(monkeypatch, report(tmp_path, code=3))
    result = minify("accuracy", script)
    assert (result.exit_code, result.stdout) == (3, f"{tmp_path / 'repro.py'}\n")


def test_stdout_is_the_report_with_json(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ending_with(monkeypatch, report(tmp_path))
    result = minify("accuracy", script, "--json")
    row: dict[str, Any] = json.loads(result.stdout)
    fields = """schema outcome exit_code kind signature stage original reduced repro_lines queries cache_hits slipped
        also_found seconds verified one_minimal stopped_by decisive passes versions"""
    assert set(fields.split()) <= set(row)
    assert set(row["original"]) == {"ops", "inputs", "elements", "recorded_inputs"}


def test_arguments_after_two_dashes_are_the_scripts_own(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending_with(monkeypatch, report(tmp_path))
    minify("accuracy", script, "--out", tmp_path / "out", "--", "-x", "--out", "ü")
    saved = json.loads((tmp_path / "out" / "request.json").read_text())
    assert saved["args"] == ["-x", "--out", "ü"]


# --- the stage alone ------------------------------------------------------------------------------------------------------


def rung(stage: str, outcome: str, **facts: Any) -> dict[str, Any]:
    numbers = {"max_abs": 0.5, "max_rel": 0.25, "excess": 1e4, "eager_abs": 1e-7}
    return {"stage": stage, "outcome": outcome, "numbers": numbers, "seconds": 1.25, "cached": False,
            "digest": f"{stage.lower():x<12}f00d", **facts}  # fmt: skip


def localised(folder: Path, stage: str = "Inductor", code: int = 0, **facts: Any) -> Report:
    rows = (rung("eager", "passes", numbers=None), rung("Inductor", "fails", cached=True))
    pair = {"fails": rows[1]["digest"], "passes": rows[0]["digest"]} if stage else {}
    given = {"stage": stage, "stage_pair": pair, "ladder": rows, "signature": Signature("accuracy", "value", "value")}
    return Report("localised" if stage else "no divergence", code, "accuracy", folder, **given | facts)


def test_stage_prints_the_stage_on_stdout_and_the_ladder_on_stderr(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending_with(monkeypatch, localised(tmp_path, notes=("it passes again at Inductor",)))
    result = minify("stage", script)
    assert (result.exit_code, result.stdout) == (0, "Inductor\n")
    assert lines(result)[:5] == [
        "stage     answer  max abs  max rel  excess  eager's own  seconds         query",
        "eager     passes        -        -       -            -      1.2  eagerxxxxxxx",
        "Inductor  fails       0.5     0.25   1e+04        1e-07   cached  inductorxxxx",
        "with Inductor it fails (inductorxxxx), without it passes (eagerxxxxxxx)",
        "note: it passes again at Inductor",
    ]


def test_stage_of_a_healthy_program_says_so_on_stdout(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending_with(monkeypatch, localised(tmp_path, "", 1, message="region 0 gives the right result"))
    result = minify("stage", script)
    assert (result.exit_code, result.stdout) == (1, "no divergence\n")
    assert lines(result)[-1] == "minify: region 0 gives the right result"
    assert "without it passes" not in result.stderr


def test_stage_prints_its_report_with_json(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ending_with(monkeypatch, localised(tmp_path))
    row = json.loads(minify("stage", script, "--json").stdout)
    assert row["stage"] == "Inductor" and set(row["stage_pair"]) == {"fails", "passes"}
    assert [one["stage"] for one in row["ladder"]] == ["eager", "Inductor"]


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (NoFailure("compiles nothing"), 1, "minify: compiles nothing"),
        (Unstable("now and then"), 4, "minify: now and then"),
        (Stopped("budget"), 3, "minify: stopped (budget) before a stage was named; run it again"),
        (KeyboardInterrupt(), 3, "minify: interrupted; run it again"),
    ],
)
def test_every_other_ending_of_stage_is_one_line_and_its_own_exit_code(
    error: BaseException, code: int, told: str, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending_with(monkeypatch, error)
    result = minify("stage", script)
    assert (result.exit_code, result.stdout, lines(result)) == (code, "", [told])


def test_one_row_asked_again_prints_its_table_and_answers_as_git_bisect_wants(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def rerun(request: Any, kinds: tuple[str, ...], chosen: Any, *_: object) -> Report:
        asked.append((request.kind, kinds, chosen.rung, str(chosen.ablation)))
        rows = ("nothing off", "fails"), (str(chosen.ablation), "passes")
        table = tuple({"left_out": left} | rung("x", outcome) for left, outcome in rows)
        return Report("passes", 0, "accuracy", tmp_path, ablations=table, message="so it is")

    monkeypatch.setattr("minify.rerun.rerun", rerun)
    result = minify(
        "stage", script, "--kind", "accuracy", "--off", "fusion:a,b", "--only", "pass:p", "--rung", "Inductor"
    )
    assert asked == [("accuracy", ("accuracy",), "Inductor", "--off fusion:a,b --only pass:p")]
    assert (result.exit_code, result.stdout) == (0, "passes\n")
    assert [line.split("  ")[0] for line in lines(result)] == [
        "left out", "nothing off", "--off fusion:a,b --only pass:p", "minify: so it is"
    ]  # fmt: skip
    refused = minify("stage", script, "--off", "magic")
    assert refused.exit_code == 2 and "nothing is known of a 'magic'" in refused.stderr


def test_stage_prints_what_was_left_out_and_how_to_ask_it_again(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = "minify stage /s.py --off fusion"
    row = {"left_out": "--off fusion", "replay": again} | rung("x", "passes")
    ending_with(monkeypatch, localised(tmp_path, inside="fusion a+b", ablations=(row,)))
    told = lines(minify("stage", script))
    assert "inside Inductor: fusion a+b: with it fails, without it passes, alone it fails" in told
    assert any(line.startswith("--off fusion  passes") for line in told)
    assert f"each row can be asked again, the last by: {again}" in told


def test_stage_refuses_what_it_cannot_use(script: Path) -> None:
    assert minify("stage", "missing.py").exit_code == 2
    assert minify("stage", script, "--kind", "slow").exit_code == 2
    assert minify("stage", script, "--interesting", "a:b").exit_code == 2, "nothing is reduced"
    assert not Path("minify-out").exists()


@pytest.mark.parametrize(("given", "kinds"), [((), ("accuracy", "crash")), (("--kind", "crash"), ("crash",))])
def test_stage_looks_for_wrong_results_and_then_for_crashes_unless_told(
    given: tuple[str, ...], kinds: tuple[str, ...], script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, tuple[str, ...]]] = []

    def look(request: Any, kinds: tuple[str, ...], *_: object) -> Report:
        asked.append((request.kind, kinds))
        return localised(tmp_path)

    monkeypatch.setattr("minify.locate.locate", look)
    assert minify("stage", script, *given).exit_code == 0
    assert asked == [(kinds[0], kinds)]


@pytest.mark.parametrize(
    ("count", "noun", "told"),
    [
        (1, "query", "1 query"),
        (0, "query", "0 queries"),
        (2, "query", "2 queries"),
        (1, "op", "1 op"),
        (3, "op", "3 ops"),
    ],
)
def test_one_is_told_in_the_singular(count: int, noun: str, told: str) -> None:
    assert counted(count, noun) == told


def test_the_last_line_of_a_run_counts_in_the_singular_where_there_is_one(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending_with(monkeypatch, dataclasses.replace(report(tmp_path), queries=1, one_minimal=True, edits_tried=1))
    told = lines(minify("accuracy", script))[-1]
    assert "1 -> 1 op," in told and "1-minimal (1 edit tried)" in told and "1 query," in told


def test_the_live_line_counts_in_the_singular_where_there_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    oracle = SimpleNamespace(queries=1, cache_hits=0)
    session: Any = SimpleNamespace(oracle=oracle, counts={}, best=line("torch.neg"), working_on="screen")
    screen = cli.Screen()
    screen._last = -60.0
    screen.searching(session)
    assert "screen: 1 op, 1 query, 0 cached" in capsys.readouterr().err
