"""`minify stage`: which region's ladder is climbed, what a script is watched for, and how each ending is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from minify import case as cases
from minify import diagnosis
from minify import locate as locating
from minify.ablation import Ablation, Application, alone, without
from minify.artifacts import CODE, file_name
from minify.attempt import Attempt
from minify.baseline import Baseline
from minify.capture.script import Suspect, Watched
from minify.case import Case
from minify.errors import FailsInDynamo, MinifyError, NoFailure, Stopped, Unstable
from minify.kernels.finding import INDUCTOR, Finding
from minify.kernels.record import from_json
from minify.localize import ladder
from minify.localize.inside import Culprit, Inside, Row
from minify.locate import locate
from minify.report import Report
from minify.runs import Request, RunFolder, StopFlag
from minify.verdict import Divergence, GraphSeen, Observation, Signature
from tests.fake_oracle import FakeOracle
from tests.kernels import one_kernel
from tests.reducing import RAISES, WRONG_VALUE, line

HEALTHY, WRONG, CRASHING = line("torch.exp"), line("torch.relu"), line("torch.sort")
RIGHT = Observation("compare", within=Divergence("output:n0", "value", max_abs=1e-7, excess=0.01))
DIVERGED = Observation("compare", divergences=(Divergence("output:n0", "value", max_abs=0.5, excess=9.0),))
ROWS = (Row(alone("fusion"), "passes", digest="f00"), Row(without("fusion", ["a+b"]), "passes", digest="f01"))


class Answering(FakeOracle):
    """An oracle with a baseline: `WRONG` diverges at Inductor, `CRASHING` raises in it, if asked for that."""

    rate, timeout = 1.0, 60.0

    def __init__(self, kind: str, rate: float) -> None:
        super().__init__(lambda case: self.seen(kind, case))
        self.rate = rate
        self.finding: Finding | None = None
        self.asked_for_kernels: list[Case] = []

    def wrong_kernel(self, case: Case) -> Finding | None:
        self.asked_for_kernels.append(case)
        return self.finding

    def graphs(self, case: Case) -> tuple[GraphSeen, ...]:
        self.queries += 1
        return (GraphSeen("forward", DIVERGED.divergences[0], "relu", "aten.relu.default"),)

    def write_artifacts(self, case: Case, ablation: Ablation | None, folder: Path) -> None:
        self.queries += 1
        folder.mkdir(parents=True)
        (folder / file_name(1, CODE, "")).write_text(f"main()\n{case.settings.mode}\n")

    @staticmethod
    def seen(kind: str, case: Case) -> Observation:
        inductor = case.settings.backend == "inductor" and case.settings.mode is None
        failing = WRONG if kind == "accuracy" else CRASHING
        if not inductor or case.graph != failing.graph:
            return RIGHT
        return DIVERGED if kind == "accuracy" else Observation("compile", crash=RAISES)


class Script:
    """What watching a script shows, by what it is watched for: cases of regions that are suspects, or an error."""

    def __init__(self, folder: Path, shown: dict[str, list[Case] | MinifyError], troubled: bool = False) -> None:
        self.folder = folder
        self.shown = shown
        self.troubled = troubled
        self.watched: list[str] = []
        self.opened: list[str] = []
        self.looked_into: list[Case] = []
        self.inside = Inside(None, (), 0)
        self.stops = False
        self.finding: Finding | None = None
        self.oracles: list[Answering] = []

    def look_inside(self, case: Case, signature: Signature, oracle: object, stage: str) -> Inside:
        self.looked_into.append(case)
        if self.stops:
            raise Stopped("budget")
        return self.inside

    def watch(self, plan: Any, *_: object) -> Watched:
        assert plan.keep
        self.watched.append(plan.kind)
        shown = self.shown.get(plan.kind, [])
        if isinstance(shown, MinifyError):
            raise shown
        suspects = []
        for number, case in enumerate(shown):
            path = self.folder / f"{plan.kind}-{number}.case"
            cases.save(case, path)
            suspects.append(Suspect(number, path, certain=False))
        return Watched(tuple(suspects), (), self.troubled)


@pytest.fixture
def looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Report]:
    """`locate` over a script, its report as it was returned."""

    def look(script: Script, kinds: Sequence[str] = ("accuracy", "crash"), rate: float = 1.0) -> Report:
        def confirm(case: Case, suspect: Suspect, oracle: Answering) -> Baseline:
            seen = oracle.predicate(case)
            assert isinstance(seen, Observation)
            signature = seen.crash or (WRONG_VALUE if seen.divergences else None)
            if signature is None:
                raise NoFailure(f"{suspect} gives the right result in 2 fresh processes")
            return Baseline(case, seen, signature, 8, int(8 * rate))

        @contextmanager
        def opened(request: Request, folder: RunFolder, stop: StopFlag, progress: Any) -> Iterator[Attempt]:
            script.opened.append(request.kind)
            script.oracles.append(Answering(request.kind, rate))
            script.oracles[-1].finding = script.finding
            yield Attempt(request, folder, cast(Any, script.oracles[-1]), stop, progress)

        monkeypatch.setattr(locating, "watch_script", script.watch)
        monkeypatch.setattr(locating, "attempt", opened)
        monkeypatch.setattr(locating.baseline, "confirm", confirm)
        monkeypatch.setattr(diagnosis, "look_inside", script.look_inside)
        (tmp_path / "out").mkdir(exist_ok=True)
        folder = RunFolder(tmp_path / "out")
        return locate(Request("accuracy", "/at/s.py", ("-v",)), kinds, folder, StopFlag(), Quiet())

    return look


class Quiet:
    def step(self, text: str) -> None:
        return None

    def searching(self, session: object) -> None:
        return None


def test_the_stage_of_a_wrong_result_is_named_and_the_script_not_watched_for_crashes(
    tmp_path: Path, looked: Callable[..., Report]
) -> None:
    script = Script(tmp_path, {"accuracy": [HEALTHY, WRONG]}, troubled=True)
    report = looked(script)
    assert (report.outcome, report.exit_code, report.stage, report.kind) == ("localised", 0, "Inductor", "accuracy")
    assert (script.watched, report.region, report.signature) == (["accuracy"], 1, WRONG_VALUE)
    questions = {stage.name: cases.digest(question) for stage, question in ladder(WRONG)}
    assert report.stage_pair == {
        "fails": questions["Inductor"],
        "passes": questions["Inductor's extern calls"],
    }
    assert [row["stage"] for row in report.ladder] == list(questions)
    assert (report.first_node["part"], report.first_node["node"], report.first_node["region"]) == ("forward", "relu", 1)
    assert report.evidence["diff"][3:] == [" main()", "-lite", "+None"] and report.evidence["cut"] == 0
    assert all((report.folder / report.evidence[name]).is_file() for name in ("with", "without", "file"))


def test_what_of_inductor_is_to_blame_is_told_with_all_that_was_left_out(
    tmp_path: Path, looked: Callable[..., Report]
) -> None:
    script = Script(tmp_path, {"accuracy": [WRONG]})
    script.inside = Inside(Culprit("fusion", ((Application("a+b"),),), ROWS, notes=("so it is",)), ROWS, 2)
    report = looked(script)
    assert (report.inside, script.looked_into) == ("fusion a+b", [WRONG])
    assert [row["left_out"] for row in report.ablations] == ["--off fusion", "--off fusion:a+b"]
    assert report.notes[-1:] == ("so it is",)


def test_the_kernel_that_writes_the_first_wrong_values_is_told_and_left_in_the_folder(
    tmp_path: Path, looked: Callable[..., Report]
) -> None:
    ones = torch.ones(3)
    kernel = one_kernel("cpp", "void kernel() {}", {}, ("out_ptr0", 3 * ones, ones), {})
    script = Script(tmp_path, {"accuracy": [WRONG]})
    script.finding = Finding(kernel, INDUCTOR, notes=("so it is",))
    report = looked(script)
    assert (report.kernel["name"], report.kernel["blame"]) == (kernel.name, INDUCTOR)
    assert any(kernel.name in note for note in report.notes) and report.notes[-1] == "so it is"
    assert (report.folder / "kernel.cpp").read_text() == kernel.source
    assert from_json((report.folder / "kernel.json").read_text()) == kernel


BEFORE_CODE, IN_CODE = ("pass", "pattern", "precision"), ("layout", "lowering", "fusion", "codegen", "")


@pytest.mark.parametrize(("kind", "asked"), [*((kind, 0) for kind in BEFORE_CODE), *((kind, 1) for kind in IN_CODE)])
def test_kernels_are_asked_for_where_the_fault_may_lie_in_generated_code(
    kind: str, asked: int, tmp_path: Path, looked: Callable[..., Report]
) -> None:
    script = Script(tmp_path, {"accuracy": [WRONG]})
    script.inside = Inside(Culprit(kind, (), ROWS) if kind else None, (), 0)
    assert looked(script).kernel == {}
    assert len(script.oracles[-1].asked_for_kernels) == asked


def test_kernels_are_not_asked_for_of_a_crash_nor_of_a_failure_that_shows_only_sometimes(
    tmp_path: Path, looked: Callable[..., Report]
) -> None:
    for shown, kind, rate in (([CRASHING], "crash", 1.0), ([WRONG], "accuracy", 0.5)):
        script = Script(tmp_path, {kind: shown})
        assert looked(script, (kind,), rate).stage == "Inductor"
        assert script.oracles[-1].asked_for_kernels == []


def test_nothing_is_looked_into_but_a_failure_of_inductors_that_always_shows(
    tmp_path: Path, looked: Callable[..., Report]
) -> None:
    for shown, rate in (([HEALTHY], 1.0), ([WRONG], 0.5)):
        script = Script(tmp_path, {"accuracy": shown})
        assert looked(script, ("accuracy",), rate).inside == "" and script.looked_into == []
    nobody = Script(tmp_path, {"accuracy": [WRONG]})
    assert "no part of Inductor is to blame by itself" in looked(nobody).notes


def test_a_run_that_is_stopped_inside_a_stage_tells_the_stage_and_that_it_was_stopped(
    tmp_path: Path, looked: Callable[..., Report]
) -> None:
    script = Script(tmp_path, {"accuracy": [WRONG]})
    script.stops = True
    report = looked(script)
    assert (report.outcome, report.exit_code, report.stage, report.inside) == ("stopped early", 3, "Inductor", "")
    assert report.message == "stopped (budget) before it was known what of Inductor"


def test_what_was_found_can_be_reduced_by_resuming_in_its_folder(tmp_path: Path, looked: Callable[..., Report]) -> None:
    report = looked(Script(tmp_path, {"accuracy": [HEALTHY], "crash": [HEALTHY, CRASHING]}, troubled=True))
    folder = RunFolder(report.folder)
    assert folder.captured() == CRASHING
    assert (folder.load_request().kind, folder.load_request().region) == ("crash", 1)
    assert json.loads((report.folder / "report.json").read_text())["stage"] == "Inductor"


def test_a_script_in_which_something_raised_is_watched_for_crashes_next(
    tmp_path: Path, looked: Callable[..., Report]
) -> None:
    script = Script(tmp_path, {"accuracy": NoFailure("nothing ran"), "crash": [CRASHING]})
    report = looked(script)
    assert (script.watched, report.kind, report.signature) == (["accuracy", "crash"], "crash", RAISES)
    assert (report.exit_code, report.stage) == (0, "Inductor")


@pytest.mark.parametrize(
    ("troubled", "watched"), [(False, ["accuracy"]), (True, ["accuracy", "crash"])], ids=["quiet", "troubled"]
)
def test_a_healthy_program_answers_no_divergence_with_the_error_of_each_rung(
    troubled: bool, watched: list[str], tmp_path: Path, looked: Callable[..., Report]
) -> None:
    script = Script(tmp_path, {"accuracy": [HEALTHY], "crash": [HEALTHY]}, troubled=troubled)
    report = looked(script)
    assert (report.outcome, report.exit_code, report.stage) == ("no divergence", 1, "")
    assert report.message == "region 0 gives the right result in 2 fresh processes"
    assert script.watched == watched and report.kind == "accuracy"
    assert [row["outcome"] for row in report.ladder] == ["passes"] * 6
    assert {row["numbers"]["max_abs"] for row in report.ladder} == {1e-7}
    assert not RunFolder(report.folder).captured(), "there is nothing to reduce"


@pytest.mark.parametrize(("kind", "failing"), [("accuracy", CRASHING), ("crash", WRONG)])
def test_only_what_is_asked_for_is_looked_for(
    kind: str, failing: Case, tmp_path: Path, looked: Callable[..., Report]
) -> None:
    script = Script(tmp_path, {kind: [failing]}, troubled=True)
    report = looked(script, (kind,))
    assert (script.watched, report.outcome, report.exit_code) == ([kind], "no divergence", 1)


def test_a_failure_that_comes_and_goes_has_a_stage_and_is_unstable(
    tmp_path: Path, looked: Callable[..., Report]
) -> None:
    report = looked(Script(tmp_path, {"accuracy": [WRONG]}), rate=0.5)
    assert (report.outcome, report.exit_code, report.stage) == ("unstable", 4, "Inductor")
    assert report.message == "the region fails in 4 of 8 runs"


def test_a_healthy_region_does_not_hide_one_that_could_not_be_judged(
    tmp_path: Path, looked: Callable[..., Report]
) -> None:
    script = Script(tmp_path, {"accuracy": [HEALTHY], "crash": Unstable("region 1 fails but is lost")}, troubled=True)
    with pytest.raises(Unstable, match="is lost"):
        looked(script)


def test_a_script_without_any_region_has_no_ladder(tmp_path: Path, looked: Callable[..., Report]) -> None:
    with pytest.raises(NoFailure, match="compiles nothing"):
        looked(Script(tmp_path, {"accuracy": NoFailure("compiles nothing"), "crash": NoFailure("compiles nothing")}))


def test_a_failure_before_there_is_a_graph_is_dynamos_by_two_runs_of_the_script(
    tmp_path: Path, looked: Callable[..., Report]
) -> None:
    report = looked(Script(tmp_path, {"accuracy": FailsInDynamo("fails inside Dynamo: s.py: Unsupported")}))
    assert (report.outcome, report.exit_code, report.stage) == ("localised", 0, "Dynamo")
    assert report.stage_pair == {"fails": "python /at/s.py -v", "passes": "TORCHDYNAMO_DISABLE=1 python /at/s.py -v"}
    assert [(row["stage"], row["outcome"]) for row in report.ladder] == [("eager", "passes"), ("Dynamo", "fails")]


def test_a_rung_that_diverges_below_a_healthy_program_is_told_and_not_blamed(
    tmp_path: Path, looked: Callable[..., Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen(kind: str, case: Case) -> Observation:
        return DIVERGED if case.settings.backend == "aot_eager" else RIGHT

    monkeypatch.setattr(Answering, "seen", staticmethod(seen))
    report = looked(Script(tmp_path, {"accuracy": [HEALTHY]}))
    assert (report.outcome, report.exit_code, report.stage) == ("no divergence", 1, "")
    assert report.message.endswith("; yet AOTAutograd alone diverges")


@pytest.mark.parametrize("kind", ["accuracy", "crash"])
def test_no_failure_of_a_healthy_programs_ladder_is_of_another_kind_than_asked(kind: str) -> None:
    assert locating.NONE[kind].kind == kind
    assert isinstance(locating.NONE[kind], Signature)
