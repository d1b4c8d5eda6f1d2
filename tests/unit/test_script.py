"""What the parent makes of a watched script: its journal as it grows, and the run of a region whose inputs it has to keep."""

from __future__ import annotations

import dataclasses
import json
import time
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from minify.capture import child, script
from minify.capture.child import Plan
from minify.capture.explain import Event
from minify.capture.script import Journal, Suspect, watch_script
from minify.errors import MinifyError, NoFailure, Unstable, UsageError
from minify.verdict import Signature

SIGNATURE = {"kind": "crash", "family": "exception", "name": "RuntimeError", "frame": "", "message": "no"}


def text(*events: Event) -> str:
    return "".join(json.dumps(event) + "\n" for event in events)


def test_a_journal_gives_each_event_once_and_waits_for_whole_lines(tmp_path: Path) -> None:
    journal, path = Journal(tmp_path), tmp_path / "events.jsonl"
    assert journal.fresh() == []
    path.write_text(text({"event": "a"}) + '{"event": ')
    assert journal.fresh() == [{"event": "a"}]
    path.write_text(text({"event": "a"}, {"event": "b"}) + "half a line of a full disk\n")
    assert journal.fresh() == [{"event": "b"}]
    assert journal.fresh() == []


def first_run(call: int) -> list[Event]:
    """A region saved at its first run, then `call` runs of which the last one raises."""
    events: list[Event] = [{"event": "region", "region": 0, "ops": 2}]
    for number in range(1, call + 1):
        case = "first.case" if number == 1 else ""
        events += [{"event": "running", "region": 0, "call": number, "case": case}, {"event": "left", "region": 0}]
    events[-1] = {"event": "crashed", "region": 0, "call": call, "signature": SIGNATURE}
    return events


def watched(monkeypatch: pytest.MonkeyPatch, folder: Path, call: int, second: list[Event]) -> tuple[Any, list[int]]:
    """`watch_script` over a child that writes such journals; and the calls whose inputs each attempt was to keep."""
    kept: list[int] = []

    def run_child(plan: Plan, *_: object) -> str:
        kept.append(plan.record_call)
        (folder / "events.jsonl").write_text(text(*(second if plan.record_call else first_run(call))))
        return ""

    monkeypatch.setattr(script, "_run_child", run_child)
    plan = Plan(script="s.py", args=(), folder=str(folder), kind="crash")
    return watch_script(plan, 60.0, lambda: "", lambda line: None).suspects, kept


