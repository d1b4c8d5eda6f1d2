"""Where the trial of the machine's vector instructions is kept, and when it may be used again."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from pathlib import Path

import pytest

from minify import environment


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    return folder


def trial(cache: Path, *, fails: bool = False) -> bool:
    """Probe with `cache` as the process's own; whether that had to build something."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
    try:
        with environment.probing():
            if (cache / "ab" / "trial.so").exists():
                return False
            (cache / "ab").mkdir(parents=True)
            (cache / "ab" / "trial.so").write_text("built")
            if fails:
                raise RuntimeError("no compiler")
    finally:
        del os.environ["TORCHINDUCTOR_CACHE_DIR"]
    return True


def test_a_trial_is_made_once_and_copied_from_then_on(tmp_path: Path, temporary: Path) -> None:
    assert not environment.probed_into(tmp_path / "early")
    assert [trial(tmp_path / "first"), trial(tmp_path / "second")] == [True, False]
    assert environment.probed_into(tmp_path / "repro")
    assert (tmp_path / "repro" / "ab" / "trial.so").read_text() == "built"
    assert not environment.probed_into(tmp_path / "repro"), "only into a new folder"
    assert (tmp_path / "repro" / "ab").is_dir()
    (user,) = temporary.iterdir()
    assert len(list(user.iterdir())) == 1, "no half-made copy stays"


def test_workers_that_start_together_make_one_trial(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    with context.Pool(4) as pool:
        built = pool.map(trial, [tmp_path / str(number) for number in range(4)])
    assert sorted(built) == [False, False, False, True]


def test_a_trial_that_failed_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        trial(tmp_path / "first", fails=True)
    assert not environment.probed_into(tmp_path / "second")


@pytest.mark.parametrize("spoilt", ["another user's", "open to all", "a link"])
def test_nothing_is_taken_from_or_put_into_a_folder_that_others_can_write_to(
    spoilt: str, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert trial(tmp_path / "first")
    (user,) = temporary.iterdir()
    if spoilt == "another user's":
        monkeypatch.setattr(os, "getuid", lambda: 12345)
    elif spoilt == "open to all":
        user.chmod(0o777)
    else:
        user.rename(tmp_path / "elsewhere")
        user.symlink_to(tmp_path / "elsewhere")
    assert not environment.probed_into(tmp_path / "second")
    assert trial(tmp_path / "third")


def test_a_process_without_a_cache_of_its_own_is_left_alone(temporary: Path) -> None:
    with environment.probing():
        assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ
    assert [path for user in temporary.iterdir() for path in user.iterdir()] == []
