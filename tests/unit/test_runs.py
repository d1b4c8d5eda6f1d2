"""A run's folder, what was asked for, and the flag that ends a run."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from minify.errors import EXIT_USAGE, UsageError
from minify.runs import Request, RunFolder, StopFlag, clear_attempt, new_folder


def test_each_run_without_out_has_a_new_folder_named_after_its_script() -> None:
    first, second = new_folder("some/dir/net.py", None), new_folder("some/dir/net.py", None)
    assert [folder.path.name for folder in (first, second)] == ["net-1", "net-2"]
    assert first.path.parent == Path("minify-out").resolve()


def test_a_script_called_model_lends_its_folders_name() -> None:
    assert new_folder("corpus/argmax/model.py", None).path.name == "argmax-1"


def test_a_new_or_an_empty_out_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "new/and/deep"):
        folder = new_folder("net.py", tmp_path / name)
        assert folder.path == tmp_path / name
        assert not list(folder.path.iterdir())


def test_an_out_that_holds_something_is_refused_and_left_alone(tmp_path: Path) -> None:
    kept = tmp_path / "out" / "kept"
    kept.parent.mkdir()
    kept.write_text("mine")
    for out in (kept.parent, kept):
        with pytest.raises(UsageError, match="not empty") as refused:
            new_folder("net.py", out)
        assert refused.value.exit_code == EXIT_USAGE
    assert kept.read_text() == "mine"


def test_an_out_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot write to the output folder: Not a directory: .*file/out"):
        new_folder("net.py", tmp_path / "file" / "out")


def test_an_out_on_a_full_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, *_: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "touch", full)
    with pytest.raises(UsageError, match="No space left on device"):
        new_folder("net.py", tmp_path / "out")


def test_a_request_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    request = Request("crash", "/s.py", args=("-v", "ü"), region=2, timeout=1.5, dynamic=False, data=True)
    folder = RunFolder(tmp_path)
    folder.save_request(request)
    assert folder.load_request() == request


@pytest.mark.parametrize(
    "content", [None, "", "[]", "{}", "3", "not json", '{"kind": "crash", "script": "s", "args": 3}']
)
def test_a_folder_that_is_none_of_ours_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "request.json").write_text(content)
    with pytest.raises(UsageError, match="is not the folder of a minify run"):
        RunFolder(tmp_path).load_request()


def test_a_request_of_another_version_is_refused(tmp_path: Path) -> None:
    row = {"kind": "crash", "script": "s", "args": [], "something_new": 1}
    (tmp_path / "request.json").write_text(json.dumps(row))
    with pytest.raises(UsageError, match="something_new"):
        RunFolder(tmp_path).load_request()


def test_a_resume_drops_the_trail_and_keeps_answers_values_and_the_result(tmp_path: Path) -> None:
    for name in ("repro.py", "repro_data.pt", "report.json", "journal.jsonl", "captured.case", "request.json"):
        (tmp_path / name).touch()
    for name in ("accepted", "verdicts", "store"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "content").touch()
    clear_attempt(RunFolder(tmp_path))
    kept = {"captured.case", "request.json", "verdicts", "store", "repro.py", "repro_data.pt", "report.json"}
    assert {path.name for path in tmp_path.iterdir()} == kept
    clear_attempt(RunFolder(tmp_path))


def test_a_folder_in_use_is_refused_until_it_is_free(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with folder.held(), pytest.raises(UsageError, match="another run is at work"), folder.held():
        pytest.fail("held twice")
    with folder.held():
        pass


def test_a_flag_says_nothing_until_there_is_a_reason() -> None:
    assert StopFlag()() == ""
    assert StopFlag(budget=1000)() == ""
    assert StopFlag(budget=-1)() == "budget"


@pytest.mark.parametrize(("number", "reason"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")])
def test_the_first_signal_is_a_reason_and_the_second_leaves(number: signal.Signals, reason: str) -> None:
    stop = StopFlag()
    with stop.listening():
        os.kill(os.getpid(), number)
        assert stop() == reason
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)


def test_ctrl_c_after_the_budget_is_spent_leaves() -> None:
    stop = StopFlag(budget=-1)
    assert stop() == "budget"
    with stop.listening(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_the_handlers_of_before_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with StopFlag().listening():
        assert signal.getsignal(signal.SIGINT) is not before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_an_overruled_flag_is_silent_for_as_long_as_it_is_overruled() -> None:
    stop = StopFlag(budget=-1)
    with stop.overruled():
        assert stop() == ""
    assert stop() == "budget"
