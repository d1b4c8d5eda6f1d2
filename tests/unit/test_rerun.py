"""A row asked again: its command line says what its question was, and what the answer is taken for."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import click
import pytest

from minify import cli, diagnosis, rerun
from minify import locate as locating
from minify.ablation import COMPILED, WATCHED, Ablation, alone, combined, without
from minify.attempt import Attempt
from minify.baseline import Baseline
from minify.capture.script import Suspect
from minify.diagnosis import Diagnosis, stage_command
from minify.errors import NoFailure, Stopped, Unstable, UsageError
from minify.localize import Localised, Rung
from minify.localize.inside import Inside, look_inside
from minify.report import Report
from minify.runs import Request, RunFolder, StopFlag
from minify.verdict import Observation, Outcome
from tests.fake_oracle import FakeCompiler
from tests.reducing import WRONG_VALUE, line

CASE = line("torch.neg", "torch.exp")
PARTS = {"pass": ("post_grad.it's#2", "q"), "lowering": ("a", "b"), "fusion": ("op1+op2", "op2+op3")}
REQUEST = Request("accuracy", "/at/my script.py", ("-v", "a b"), atol=1e-3, dynamic=False, mode="max-autotune")


def read_back(command: str) -> tuple[rerun.Chosen, dict[str, Any]]:
    """What `minify stage` makes of a command line: the question, and the rest of what it is given."""
    words = shlex.split(command)
    if words[0] == "cd":
        assert words[2] == "&&"
        words = words[3:]
    assert words[:2] == ["minify", "stage"]
    given = cli.stage.make_context("stage", words[2:]).params
    return rerun.chosen(given["rung"], [(f"--{flag}", text) for flag in ("off", "only") for text in given[flag]]), given


def looked(predicate: Callable[[frozenset[str]], Any], **how: Any) -> Inside:
    return look_inside(CASE, WRONG_VALUE, FakeCompiler(PARTS, predicate, **how))


def told(inside: Inside, request: Request = REQUEST, repro: Path | None = None) -> Report:
    rungs = (Rung("eager", "passes", digest="0"), Rung("Inductor's extern calls", "passes", digest="1"))
    failing = Rung("Inductor", "fails", digest="2")
    located = Localised("Inductor", (*rungs, failing, Rung("CUDA graphs", "fails", digest="3")), failing, rungs[1])
    report = Report("localised", 0, "accuracy", Path("/out"), repro=repro)
    return Diagnosis(located, inside).told(report, request)


@pytest.mark.parametrize("repro", [None, Path("/out of it/repro.py")])
def test_the_command_of_each_row_is_read_back_as_the_question_that_it_was(repro: Path | None) -> None:
    inside = looked(lambda on: {"fusion:op1+op2", "fusion:op2+op3"} <= on or "pass:q" not in on, dies="running")
    report = told(inside, repro=repro)
    assert len(report.ladder) == 4 and {row.ablation for row in inside.table if row.digest} > {WATCHED, COMPILED}
    for row in report.ladder:
        chosen, given = read_back(cast(str, row["replay"]))
        assert chosen == rerun.Chosen(cast(str, row["stage"]))
        assert given["script"] == (repro or Path("/at/my script.py"))
    for asked, row in zip(inside.table, report.ablations, strict=True):
        if not asked.digest:
            assert row["replay"] == "", "nothing was asked"
            continue
        assert read_back(cast(str, row["replay"]))[0] == rerun.Chosen("Inductor", asked.ablation)


def test_a_script_is_run_as_it_was_and_in_the_same_folder_and_a_repro_needs_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = stage_command(REQUEST, None, ("--off", "fusion"))
    assert command.startswith(f"cd {tmp_path} && minify stage '/at/my script.py' ")
    _, given = read_back(command)
    expected = {"args": ("-v", "a b"), "atol": 1e-3, "dynamic": False, "mode": "max-autotune", "kind": "accuracy"}
    assert {key: given[key] for key in expected} == expected
    assert stage_command(REQUEST, Path("/r.py"), ("--off", "fusion")) == (
        "minify stage /r.py --kind accuracy --atol 0.001 --off fusion"
    )


def test_every_option_that_a_request_has_of_a_script_is_on_its_command_line() -> None:
    """But those of how long and how fast, and those of a reduction."""
    changed = dataclasses.replace(
        REQUEST, region=3, level="aten", device="cuda", backend="aot_eager", train=True, rtol=0.5, reference="fp64", timeout=9.0
    )  # fmt: skip
    _, given = read_back(stage_command(changed, None))
    for name in ("region", "level", "device", "backend", "train", "rtol", "reference", "timeout"):
        assert given[name] == getattr(changed, name), name


@pytest.mark.parametrize(
    ("rung", "words", "asked"),
    [
        ("Inductor", [], rerun.Chosen("Inductor")),
        ("", [("--off", "fusion:a,b")], rerun.Chosen("", without("fusion", ["a", "b"]))),
        ("", [("--off", "fusion:a"), ("--off", "fusion:b")], rerun.Chosen("", without("fusion", ["a", "b"]))),
        (
            "",
            [("--off", "pass"), ("--only", "fusion:a")],
            rerun.Chosen("", combined([alone("pass"), alone("fusion", ["a"])])),
        ),
    ],
)
def test_several_parts_are_left_out_of_one_question(
    rung: str, words: list[tuple[str, str]], asked: rerun.Chosen
) -> None:
    assert rerun.chosen(rung, words) == asked


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([("--off", "magic")], "nothing is known of a 'magic'"),
        ([("--only", "fusion")], "--only KIND:NAME"),
        ([("--off", "fusion:a"), ("--only", "fusion:b")], "of one kind"),
    ],
)
def test_what_cannot_be_left_out_is_a_matter_of_usage(words: list[tuple[str, str]], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        rerun.chosen("", words)


class Quiet:
    def step(self, text: str) -> None:
        return None

    def searching(self, session: object) -> None:
        return None


class Compiler(FakeCompiler):
    cache_hits, rate, timeout = 0, 1.0, 60.0


@pytest.fixture
def asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Report]:
    """The report of one question put to a compiler of `PARTS` with a rule, of a region that fails or of which `said` is said."""

    def ask(
        rule: Callable[[frozenset[str]], Any],
        ablation: Ablation = WATCHED,
        rung: str = "",
        said: NoFailure | Unstable | None = None,
    ) -> Report:
        def first(request: Request, kinds: Sequence[str], folder: RunFolder, *rest: Any) -> Report:
            stop, progress, then = rest
            if isinstance(said, Unstable):
                raise said
            baseline = Baseline(CASE, Observation("compare"), WRONG_VALUE, 2, 2)
            judged = locating.Judged("accuracy", Suspect(0, tmp_path / "c", True), CASE, said or baseline)
            this = Attempt(request, folder, cast(Any, Compiler(PARTS, rule)), stop, progress)
            return cast(Report, then(this, judged))

        monkeypatch.setattr(rerun, "first_judged", first)
        folder = RunFolder(tmp_path)
        return rerun.rerun(
            Request("accuracy", "/s.py"), ("accuracy",), rerun.Chosen(rung, ablation), folder, StopFlag(), Quiet()
        )

    return ask


@pytest.mark.parametrize(
    ("ablation", "code", "answers"),
    [
        (alone("fusion"), 0, ["fails", "passes"]),
        (without("fusion", ["op1+op2"]), 0, ["fails", "passes"]),
        (without("fusion", ["op2+op3"]), 1, ["fails", "fails"]),
        (alone("fusion", ["op1+op2"]), 1, ["fails", "fails"]),
        (alone("pass"), 125, ["fails", "slipped"]),
    ],
)
def test_the_answer_is_told_beside_that_with_nothing_left_out(
    ablation: Ablation, code: int, answers: list[str], asked_again: Callable[..., Report]
) -> None:
    def rule(on: frozenset[str]) -> bool | Outcome:
        return "fusion:op1+op2" in on if "pass:q" in on else Outcome.SLIPPED

    report = asked_again(rule, ablation)
    assert [row["outcome"] for row in report.ablations] == answers and report.outcome == answers[-1]
    assert report.exit_code == code and report.ladder == ()


def test_a_rung_is_asked_by_itself(asked_again: Callable[..., Report]) -> None:
    report = asked_again(lambda on: True, rung="aotautograd")
    assert [(row["stage"], row["outcome"]) for row in report.ladder] == [("AOTAutograd", "fails")]
    assert report.exit_code == 1 and report.ablations == ()
    with pytest.raises(UsageError, match=r"no rung 'attic'.*it has eager, Dynamo"):
        asked_again(lambda on: True, rung="attic")


@pytest.mark.parametrize(
    ("rule", "ablation", "said", "message"),
    [
        (lambda on: True, without("fusion", ["op7"]), None, "the compiler came to no fusion op7; there are: op1+op2, op2+op3"),
        (lambda on: False, alone("fusion"), None, "with nothing left out it does not fail: passes"),
        (lambda on: True, alone("fusion"), NoFailure("it is healthy"), "it is healthy"),
        (lambda on: True, alone("fusion"), Unstable("it comes and goes"), "it comes and goes"),
    ],
)  # fmt: skip
def test_an_answer_that_says_nothing_of_what_was_left_out_is_none(
    rule: Any, ablation: Ablation, said: Any, message: str, asked_again: Callable[..., Report]
) -> None:
    report = asked_again(rule, ablation, said=said)
    assert (report.outcome, report.exit_code, report.message) == ("cannot tell", 125, message)


def test_a_run_out_of_budget_cannot_tell(asked_again: Callable[..., Report]) -> None:
    def rule(on: frozenset[str]) -> bool:
        raise Stopped("budget")

    report = asked_again(rule, alone("fusion"))
    assert (report.exit_code, report.message) == (125, "stopped (budget)")


def test_diagnosis_says_in_which_folder_a_script_was_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a b").mkdir()
    monkeypatch.chdir(tmp_path / "a b")
    assert diagnosis.in_this_folder("x") == f"cd '{tmp_path / 'a b'}' && x"


def test_stage_takes_each_option_of_a_row() -> None:
    assert {"off", "only", "rung"} <= {parameter.name for parameter in cast(click.Command, cli.stage).params}
