"""What only a later call of a compiled program gets wrong; the compilers here are stand-ins, and Dynamo is all that compiles."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from minify import worker
from minify.baseline import confirm, replayed
from minify.capture.convert import Converted, Param
from minify.capture.script import Suspect
from minify.capture.snapshot import Snapshot
from minify.case import REPLAYS, Case, Const, Recipe, Ref, ScalarInput, Settings
from minify.decisive.rows import settings as setting_changes
from minify.emit import Facts, emit
from minify.localize import ladder
from minify.oracle.local import LocalOracle
from minify.passes.simplify_settings import SIMPLIFY_SETTINGS
from minify.replay import replay
from minify.verdict import Divergence, Observation, Outcome, Question, Signature, classify
from tests.cases import build, given, op, tensor

R = Ref
RANDN = Recipe("randn")
VALUE = Signature("accuracy", "value", "value")
COMPILERS = {
    "right": "return call(*args)",
    "gives the first result for good": "held.setdefault('y', call(*args)); return held['y']",
    "keeps the first input": "return call(held.setdefault('x', args[0].clone()), *args[1:])",
    "keeps it from the third call on": (
        "held['n'] = held.get('n', 0) + 1; "
        "return held['y'] if held['n'] > 2 else held.setdefault('y', call(*args)) if held['n'] > 1 else call(*args)"
    ),
    "writes to its earlier results": (
        "y = call(*args)[0]; old = held.get('y'); held['y'] = y; old is None or old.copy_(y); return (y,)"
    ),
}


def compiled_by(name: str, replays: int, backward: str = "") -> Case:
    x = given("x", tensor((4, 3), requires_grad=bool(backward)), RANDN)
    body = COMPILERS[name].replace("; ", "\n        ")
    prelude = f"def stale(module, inputs):\n    call, held = module.forward, {{}}\n    def run(*args):\n        {body}\n    return run\n"
    settings = Settings(
        backend=Const("stale"), replays=replays, backward=backward, grad_mode="grad" if backward else "no_grad"
    )
    case = build([x, given("w", tensor((4, 3)), RANDN)], [op("y", "torch.mul", R("x"), R("w"))], ["y"], settings)
    return dataclasses.replace(case, program=dataclasses.replace(case.program, prelude=prelude))


def seen(case: Case, root: Path) -> Observation:
    return worker.judge(Question("judge", case, "accuracy", str(root), noise=1), lambda phase: None)


@pytest.mark.parametrize("name", [name for name in COMPILERS if name != "right"])
def test_what_a_later_call_gets_wrong_shows_in_a_replay_and_not_in_the_first_call(name: str, tmp_path: Path) -> None:
    assert classify(seen(compiled_by(name, 0), tmp_path), VALUE).outcome is Outcome.PASSES
    assert classify(seen(compiled_by(name, 3), tmp_path), VALUE).outcome is Outcome.FAILS


@pytest.mark.parametrize("backward", ["", "ones"])
def test_a_compiler_that_is_right_passes_each_replay(backward: str, tmp_path: Path) -> None:
    observation = seen(compiled_by("right", 3, backward), tmp_path)
    assert (observation.phase, observation.divergences, observation.crash) == ("compare", (), None)


def test_other_inputs_have_the_same_layout_and_other_floats_and_leave_all_else(tmp_path: Path) -> None:
    inputs = [
        given("x", tensor((3, 4), stride=(1, 3)), RANDN),
        given("n", tensor((4,), "int64"), Recipe("arange")),
        given("w", tensor((4,), flags=("parameter",)), RANDN),
        given("wide", tensor((3, 4), stride=(0, 1)), RANDN),
        ScalarInput("k", 3),
    ]
    live = replay(build(inputs, [op("y", "torch.add", R("x"), R("w"))], ["y"]), tmp_path)
    same, first, second = live.make_inputs(), live.other_inputs(0), live.other_inputs(1)
    assert first[0].stride() == (1, 3) and not torch.equal(first[0], same[0]) and not torch.equal(first[0], second[0])
    assert all(torch.equal(a, b) for a, b in zip(same[1:4], first[1:4], strict=True)) and first[4] == 3


class Answering:
    """Says that a case fails only where it is replayed."""

    def __init__(self) -> None:
        self.manner = cast(Any, type("Manner", (), {"check": "accuracy"}))
        self.calibrates, self.rate, self.timeout = False, 1.0, 60.0

    def observe_runs(self, case: Case, runs: Any, *, noise: int = 0) -> list[Observation]:
        wrong = (Divergence("output:y", "value", excess=1e4, ratio=1e4),) if case.settings.replays else ()
        return [Observation("compare", divergences=wrong) for _ in runs]

    def observe(self, case: Case) -> Observation:
        return self.observe_runs(case, [0])[0]


def test_what_failed_in_a_later_run_of_the_script_and_not_by_itself_is_asked_with_runs_before_it() -> None:
    oracle = cast(LocalOracle, Answering())
    found = confirm(compiled_by("right", 0), Suspect(0, Path("0.case"), True, call=4), oracle)
    assert found.case.settings.replays == REPLAYS and found.rate == 1
    with pytest.raises(Exception, match="failed in the script"):
        confirm(compiled_by("right", 0), Suspect(0, Path("0.case"), True), oracle)


@pytest.mark.parametrize(
    ("device", "settings", "replays"),
    [
        ("cuda:0", Settings(mode="reduce-overhead"), REPLAYS),
        ("cuda:0", Settings(options=(("triton.cudagraphs", True),)), REPLAYS),
        ("cuda:0", Settings(), 0),
        ("cuda:0", Settings(backend="eager", mode="reduce-overhead"), 0),
        ("cpu", Settings(mode="reduce-overhead"), 0),
    ],
)
def test_a_program_is_replayed_where_there_are_cuda_graphs(
    device: str, settings: Settings, replays: int, tmp_path: Path
) -> None:
    meta = dataclasses.replace(tensor((2,), flags=("zerotensor",)), device=device)  # of which nothing has to be kept
    converted = Converted(build([given("x", meta)], [], ["x"]).graph, (Param("x", 0),), frozenset())
    case = Snapshot(converted, (meta,), {}, settings).case(tmp_path)
    assert case.settings.replays == replays
    assert ladder(case)[-1][1] == case, "the last rung is the case itself, replays included"


def test_fewer_replays_are_simpler_and_that_there_are_any_is_told_as_decisive() -> None:
    case = replayed(compiled_by("right", 0))
    edits = [SIMPLIFY_SETTINGS.rewrite(case, (site,)).settings.replays for site in SIMPLIFY_SETTINGS.find(case)]
    assert sorted(edits) == [0, 1]
    assert [change.what for change in setting_changes(case, random=False)] == ["calls with other values before it"]


@pytest.mark.parametrize("replays", [1, 3])
def test_the_repro_makes_the_calls_that_were_judged(replays: int, tmp_path: Path) -> None:
    case = compiled_by("gives the first result for good", replays)
    observation = seen(case, tmp_path)
    text = emit(case, observation, VALUE, Facts())
    names: dict[str, Any] = {"__name__": "repro"}
    with pytest.raises(SystemExit) as ended:
        exec(compile(text, "repro.py", "exec"), names)
    assert ended.value.code == 1
    with pytest.raises(SystemExit) as ended:
        exec(
            compile(text.replace("    f(*other_inputs", "    (lambda *_: 0)(*other_inputs"), "repro.py", "exec"),
            {"__name__": "repro"},
        )
    assert ended.value.code == 0
