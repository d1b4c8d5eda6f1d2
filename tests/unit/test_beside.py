"""What a run leaves beside its own result."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from minify.attempt import Attempt
from minify.beside import MOST_ASKED, found_beside
from minify.case import Case, Ref
from minify.reduce import Session
from minify.reduce.session import SetAside
from minify.runs import Request, RunFolder
from minify.verdict import Divergence, Observation, Signature
from tests.cases import chain
from tests.fake_oracle import FakeOracle
from tests.reducing import WRONG_VALUE, line

ABS, EXP = chain("x", ("torch.abs",)), chain("x", ("torch.exp",))


STRIDE = Signature("accuracy", "metadata", "stride")


def wrong(kind: str, *names: str) -> Observation:
    return Observation("compare", divergences=tuple(Divergence(f"output:{name}", kind) for name in names))


def run_in(folder: Path, start: Case = ABS, answer: Any = lambda case: False) -> tuple[Attempt, Session]:
    """A run whose search is over, and its search."""
    (folder / "store").mkdir()
    oracle = FakeOracle(answer)
    request = Request("accuracy", "model.py", every=True, sure=WRONG_VALUE)
    this = Attempt(request, RunFolder(folder), cast(Any, oracle), cast(Any, None), cast(Any, None))
    return this, Session(start, Observation("done"), WRONG_VALUE, oracle, folder, save_base=lambda base: None)


def test_another_failure_that_a_candidate_showed_is_kept_as_a_run_to_go_on_with(tmp_path: Path) -> None:
    this, session = run_in(tmp_path)
    session.slipped = {Signature("crash", "exception", "KeyError"): ABS, STRIDE: EXP}
    told = found_beside(this, session)
    first, second = (RunFolder(tmp_path / f"also-found-{number}") for number in (1, 2))
    assert told == (
        f"exception KeyError; `minify resume {first.path}` reduces it",
        f"metadata stride; `minify resume {second.path}` reduces it",
    )
    assert [folder.load_request().kind for folder in (first, second)] == ["crash", "accuracy"]
    assert not first.load_request().every and first.load_request().sure is None
    assert (first.captured(), second.captured()) == (ABS, EXP)


def test_what_the_search_looked_past_is_kept_too_and_not_told_twice(tmp_path: Path) -> None:
    this, session = run_in(tmp_path)
    session.set_aside = [SetAside(EXP, wrong("value", "y"), WRONG_VALUE)]
    session.start, session.blamed = EXP, {EXP.graph.ops[0].name: wrong("value", "y").divergences}
    folder = RunFolder(tmp_path / "also-found-1")
    words = "value value in exp, which does not reach the original's results"
    assert found_beside(this, session) == (f"{words}; `minify resume {folder.path}` reduces it",)
    assert folder.captured() == EXP


def test_a_folder_within_shares_the_store_wherever_both_are_moved(tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    inner = run_in(outer)[0].folder.within("region-1")
    moved = outer.rename(tmp_path / "moved")
    (moved / "store" / "value").touch()
    assert (moved / inner.path.name / "store" / "value").exists()
    assert RunFolder(moved).within("region-1").path == moved / "region-1"


def blaming(folder: Path, rows: dict[str, str], answer: Any, *targets: str) -> tuple[str, ...]:
    """What is told beside, where the search ended with the first call, and screens blamed others, by name and kind."""
    this, session = run_in(folder, line(*targets), answer)
    session.best = line(targets[0])
    session.blamed = {name: (Divergence(f"output:{name}", kind),) for name, kind in rows.items()}
    return found_beside(this, session)


def test_a_call_of_another_kind_that_is_wrong_by_itself_is_told_once_a_query_confirms_it(tmp_path: Path) -> None:
    def answer(case: Case) -> Observation:
        (out,) = case.graph.outputs
        assert isinstance(out, Ref)
        return wrong({"n1": "value", "n3": "stride"}.get(out.name, "dtype"), out.name)

    targets = ("torch.relu", "torch.exp", "torch.relu", "torch.abs", "torch.exp", "torch.sin")
    blamed = {"n0": "value", "n1": "value", "n2": "value", "n3": "stride", "n4": "value", "n5": "value"}
    told = blaming(tmp_path, blamed, answer, *targets)
    assert [text.partition(";")[0] for text in told] == ["value value in exp", "metadata stride in abs"]
    kept = RunFolder(tmp_path / "also-found-1").captured()
    assert kept is not None and [call.target for call in kept.graph.ops] == ["torch.exp"]


def test_no_more_than_a_few_calls_are_asked_for(tmp_path: Path) -> None:
    asked: list[Case] = []

    def answer(case: Case) -> bool:
        asked.append(case)
        return False

    targets = ("torch.relu", "torch.exp", "torch.abs", "torch.sin", "torch.cos", "torch.tan")
    assert blaming(tmp_path, {f"n{place}": "value" for place in range(6)}, answer, *targets) == ()
    assert len(asked) == MOST_ASKED
