"""Which applications are named: the search over them, the order of the kinds, what confirms a culprit and what does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from minify.ablation import WATCHED, alone, parse, without
from minify.case import digest
from minify.localize.inside import KINDS, NONE_MET, NOT_HERE, QUESTIONS, Culprit, Inside, look_inside
from minify.torch_internals.ablations import HANDLES
from minify.verdict import Divergence, Observation, Outcome, Signature
from tests.fake_oracle import FakeCompiler
from tests.reducing import RAISES, WRONG_VALUE, line

CASE = line("torch.neg", "torch.exp")
MANY = tuple(f"n{place}" for place in range(40))
Rule = Callable[[frozenset[str]], "bool | Outcome | Observation"]


def needs(*names: str) -> Rule:
    """Fails for as long as all these are on; `names` as `fusion:op1+op2`."""
    return lambda on: set(names) <= on


def looked(parts: dict[str, Any], rule: Rule, signature: Signature = WRONG_VALUE, **how: Any) -> Inside:
    asked = {key: how.pop(key) for key in ("stage", "questions") if key in how}
    return look_inside(CASE, signature, FakeCompiler(parts, rule, **how), **asked)


def culprit(found: Inside) -> Culprit:
    assert found.culprit is not None, found.notes
    return found.culprit


def groups(found: Inside) -> list[list[str]]:
    return [[application.name for application in group] for group in culprit(found).groups]


def answers(found: Inside) -> dict[str, str]:
    return {str(row.ablation): row.answer for row in found.table}


# --- the search ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("place", [0, 17, 39])
def test_one_application_among_many_is_named_and_confirmed_pairwise(place: int, width: int) -> None:
    name = f"n{place}"
    found = looked({"lowering": MANY, "fusion": ("f",)}, needs(f"lowering:{name}"), width=width)
    assert culprit(found).kind == "lowering" and groups(found) == [[name]] and culprit(found).minimal
    watched, gone, lone = culprit(found).confirmations
    assert (watched.ablation, watched.answer) == (WATCHED, "fails")
    assert (gone.ablation, gone.answer) == (without("lowering", [name]), "passes")
    assert (lone.ablation, lone.answer) == (alone("lowering", [name]), "fails")
    assert len({row.digest for row in culprit(found).confirmations}) == 3 and watched.digest == digest(CASE)
    assert found.queries <= 16


def test_two_applications_that_are_needed_together_are_one_group() -> None:
    found = looked({"fusion": MANY}, needs("fusion:n3", "fusion:n30"))
    assert groups(found) == [["n3", "n30"]] and culprit(found).confirmations[1].passes
    assert str(culprit(found)) == "fusion n3 (about n3) and n30 (about n30)"


def test_two_applications_of_which_each_suffices_are_two_groups() -> None:
    found = looked({"lowering": MANY}, lambda on: bool({"lowering:n3", "lowering:n30"} & on))
    assert sorted(groups(found)) == [["n3"], ["n30"]]
    assert [row.answer for row in culprit(found).confirmations] == ["fails", "passes", "fails", "fails"]
    assert "; or n" in str(culprit(found))


def test_what_takes_the_place_of_a_culprit_is_told_from_it() -> None:
    """Without the fusion of a with b, a is fused with c, which is wrong as well and was not in the list."""
    compiler = FakeCompiler({"fusion": ("a+b", "d+e")}, needs("fusion:a+b"), instead={"fusion": ("a+c",)})
    compiler.predicate = lambda on: bool({"fusion:a+b", "fusion:a+c"} & on)
    found = look_inside(CASE, WRONG_VALUE, compiler)
    assert groups(found) == [["a+b"]]
    assert answers(found)["--off fusion:a+b"] == "fails"
    assert (
        culprit(found).confirmations[1].ablation == alone("fusion", ["d+e"]) and culprit(found).confirmations[1].passes
    )


def test_a_kind_with_a_single_application_is_confirmed_all_the_same() -> None:
    found = looked({"fusion": ("f",)}, needs("fusion:f"))
    assert groups(found) == [["f"]] and [row.answer for row in culprit(found).confirmations] == [
        "fails",
        "passes",
        "fails",
    ]


def test_applications_that_changed_something_are_tried_before_idle_ones() -> None:
    busy = looked({"pass": MANY}, needs("pass:n20"), idle=frozenset(MANY) - {"n20", "n30"})
    assert groups(busy) == [["n20"]] and busy.queries == 4  # watched, all off, n20 alone, without n20
    wrong_hint = looked({"pass": MANY}, needs("pass:n20"), idle=frozenset(MANY) - {"n5", "n30"})
    assert groups(wrong_hint) == [["n20"]]


def test_the_same_is_found_whether_answers_come_one_by_one_or_ahead() -> None:
    parts = {"pass": ("p",), "lowering": MANY, "fusion": MANY}
    one, three = (looked(parts, needs("lowering:n7", "lowering:n9"), width=width) for width in (1, 3))
    assert one == three


# --- which kind ---------------------------------------------------------------------------------------------------------


def test_of_the_kinds_that_cure_the_last_that_the_compiler_comes_to_is_named() -> None:
    parts = {"pass": ("p", "q"), "lowering": ("a", "b"), "fusion": ("f", "g"), "codegen": ("cpp.simdlen",)}
    found = looked(parts, needs("pass:p", "lowering:a", "lowering:b", "fusion:g"))
    assert culprit(found).kind == "fusion" and groups(found) == [["g"]]
    assert "it passes without any pass or any lowering as well, which comes before" in culprit(found).notes


def test_a_lowering_is_said_to_stand_for_the_code_generated_for_it() -> None:
    found = looked({"lowering": ("relu",), "codegen": ("cpp.simdlen",)}, needs("lowering:relu"))
    assert any("code generated for it" in note for note in culprit(found).notes)


def test_precision_is_asked_first_and_settles_it() -> None:
    compiler = FakeCompiler({"precision": ("casts",), "lowering": MANY}, needs("precision:casts", "lowering:n1"))
    found = look_inside(CASE, WRONG_VALUE, compiler)
    assert culprit(found).kind == "precision" and any("rounding" in note for note in culprit(found).notes)
    assert compiler.asked[:2] == [WATCHED, alone("precision")]
    assert all(ablation.kind in ("", "precision") for ablation in compiler.asked)


def test_each_stage_has_kinds_of_its_own() -> None:
    parts = {"decomposition": ("aten.silu.default",), "lowering": ("a",)}
    rule = needs("decomposition:aten.silu.default", "lowering:a")
    assert culprit(looked(parts, rule, stage="decompositions")).kind == "decomposition"
    assert culprit(looked(parts, rule, stage="Inductor")).kind == "lowering"
    nothing = looked(parts, rule, stage="CUDA graphs")
    assert nothing.culprit is None and nothing.queries == 0 and "no part of CUDA graphs" in nothing.notes[0]


def test_where_no_kind_cures_it_that_is_said_with_the_table() -> None:
    parts: dict[str, Any] = {"pass": ("p",), "lowering": ("a", "b"), "fusion": (), "codegen": "no such config"}
    found = looked(parts, lambda on: True)
    assert found.culprit is None and found.notes == ("nothing that can be left out of it cures it",)
    assert answers(found) == {
        "nothing off": "fails",
        "--off pass": "fails",
        "--off lowering": "fails",
        "--off fusion": NONE_MET,
        "--off codegen": NOT_HERE,
    } | {f"--off {kind.name}": NONE_MET for kind in KINDS if kind.name not in parts and "Inductor" in kind.stages}
    assert [row.digest == "" for row in found.table] == [row.answer in (NONE_MET, NOT_HERE) for row in found.table]
    assert found.queries == 3


# --- answers that are none ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [Outcome.INVALID, Outcome.TIMED_OUT, Outcome.BROKEN_WORKER])
def test_an_answer_that_is_none_cures_nothing_and_confirms_nothing(answer: Outcome) -> None:
    found = looked({"lowering": ("a", "b"), "fusion": ("f",)}, lambda on: "fusion:f" in on or answer)
    assert found.culprit is None and answers(found)["--off fusion"] == answer.value


def test_a_kind_that_fails_otherwise_without_all_of_it_may_still_be_to_blame() -> None:
    """Where all passes are off the compiler raises; without the wrong one alone it is right."""

    def rule(on: frozenset[str]) -> bool | Outcome:
        return Outcome.SLIPPED if "pass:needed" not in on else "pass:wrong" in on

    found = looked({"pass": ("needed", "idle", "wrong"), "lowering": ("a",)}, rule)
    assert answers(found)["--off pass"] == "slipped" and groups(found) == [["wrong"]]
    assert [application.name for application in culprit(found).beside] == ["needed"]
    assert [str(row.ablation) for row in culprit(found).confirmations] == [
        "nothing off", "--off pass:wrong", "--only pass:needed,wrong"
    ]  # fmt: skip
    assert [row.answer for row in culprit(found).confirmations] == ["fails", "passes", "fails"]


def test_what_is_not_confirmed_is_not_named_and_another_kind_is_looked_at() -> None:
    """Without all fusions it passes; without just the one that suffices, it raises."""

    def rule(on: frozenset[str]) -> bool | Outcome:
        if "fusion:f" not in on and "fusion:g" in on:
            return Outcome.SLIPPED
        return {"fusion:f", "lowering:a"} <= on

    found = looked({"lowering": ("a", "b"), "fusion": ("f", "g")}, rule)
    assert culprit(found).kind == "lowering" and groups(found) == [["a"]]
    assert found.notes == ("fusion f: without it the answer is 'slipped'",)


def test_a_failure_that_does_not_show_when_watched_is_not_looked_into() -> None:
    found = looked({"lowering": ("a",)}, lambda on: False)
    assert found.culprit is None and found.queries == 1 and "watched" in found.notes[0]


def test_of_a_program_that_kills_its_process_what_was_compiled_is_listed_without_a_run() -> None:
    found = looked({"pass": ("p",), "lowering": MANY}, needs("lowering:n7"), signature=RAISES, dies="running")
    assert groups(found) == [["n7"]] and [str(row.ablation) for row in found.table[:2]] == ["nothing off", "--off run"]


def test_where_the_compiler_itself_dies_a_kind_is_named_as_a_whole() -> None:
    """It lives to list nothing, and still each kind can be left out."""
    parts: dict[str, Any] = {"pass": ("p",), "lowering": ("a", "b"), "fusion": "no Scheduler"}
    found = looked(parts, needs("lowering:a"), signature=RAISES, dies="compiling")
    assert culprit(found).kind == "lowering" and culprit(found).groups == ()
    assert str(culprit(found)) == "lowering as a whole"
    assert [row.answer for row in culprit(found).confirmations] == ["fails", "passes"]
    assert answers(found)["--off fusion"] == NOT_HERE


# --- how many questions -------------------------------------------------------------------------------------------------


def test_no_question_is_asked_twice_and_few_at_all() -> None:
    parts = {kind.name: MANY for kind in KINDS if not kind.settles}
    compiler = FakeCompiler(parts, needs("lowering:n7", "lowering:n30"))
    found = look_inside(CASE, WRONG_VALUE, compiler)
    assert groups(found) == [["n7", "n30"]]
    assert len(compiler.asked) == len(set(compiler.asked)) == found.queries <= QUESTIONS


@pytest.mark.parametrize("width", [1, 4])
def test_out_of_questions_the_smallest_group_so_far_is_confirmed_and_not_called_minimal(width: int) -> None:
    compiler = FakeCompiler({"lowering": MANY}, needs("lowering:n7", "lowering:n30"), width=width)
    found = look_inside(CASE, WRONG_VALUE, compiler, questions=9)
    (group,) = groups(found)
    assert {"n7", "n30"} < set(group) < set(MANY) and not culprit(found).minimal
    assert [row.answer for row in culprit(found).confirmations] == ["fails", "passes", "fails"]
    assert len(compiler.asked) <= 9 and compiler.computed <= 9


def test_too_few_questions_name_nothing() -> None:
    parts = {kind.name: MANY for kind in KINDS}
    found = looked(parts, needs("lowering:n7"), questions=5)
    assert found.culprit is None and found.queries == 5 and found.notes == ("5 questions did not suffice",)


# --- what is kept of it -------------------------------------------------------------------------------------------------


def test_each_row_says_what_was_left_out_in_words_that_can_be_read_back() -> None:
    found = looked({"lowering": ("a", "b"), "fusion": ("f",)}, needs("lowering:b"))
    for row in found.table:
        words = row.ablation.options()
        assert row.as_row()["left_out"] == (" ".join(words) or "nothing off")
        assert not words or parse(*words) == row.ablation
    whole = next(row for row in found.table if row.ablation == alone("fusion"))
    assert whole.as_row()["config"] == ["torch._inductor.config.max_fusion_size = 1"]


def test_a_row_keeps_the_failure_seen_and_its_numbers() -> None:
    seen = Observation("compare", divergences=(Divergence("output:y", "value", excess=3.0, ratio=9.0),))
    other = Observation("compare", drift=(Divergence("output:y", "value", excess=1.5),))
    found = looked({"lowering": ("a",)}, lambda on: seen if "lowering:a" in on else other)
    by_words = {str(row.ablation): row for row in found.table}
    failing, passing = by_words["nothing off"], by_words["--off lowering"]
    assert failing.signature == dataclasses.replace(WRONG_VALUE) and failing.numbers == seen.divergences[0]
    assert passing.passes and passing.signature is None and passing.numbers == other.drift[0]


def test_every_kind_is_one_that_torch_can_be_asked_for() -> None:
    assert {kind.name for kind in KINDS} == set(HANDLES)
