"""What a run leaves beside its own result."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from minify.pipeline import _kept_beside
from minify.runs import Request, RunFolder
from minify.verdict import Signature
from tests.cases import chain

ABS, EXP = chain("x", ("torch.abs",)), chain("x", ("torch.exp",))


def run_in(folder: Path) -> Any:
    (folder / "store").mkdir()
    return SimpleNamespace(folder=RunFolder(folder), request=Request("accuracy", "model.py", every=True))


def test_another_failure_that_a_candidate_showed_is_kept_as_a_run_to_go_on_with(tmp_path: Path) -> None:
    slipped = {Signature("crash", "exception", "KeyError"): ABS, Signature("accuracy", "metadata", "stride"): EXP}
    told = _kept_beside(run_in(tmp_path), cast(Any, SimpleNamespace(slipped=slipped)))
    first, second = (RunFolder(tmp_path / f"also-found-{number}") for number in (1, 2))
    assert told == (
        f"exception KeyError; `minify resume {first.path}` reduces it",
        f"metadata stride; `minify resume {second.path}` reduces it",
    )
    assert [folder.load_request().kind for folder in (first, second)] == ["crash", "accuracy"]
    assert not first.load_request().every
    assert (first.captured(), second.captured()) == (ABS, EXP)


def test_a_folder_within_shares_the_store_wherever_both_are_moved(tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    inner = run_in(outer).folder.within("region-1")
    moved = outer.rename(tmp_path / "moved")
    (moved / "store" / "value").touch()
    assert (moved / inner.path.name / "store" / "value").exists()
    assert RunFolder(moved).within("region-1").path == moved / "region-1"
