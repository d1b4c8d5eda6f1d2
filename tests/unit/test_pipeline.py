"""What a run leaves beside its own result."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from minify import case as cases
from minify import pipeline
from minify.baseline import Baseline
from minify.capture.script import Suspect
from minify.case import Case, Ref, Settings
from minify.errors import NoFailure
from minify.pipeline import Confirmed, _confirmed, _kept_beside, _one_op_of, _watched
from minify.runs import Request, RunFolder
from minify.verdict import Divergence, Observation, Signature
from tests.cases import chain
from tests.fake_oracle import FakeOracle
from tests.reducing import line, recorded

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


# --- the op that fails alone, before the whole region is asked -----------------------------------------------------------

WRONG = Signature("accuracy", "value", "value")


class Answering(FakeOracle):
    """A fake that workers stand behind: it traces and records nothing, and knows no sizes."""

    rate, timeout = 1.0, 300.0

    def sizes(self, case: Case) -> None:
        return None

    def trace(self, case: Case) -> Observation:
        return Observation("reference")

    def materialise(self, case: Case) -> Case:
        return recorded(case)


def one_op_of(
    folder: Path, culprit: str, monkeypatch: pytest.MonkeyPatch, confirm: Any, **how: Any
) -> tuple[Any, Answering]:
    def answer(case: Case) -> bool | Observation:
        blamed = [out.name for out in case.graph.outputs if isinstance(out, Ref) and out.name.startswith(culprit)]
        rows = tuple(Divergence(f"output:{name}", "value", excess=9.0) for name in blamed)
        return Observation("compare", divergences=rows)

    oracle = Answering(answer)
    monkeypatch.setattr(pipeline.baseline, "confirm", confirm)
    progress = SimpleNamespace(step=lambda text: None, searching=lambda session: None)
    request = Request(how.pop("kind", "accuracy"), "model.py")
    this = cast(Any, SimpleNamespace(request=request, folder=RunFolder(folder), oracle=oracle, progress=progress))
    case = how.pop("case", line(*["torch.neg"] * 8, "torch.relu"))
    facts: dict[str, Any] = {"certain": True, "sure": WRONG, **how}
    return _one_op_of(this, Suspect(0, folder / "0.case", **facts), case), oracle


def agree(case: Case, suspect: Suspect, oracle: object) -> Baseline:
    return Baseline(case, Observation("compare"), WRONG, 2, 2)


def disagree(case: Case, suspect: Suspect, oracle: Any) -> Baseline:
    raise NoFailure("drift")


def waver(case: Case, suspect: Suspect, oracle: Any) -> Baseline:
    oracle.rate, oracle.timeout = 3 / 8, 60.0
    return Baseline(case, Observation("compare"), WRONG, 8, 3)


def tell_of_another(case: Case, suspect: Suspect, oracle: Any) -> Baseline:
    return Baseline(case, Observation("compare"), Signature("accuracy", "value", "integer"), 2, 2)


def test_one_op_that_fails_alone_is_confirmed_in_place_of_its_region(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, oracle = one_op_of(tmp_path, "n8", monkeypatch, agree)
    assert [call.name for call in found.first.case.graph.ops] == ["n8"]
    assert (len(found.whole.graph.ops), found.searched, oracle.queries) == (9, 2, 2)
    assert found.session.best == found.first.case


@pytest.mark.parametrize("confirm", [disagree, waver, tell_of_another])
def test_an_op_that_is_not_surely_to_blame_leaves_the_region_to_be_asked(
    confirm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, oracle = one_op_of(tmp_path, "n8", monkeypatch, confirm)
    assert found is None and (oracle.rate, oracle.timeout) == (1.0, 300.0)
    assert not (tmp_path / "journal.jsonl").exists() and not (tmp_path / "accepted").exists()


@pytest.mark.parametrize("how", [{"sure": None}, {"kind": "crash"}, {"case": line(*["torch.neg"] * 3)}])
def test_only_a_region_with_an_output_that_was_surely_wrong_is_asked_op_by_op(
    how: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, oracle = one_op_of(tmp_path, "n2", monkeypatch, agree, **how)
    assert found is None and oracle.queries == 0


def test_wrong_values_of_a_program_that_rounds_to_half_are_asked_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = line(*["torch.neg"] * 9)
    case = dataclasses.replace(case, settings=Settings(autocast=(("cpu", "bfloat16"),)))
    assert one_op_of(tmp_path, "n8", monkeypatch, agree, case=case)[0] is None


def test_a_run_asks_for_the_one_op_first_and_counts_what_that_took_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, asked = line(*["torch.neg"] * 9), []
    cases.save(case, tmp_path / "0.case")
    oracle = SimpleNamespace(queries=5)

    def one_op_of_it(this: object, suspect: Suspect, case: Case) -> None:
        asked.append("one op")
        oracle.queries += 3

    def all_of_it(this: object, suspect: Suspect, case: Case, searched: int) -> Confirmed:
        asked.append("all")
        return Confirmed(suspect, case, agree(case, suspect, oracle), cast(Any, None), searched)

    monkeypatch.setattr(pipeline, "_one_op_of", one_op_of_it)
    monkeypatch.setattr(pipeline, "_all_of", all_of_it)
    folder = RunFolder(tmp_path)
    this = cast(Any, SimpleNamespace(request=Request("accuracy", "model.py"), folder=folder, oracle=oracle))
    confirmed = _confirmed(this, (Suspect(4, tmp_path / "0.case", True, sure=WRONG),))
    assert (asked, confirmed.searched, confirmed.whole) == (["one op", "all"], 3, case)
    assert (folder.load_request().region, folder.load_request().sure) == (4, WRONG)
    resumed = _watched(cast(Any, SimpleNamespace(request=folder.load_request(), folder=folder)))
    assert resumed == (Suspect(4, folder.case_file, True, sure=WRONG),)
