"""The certificate: what every single edit of every pass comes to on one case."""

from __future__ import annotations

from pathlib import Path

import pytest

from minify import certificate as certificates
from minify.case import Case
from minify.certificate import Asked, Certificate, certify, differences
from minify.errors import InvalidCandidate
from minify.passes import PASSES
from minify.passes.contract import Pass, Site
from minify.verdict import Outcome
from tests.cases import chain
from tests.fake_oracle import FakeOracle
from tests.reducing import WRONG_VALUE, line, needs_targets, run_reduction

TWO_NEEDED = line("torch.relu", "torch.exp")
BOTH = needs_targets("torch.relu", "torch.exp")


def certified(case: Case, oracle: FakeOracle, passes: tuple[Pass, ...] = PASSES) -> Certificate:
    return certify(case, WRONG_VALUE, oracle, passes, lambda base: None)


def test_a_case_no_edit_of_which_still_fails_is_certified() -> None:
    found = certified(
        TWO_NEEDED, FakeOracle(BOTH), tuple(edit for edit in PASSES if edit.name in ("bypass", "cut ops"))
    )
    assert found.one_minimal
    assert found.counts()["cut ops"] == {"sites": 2, "passes": 2}


def test_one_edit_that_still_fails_is_named_and_spoils_it() -> None:
    found = certified(TWO_NEEDED, FakeOracle(needs_targets("torch.relu")))
    assert not found.one_minimal
    assert ("cut ops", "fails") in {(one.edit, one.answer) for one in found.smaller_ones}


def test_an_edit_that_nobody_could_answer_for_spoils_it() -> None:
    assert not certified(TWO_NEEDED, FakeOracle(lambda case: Outcome.BROKEN_WORKER)).one_minimal


@pytest.mark.parametrize("outcome", [Outcome.SLIPPED, Outcome.TIMED_OUT, Outcome.INVALID])
def test_other_answers_are_counted_under_their_names(outcome: Outcome) -> None:
    found = certified(TWO_NEEDED, FakeOracle(lambda case: outcome), tuple(p for p in PASSES if p.name == "cut ops"))
    assert found.one_minimal
    assert found.counts() == {"cut ops": {"sites": 2, outcome.value: 2}}


def test_edits_that_make_no_sense_or_nothing_smaller_cost_no_question() -> None:
    def senseless(case: Case, sites: tuple[Site, ...]) -> Case:
        raise InvalidCandidate("no")

    edits = (
        Pass("senseless", lambda case: (("a",), ("b",)), senseless),
        Pass("idle", lambda case: (("a",),), lambda case, sites: case),
    )
    oracle = FakeOracle(lambda case: True)
    found = certified(TWO_NEEDED, oracle, edits)
    assert (oracle.queries, found.one_minimal) == (0, True)
    assert found.counts() == {"senseless": {"sites": 2, "no case": 2}, "idle": {"sites": 1, "not smaller": 1}}


def test_after_a_search_nothing_has_to_be_asked_again(tmp_path: Path) -> None:
    run = run_reduction(line("torch.abs", "torch.relu", "torch.exp", "torch.neg"), BOTH, tmp_path)
    before = run.oracle.queries
    assert certified(run.reduction.case, run.oracle).one_minimal
    assert run.oracle.queries == before


def test_a_certificate_is_what_was_saved_of_it(tmp_path: Path) -> None:
    found = certified(TWO_NEEDED, FakeOracle(BOTH))
    certificates.save(found, tmp_path / "certificate.json")
    assert certificates.load(tmp_path / "certificate.json") == found


@pytest.mark.parametrize("text", ["[[1]]", "3", "{", "[3]"])
def test_a_file_that_is_no_certificate_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "certificate.json").write_text(text)
    with pytest.raises(ValueError):
        certificates.load(tmp_path / "certificate.json")


def test_two_certificates_differ_in_each_question_answered_otherwise() -> None:
    before = Certificate((Asked("cut ops", "a", "1", "passes"), Asked("dims", "b", "2", "passes")))
    now = Certificate((Asked("cut ops", "a", "1", "fails"), Asked("values", "c", "3", "passes")))
    assert differences(before, before) == ()
    assert differences(before, now) == (
        "cut ops at a: passes before, fails now",
        "dims at b: passes before, not asked now",
        "values at c: not asked before, passes now",
    )


def test_the_chain_of_one_op_has_no_cut_to_ask() -> None:
    found = certified(chain("x", ("torch.relu",)), FakeOracle(lambda case: False))
    assert "cut ops" not in found.counts()
