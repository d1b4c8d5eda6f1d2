"""What a run leaves beside its own result."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from minify.case import Case
from minify.pipeline import _explains, _kept_beside
from minify.runs import Request, RunFolder
from minify.verdict import Divergence, Observation, Signature
from tests.cases import chain
from tests.reducing import line

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


# --- are the ops that were found enough? -----------------------------------------------------------------------------

WHOLE = line("torch.neg", "torch.exp", "torch.abs")
WRONG = Signature("accuracy", "value", "value", ratio=20.0)


def explains(whole: Case, part: Case, *rows: Divergence, kind: str = "accuracy", phase: str = "compare") -> bool | None:
    """What is said where the whole, with the part's results in it, shows `rows`."""
    seen = Observation("compare", divergences=(Divergence("output:n1", "value", ratio=99.0),))
    confirmed = SimpleNamespace(
        whole=whole,
        suspect=SimpleNamespace(sure=None),
        first=SimpleNamespace(signature=WRONG),
        session=SimpleNamespace(observation=seen),
    )
    oracle = SimpleNamespace(patched=lambda part, whole: Observation(phase, divergences=rows))
    this = SimpleNamespace(request=Request(kind, "model.py"), oracle=oracle)
    return _explains(cast(Any, this), cast(Any, confirmed), part)


def test_ops_whose_results_make_the_original_wrong_explain_it() -> None:
    wrong, faint = (Divergence("output:n2", "value", ratio=ratio) for ratio in (50.0, 5.0))
    part = line("torch.neg", "torch.exp")
    assert explains(WHOLE, part, wrong) is True
    assert explains(WHOLE, part, faint) is False
    assert explains(WHOLE, part) is False


def test_whether_ops_explain_the_original_is_not_told_of_what_cannot_be_patched() -> None:
    wrong = Divergence("output:n2", "value", ratio=50.0)
    assert explains(WHOLE, line("torch.neg"), wrong, kind="crash") is None
    assert explains(WHOLE, line("torch.neg"), wrong, phase="reference") is None
    assert explains(WHOLE, WHOLE, wrong) is None
    assert explains(line("torch.neg", ".mul_", "torch.exp"), line("torch.neg"), wrong) is None
