"""What the parent makes of a watched script: its journal as it grows, and the run of a region whose inputs it has to keep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minify.capture import script
from minify.capture.child import Plan
from minify.capture.explain import Event
from minify.capture.script import Journal, Suspect, watch_script
from minify.errors import MinifyError, NoFailure, Unstable

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
    monkeypatch: pytest.MonkeyPatch, folder: Path, how: str, *events: Event, kind: str = "crash"
) -> MinifyError | tuple[Suspect, ...]:
    """What comes of a child that ended so and wrote this journal: its suspects, or the error that says why there are none."""

    def run_child(plan: Plan, *_: object) -> str:
        (folder / "events.jsonl").write_text(text(*events))
        return how

    monkeypatch.setattr(script, "_run_child", run_child)
    plan = Plan(script="s.py", args=(), folder=str(folder), kind=kind)
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
