"""Which region fails, what a search starts from, and what is asked where rounding hides a failure."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from minify import case as cases
from minify import confirmation
from minify.attempt import Attempt
from minify.baseline import Baseline
from minify.capture.script import Suspect
from minify.case import Case, Ref, Settings
from minify.confirmation import Confirmed, _one_op_of, confirmed_first
from minify.errors import Drift, NoFailure
from minify.pipeline import _watched
from minify.runs import Request, RunFolder
from minify.verdict import Divergence, Observation, Signature
from tests.cases import build, given, op, tensor
from tests.fake_oracle import FakeOracle
from tests.reducing import line, recorded

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
    monkeypatch.setattr(confirmation.baseline, "confirm", confirm)
    progress = SimpleNamespace(step=lambda text: None, searching=lambda session: None)
    request = Request(how.pop("kind", "accuracy"), "model.py")
    this = Attempt(request, RunFolder(folder), cast(Any, oracle), cast(Any, None), cast(Any, progress))
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
    assert (len(found.session.start.graph.ops), found.searched, oracle.queries) == (9, 2, 2)
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
        return Confirmed(suspect, agree(case, suspect, oracle), cast(Any, None), searched)

    monkeypatch.setattr(confirmation, "_one_op_of", one_op_of_it)
    monkeypatch.setattr(confirmation, "_all_of", all_of_it)
    folder = RunFolder(tmp_path)
    this = cast(Any, SimpleNamespace(request=Request("accuracy", "model.py"), folder=folder, oracle=oracle))
    confirmed = confirmed_first(this, (Suspect(4, tmp_path / "0.case", True, sure=WRONG),))
    assert (asked, confirmed.searched, confirmed.first.case) == (["one op", "all"], 3, case)
    assert (folder.load_request().region, folder.load_request().sure) == (4, WRONG)
    resumed = _watched(cast(Any, SimpleNamespace(request=folder.load_request(), folder=folder)))
    assert resumed == (Suspect(4, folder.case_file, True, sure=WRONG),)


# --- what rounding hides -------------------------------------------------------------------------------------------------

HALVES = build([given("x", tensor((4,), "bfloat16"))], [op("n0", "torch.neg", Ref("x"))], ["n0"])
NUMBERS = "output:n0 has max abs 0.02"


def confirmed_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch, case: Case, fails_in: str, metric: str = ""
) -> tuple[Confirmed, list[str]]:
    """What is confirmed where only a program with inputs of one dtype fails, and the dtypes that were asked. The metric has to be of
    the very program that is asked."""
    asked: list[str] = []

    def confirm(case: Case, suspect: Suspect, oracle: Any) -> Baseline:
        asked.extend(sorted({item.meta.dtype for item in cases.tensor_inputs(case)}))
        assert oracle.whole == (cases.digest(case) if metric else "")
        if asked[-1] != fails_in:
            raise Drift("drift", "nothing to minify", numbers=NUMBERS)
        return Baseline(case, Observation("compare"), WRONG, 2, 2)

    monkeypatch.setattr(confirmation.baseline, "confirm", confirm)
    cases.save(case, folder / "0.case")
    oracle = Answering(lambda case: True)
    oracle.manner = SimpleNamespace(check="accuracy")  # type: ignore[attr-defined]
    progress = SimpleNamespace(step=lambda text: None, searching=lambda session: None)
    this = Attempt(
        Request("accuracy", "model.py", metric=metric),
        RunFolder(folder),
        cast(Any, oracle),
        cast(Any, None),
        cast(Any, progress),
    )
    return confirmed_first(this, (Suspect(0, folder / "0.case", False),)), asked


@pytest.mark.parametrize("metric", ["", "m.py:f"])
def test_what_drifts_in_half_precision_is_asked_in_float32_and_said_to_be_so(
    metric: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, asked = confirmed_in(tmp_path, monkeypatch, HALVES, "float32", metric)
    assert asked == ["bfloat16", "float32"]
    assert [item.meta.dtype for item in cases.tensor_inputs(found.session.start)] == ["float32"]
    assert found.notes == (f"Shown in float32: in its own bfloat16 the program's rounding hides it ({NUMBERS})",)


def test_what_fails_in_its_own_precision_is_asked_in_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = confirmed_in(tmp_path, monkeypatch, HALVES, "bfloat16")
    assert (asked, found.notes) == (["bfloat16"], ())


def test_what_drifts_in_float32_too_keeps_its_own_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Drift, match=f"drift: {NUMBERS}; nothing to minify"):
        confirmed_in(tmp_path, monkeypatch, HALVES, "float64")


def test_what_is_in_float32_already_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Drift):
        confirmed_in(tmp_path, monkeypatch, line("torch.neg"), "bfloat16")