def test_a_crash_in_the_first_run_needs_no_second_look(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (suspect,), kept = watched(monkeypatch, tmp_path, 1, [])
    assert kept == [0] and suspect.case == Path("first.case")


def test_a_crash_in_a_later_run_is_watched_again_for_that_runs_inputs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    again = first_run(3)
    again[1]["case"], again[5]["case"] = "", "third.case"
    (suspect,), kept = watched(monkeypatch, tmp_path, 3, again)
    assert kept == [0, 3] and suspect.case == Path("third.case") and suspect.certain


def test_a_crash_that_does_not_come_again_leaves_the_first_finding(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (suspect,), kept = watched(monkeypatch, tmp_path, 3, [{"event": "region", "region": 0, "ops": 2}])
    assert kept == [0, 3] and suspect.case == Path("first.case")


SKIPPED: Event = {"event": "skipped", "region": 0, "why": "a Triton kernel of the program's own"}


def ending(
    monkeypatch: pytest.MonkeyPatch, folder: Path, how: str, *events: Event, kind: str = "crash", **plans: Any
) -> MinifyError | tuple[Suspect, ...]:
    """What comes of a child that ended so and wrote this journal: its suspects, or the error that says why there are none."""

    def run_child(plan: Plan, *_: object) -> str:
        (folder / "events.jsonl").write_text(text(*events))
        return how

    monkeypatch.setattr(script, "_run_child", run_child)
    plan = Plan(script="s.py", args=(), folder=str(folder), kind=kind, **plans)
    try:
        return watch_script(plan, 60.0, lambda: "", lambda line: None).suspects
    except MinifyError as error:
        return error


RUNNING: Event = {"event": "running", "region": 0, "call": 1}
CRASHED: Event = {"event": "crashed", "region": 0, "call": 1, "signature": SIGNATURE}


@pytest.mark.parametrize(
    ("how", "last", "told"),
    [
        ("", CRASHED, "region 0 of s.py fails (RuntimeError: no)"),
        ("SIGSEGV", RUNNING, "region 0 of s.py fails (SIGSEGV while running)"),
        ("hang", RUNNING, "region 0 of s.py fails (still running after 60 s)"),
    ],
)
def test_a_crash_of_a_region_that_cannot_be_written_down_is_no_absence_of_one(
    how: str, last: Event, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    error = ending(monkeypatch, tmp_path, how, SKIPPED, last)
    assert isinstance(error, Unstable)
    assert str(error).startswith(f"{told} but cannot be written down (a Triton kernel of the program's own)")


def test_where_nothing_could_be_checked_nothing_is_said_of_the_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    error = ending(monkeypatch, tmp_path, "", SKIPPED, {**SKIPPED, "why": "no ATen graphs"}, kind="accuracy")
    assert isinstance(error, Unstable)
    assert "no run of the 1 region(s) that s.py compiles could be checked: a Triton kernel" in str(error)
    checked = ending(monkeypatch, tmp_path, "", SKIPPED, {"event": "checked", "region": 1, "call": 1}, kind="accuracy")
    assert isinstance(checked, NoFailure)


def left(region: int, *, backward: bool) -> list[Event]:
    """A region that was saved and ran, and of which a backward may be to come."""
    event = {"event": "running", "region": region, "call": 1, "case": f"{region}.case", "backward": backward}
    return [event, {"event": "left", "region": region}]


@pytest.mark.parametrize("how", ["SIGSEGV", "hang"])
def test_a_crash_outside_every_region_may_be_the_backward_of_one(
    how: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    events = [*left(0, backward=True), *left(1, backward=False), *left(2, backward=True)]
    found = ending(monkeypatch, tmp_path, how, *events)
    told = Signature("crash", "hang" if how == "hang" else "signal", how)
    assert found == tuple(Suspect(region, Path(f"{region}.case"), False, told) for region in (0, 2))


def test_a_script_that_leaves_by_itself_or_dies_without_a_backward_has_no_suspects(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for how, events in (("exit 3", left(0, backward=True)), ("SIGSEGV", left(0, backward=False))):
        error = ending(monkeypatch, tmp_path, how, *events)
        assert isinstance(error, NoFailure) and f"the script ended with {how}" in str(error)


class Child:
    """A process that ends by itself after a few looks at it."""

    returncode = 0

    def __init__(self) -> None:
        self.looks = 3

    def poll(self) -> int | None:
        self.looks -= 1
        return None if self.looks else 0


@pytest.mark.parametrize(
    ("kind", "backward", "silent", "how"),
    [
        ("crash", True, 130, "hang"),
        ("crash", True, 90, ""),
        ("crash", False, 130, ""),
        ("accuracy", True, 130, ""),
    ],
)
def test_a_long_silence_after_a_region_that_may_have_a_backward_is_a_hang(
    kind: str, backward: bool, silent: float, how: str, tmp_path: Path
) -> None:
    then = time.time() - silent
    events = [{**event, "time": then} for event in (*left(0, backward=backward), *left(1, backward=False))]
    (tmp_path / "events.jsonl").write_text(text(*({"case": "", "call": 0, **event} for event in events)))
    plan = Plan(script="s.py", args=(), folder=str(tmp_path), kind=kind)
    assert script._follow(Child(), plan, 60.0, lambda: "", lambda line: None) == how  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "train"), [("crash", True), ("crash", False), ("accuracy", True)])
def test_a_model_that_is_to_be_trained_has_its_backward_run_in_a_watch_for_crashes(kind: str, train: bool) -> None:
    x, watcher = torch.ones(3, requires_grad=True), []
    plan = Plan(script="s.py", args=(), folder="", kind=kind, backend="eager", train=train)
    names = {"model": lambda x: {"loss": x.sin(), "index": x.argmax()}, "inputs": (x,)}
    torch.compiler.reset()
    child._compile_model(plan, names, watcher)
    assert (x.grad is not None) == (kind == "crash" and train)


@pytest.mark.parametrize(
    ("sure", "told"),
    [
        ([{"where": "output:y", "kind": "stride"}, {"where": "output:z", "kind": "value"}], "value"),
        ([], None),
    ],
)
def test_a_region_that_diverged_says_what_is_sure_of_its_outputs(
    sure: list[dict[str, str]], told: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = [{"where": "grad:y", "kind": "value", "max_abs": 3.0}]
    diverged = {"event": "diverged", "region": 2, "call": 1, "case": "2.case", "rows": rows, "sure": sure}
    (suspect,) = ending(monkeypatch, tmp_path, "enough", {"event": "running", "region": 2}, diverged, kind="accuracy")
    assert suspect == Suspect(2, Path("2.case"), True, sure=told and Signature("accuracy", "value", told))


# --- a region that is kept although nothing is wrong with it -----------------------------------------------------------


CHECKED: Event = {"event": "checked", "region": 0, "call": 1, "case": "0.case"}


def test_a_healthy_region_that_was_kept_is_for_a_worker_to_judge(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = ending(monkeypatch, tmp_path, "", CHECKED, kind="accuracy", keep=True)
    assert found == (Suspect(0, Path("0.case"), certain=False),)
    found = ending(monkeypatch, tmp_path, "", *left(1, backward=False), *left(0, backward=False), keep=True)
    assert found == (Suspect(0, Path("0.case"), certain=False),)


def test_what_fails_comes_before_what_was_only_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wrong = {"event": "diverged", "region": 1, "call": 1, "case": "1.case", "rows": [], "sure": []}
    found = ending(monkeypatch, tmp_path, "enough", CHECKED, wrong, kind="accuracy", keep=True)
    assert isinstance(found, tuple) and [suspect.region for suspect in found] == [1, 0]


@pytest.mark.parametrize("how", ["", "SIGSEGV", "hang"])
def test_a_healthy_region_is_no_answer_where_another_fails_and_is_lost(
    how: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    events = [*left(1, backward=False), SKIPPED, CRASHED if not how else RUNNING]
    assert isinstance(ending(monkeypatch, tmp_path, how, *events, keep=True), Unstable)


@pytest.mark.parametrize(
    ("how", "last", "troubled"),
    [
        ("", {"event": "left", "region": 0}, False),
        ("enough", {"event": "left", "region": 0}, False),
        ("", {"event": "left", "region": 0, "raised": "ValueError"}, True),
        ("", {"event": "raised", "type": "ValueError", "text": "no", "where": ""}, True),
        ("SIGSEGV", {"event": "running", "region": 0}, True),
    ],
)
def test_a_script_in_which_something_raised_or_that_was_ended_is_troubled(
    how: str, last: Event, troubled: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run_child(*_: object) -> str:
        (tmp_path / "events.jsonl").write_text(text(CHECKED, last))
        return how

    monkeypatch.setattr(script, "_run_child", run_child)
    plan = Plan(script="s.py", args=(), folder=str(tmp_path), kind="accuracy", keep=True)
    assert watch_script(plan, 60.0, lambda: "", lambda line: None).troubled == troubled


LEFT: Event = {"event": "left", "region": 0}
REGION: Event = {"event": "region", "region": 0, "ops": 2}
RAISED: Event = {"event": "raised", "type": "LoweringError", "text": "no", "where": "line 3"}


@pytest.mark.parametrize(
    ("how", "events"),
    [
        ("", [RUNNING, {**LEFT, "raised": "LoweringError"}, RAISED]),
        ("", [{"event": "compiling", "region": 0}, {**LEFT, "raised": "LoweringError"}]),  # and the script caught it
        ("SIGSEGV", [RUNNING]),
        ("hang", [RUNNING]),
    ],
)
def test_a_crash_where_wrong_results_were_looked_for_points_to_minify_crash(
    how: str, events: list[Event], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    error = ending(monkeypatch, tmp_path, how, REGION, *events, kind="accuracy")
    assert isinstance(error, NoFailure) and "try `minify crash`" in str(error)


@pytest.mark.parametrize(
    ("how", "events"), [("", [LEFT]), ("SIGSEGV", [RUNNING, LEFT]), ("exit 3", [RUNNING]), ("", [LEFT, RAISED])]
)
def test_a_script_that_ends_otherwise_does_not(
    how: str, events: list[Event], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    error = ending(monkeypatch, tmp_path, how, REGION, *events, kind="accuracy")
    assert isinstance(error, NoFailure) and "minify crash" not in str(error)


def test_where_nothing_crashes_results_may_be_wrong_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    error = ending(monkeypatch, tmp_path, "", REGION, RUNNING, LEFT)
    assert isinstance(error, NoFailure) and "whether its results are right, `minify accuracy` tells; the" in str(error)


# --- the user's metric ---------------------------------------------------------------------------------------------------

DIVERGED: Event = {"event": "diverged", "region": 0, "call": 1, "case": "0.case", "rows": [], "sure": []}
REFUSED: Event = {
    "event": "refused",
    "message": "--metric m.py:f raised ValueError: no",
    "next_step": "it is called so",
}


def test_a_metric_that_is_none_ends_the_run_whatever_else_was_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    error = ending(monkeypatch, tmp_path, "enough", REGION, RUNNING, DIVERGED, REFUSED, kind="accuracy")
    assert isinstance(error, UsageError) and str(error) == "--metric m.py:f raised ValueError: no; it is called so"


@pytest.mark.parametrize(("how", "said"), [("hang", "is not done after 60 s"), ("SIGSEGV", "ends with SIGSEGV")])
def test_a_metric_that_does_not_come_back_is_the_users_error(
    how: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    error = ending(monkeypatch, tmp_path, how, REGION, RUNNING, {"event": "measuring", "region": 0}, kind="accuracy")
    assert isinstance(error, UsageError) and said in str(error)


def test_drift_in_the_script_is_told_with_the_numbers_of_the_metric_that_moved_most(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drift = {"event": "drift", "region": 0, "max_abs": 0.5, "max_rel": 0.25, "eager_abs": 0.125, "excess": 2.0}
    rows = [{"event": "metric", "region": 0, "by": by, "text": f"the metric moved by {by}"} for by in (0.1, 0.3, 0.2)]
    error = ending(monkeypatch, tmp_path, "", REGION, RUNNING, drift, *rows, kind="accuracy")
    assert isinstance(error, NoFailure)
    assert "drift, no divergence" in str(error) and "eager's own error 0.125; the metric moved by 0.3;" in str(error)


@pytest.mark.parametrize("last", [REFUSED, DIVERGED])
def test_the_script_is_stopped_as_soon_as_the_metric_is_refused(last: Event, tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text(text({**last, "time": time.time()}))
    plan = Plan(script="s.py", args=(), folder=str(tmp_path), kind="accuracy")
    assert script._follow(Child(), plan, 60.0, lambda: "", lambda line: None) == "enough"  # type: ignore[arg-type]


@pytest.mark.parametrize(("silent", "how"), [(70, "hang"), (50, "")])
def test_a_metric_has_the_time_of_one_run(silent: float, how: str, tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text(text({"event": "measuring", "region": 0, "time": time.time() - silent}))
    plan = Plan(script="s.py", args=(), folder=str(tmp_path), kind="accuracy")
    assert script._follow(Child(), plan, 60.0, lambda: "", lambda line: None) == how  # type: ignore[arg-type]


def test_a_metric_of_the_script_itself_is_the_one_that_the_script_defines(tmp_path: Path) -> None:
    path = tmp_path / "s.py"
    path.write_text("raise RuntimeError('run twice')")
    module = types.ModuleType("__main__")
    plan = Plan(script=str(path), args=(), folder="", kind="accuracy", metric=f"{path}:top1", metric_tol=0.5)
    metric = child._metric(plan, module)
    vars(module)["top1"] = lambda x: x + 1
    assert metric.of((2,), "eager") == (3.0,) and metric.tolerance == 0.5
    assert child._metric(dataclasses.replace(plan, metric=""), module) is None
    with pytest.raises(UsageError, match="run twice"):
        child._metric(dataclasses.replace(plan, script="other.py"), module)
