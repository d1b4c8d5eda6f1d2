"""Where the trial of the machine's vector instructions is kept, and when it may be used again."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from minify import environment


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.mark.parametrize("private", ["/a/worker's/own", None])
def test_a_trial_is_kept_once_it_is_finished(private: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    if private:
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", private)
    assert environment.probed() is None
    with environment.probing():
        folder = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
        folder.mkdir(parents=True)
        assert environment.probed() is None
    assert environment.probed() == folder
    assert os.environ.get("TORCHINDUCTOR_CACHE_DIR") == private


def test_a_trial_that_failed_is_not_used() -> None:
    with pytest.raises(RuntimeError), environment.probing():
        Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).mkdir(parents=True)
        raise RuntimeError("no compiler")
    assert environment.probed() is None


def test_a_trial_of_another_user_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with environment.probing():
        pass
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert environment.probed() is None
