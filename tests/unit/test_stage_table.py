"""The stage table judges minify and CompilerBisector rightly, goes on where it was stopped, and counts. Compiles nothing."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from scripts import bisector, corpus_judge, stage_table
from scripts.bisector import NO_ANSWER, RIGHT, WRONG
from scripts.corpus_judge import Expected
from scripts.stage_table import Row

EXPECTED = Expected("two_passes", "stage", 0, "value", 0, ("2.13",), ("cpu",), slow=False, args=())
REPORT: dict[str, Any] = {
    "outcome": "localised",
    "stage": "Inductor",
    "inside": "pass post_grad.first and post_grad.second",
    "ladder": [{}] * 6,
    "queries": 21,
}
ANSWER = {"backend": "inductor", "subsystem": "post_grad_passes", "debug_info": "first", "calls": 12, "seconds": 9.0}


def expected(stage: str = "Inductor", *inside: str) -> Expected:
    return dataclasses.replace(EXPECTED, stage=stage, inside=inside)


def answer(backend: str, subsystem: str | None = None) -> dict[str, Any]:
    return ANSWER | {"backend": backend, "subsystem": subsystem}


def test_a_row_holds_both_answers_against_what_is_expected() -> None:
    row = stage_table.row_of(expected("Inductor", "pass", "first", "and", "second"), REPORT, 30.0, ANSWER, 12.0)
    assert (row.stage_right, row.inside_right, row.right, row.cheap) == (True, True, True, True)
    assert (row.rungs, row.queries, row.calls, row.verdict) == (6, 21, 12, RIGHT)
    assert bisector.told(row.answer) == "inductor: post_grad_passes: first"


@pytest.mark.parametrize(
    ("wanted", "stage_right", "inside_right"),
    [
        (expected("decompositions"), False, None),
        (expected("Inductor", "lowering"), True, False),
        (expected("Inductor"), True, None),
    ],
)
def test_a_wrong_stage_and_a_wrong_application_are_told_apart(
    wanted: Expected, stage_right: bool, inside_right: bool | None
) -> None:
    row = stage_table.row_of(wanted, REPORT, 30.0, ANSWER, 12.0)
    assert (row.stage_right, row.inside_right) == (stage_right, inside_right)
    assert row.right == (stage_right and inside_right is not False)


def test_a_run_without_a_report_is_wrong_and_a_healthy_program_is_named_by_its_outcome() -> None:
    assert not stage_table.row_of(expected("no divergence"), {}, 1.0, {}, 1.0).right
    healthy = REPORT | {"stage": "", "inside": "", "outcome": "no divergence"}
    assert stage_table.row_of(expected("no divergence"), healthy, 1.0, {}, 1.0).right


@pytest.mark.parametrize(
    ("stage", "inside", "right"),
    [
        ("Dynamo", "", [("eager", None)]),
        ("AOTAutograd", "", [("aot_eager", None)]),
        ("decompositions", "decomposition audio.clip", [("aot_eager_decomp_partition", "decomposition")]),
        ("decompositions", "step cse", [("aot_eager_decomp_partition", "aot_eager_decomp_partition_cse")]),
        ("Inductor", "pass pre_grad.own", [("inductor", "pre_grad_passes")]),
        ("Inductor", "pass joint.own", [("inductor", "joint_graph_passes")]),
        ("Inductor", "pattern match relu", [("inductor", "joint_graph_passes"), ("inductor", "post_grad_passes")]),
        ("Inductor", "layout layout_optimization", [("inductor", "inductor_layout_optimization")]),
        ("Inductor", "lowering relu", [("inductor", "lowerings")]),
        ("Inductor", "fusion", [("inductor", None), ("inductor", "lowerings")]),
        ("max-autotune", "", [("inductor", None), ("inductor", "post_grad_passes")]),
    ],
)
def test_the_bisector_is_right_where_it_names_the_backend_and_subsystem_with_the_fault(
    stage: str, inside: str, right: list[tuple[str, str | None]]
) -> None:
    wanted = expected(stage, *inside.split())
    everything = [("eager", None), ("aot_eager", None), ("aot_eager_decomp_partition", "decomposition")]
    everything += [
        ("aot_eager_decomp_partition", "aot_eager_decomp_partition_cse"),
        ("inductor", "inductor_cudagraphs"),
    ]
    found = [bisector.verdict(wanted, answer(*each)) for each in right]
    assert found == [RIGHT] * len(right)
    others = [each for each in everything if each[0] != right[0][0]]
    assert {bisector.verdict(wanted, answer(*each)) for each in others} == {WRONG}


def test_a_subsystem_beside_the_fault_is_wrong_and_none_where_there_is_one_is_no_answer() -> None:
    assert bisector.verdict(expected("Inductor", "lowering", "relu"), answer("inductor", "post_grad_passes")) == WRONG
    assert bisector.verdict(expected("Inductor", "lowering", "relu"), answer("inductor")) == NO_ANSWER
    assert bisector.verdict(expected("Inductor", "fusion"), answer("inductor")) == RIGHT


def test_nothing_found_is_right_for_a_healthy_program_alone_and_a_bisection_that_died_is_no_answer() -> None:
    nothing = answer("")
    assert bisector.verdict(expected("no divergence"), nothing) == RIGHT
    assert bisector.verdict(expected("no divergence"), answer("inductor", "lowerings")) == WRONG
    assert bisector.verdict(expected("the backend `own`"), nothing) == NO_ANSWER
    assert bisector.verdict(expected("Inductor", "lowering"), nothing) == NO_ANSWER
    assert bisector.verdict(expected("Inductor"), stage_table.read_answer("Segmentation fault\n", -11)) == NO_ANSWER


def test_an_answer_is_the_last_line_of_that_form() -> None:
    text = f"noise\n{json.dumps({'backend': 'eager'})}\n{json.dumps(ANSWER)}\nmore noise\n"
    assert stage_table.read_answer(text, 0) == ANSWER
    assert stage_table.read_answer("noise\n", None)["error"] == "stopped at the limit"


def rows() -> list[Row]:
    first = stage_table.row_of(expected("Inductor", "pass"), REPORT, 30.0, ANSWER, 12.0)
    dear = dataclasses.replace(expected("Dynamo"), name="dear")
    return [first, stage_table.row_of(dear, REPORT | {"queries": 41}, 50.0, answer(""), 4.0)]


def test_the_footer_counts_what_was_right_and_names_what_took_too_much() -> None:
    text = stage_table.summary(rows())
    assert "2 programs. minify: the stage right in 1, what is inside right in 1 of 1" in text
    assert "over 12 or 40: dear" in text
    assert "1 right, 0 wrong, 1 no answer" in text
    assert stage_table.markdown(rows()).startswith(text)
    assert all(len(stage_table.cells(row)) == len(stage_table.COLUMNS) for row in rows())


def test_rows_are_read_again_the_last_of_each_case_and_held_to_what_is_expected_now(tmp_path: Path) -> None:
    case = corpus_judge.load(corpus_judge.CORPUS / "div_floor_inf")
    first = stage_table.row_of(case, REPORT | {"inside": "pass one"}, 30.0, ANSWER, 12.0)
    better = dataclasses.replace(first, inside="lowering div", queries=9)
    stale = dataclasses.replace(better, expected=dataclasses.replace(case, stage="Dynamo"))
    (tmp_path / "rows.jsonl").write_text("".join(row.as_line() for row in (first, stale)))
    assert stage_table.read_rows(tmp_path) == {"div_floor_inf": better}
    assert better.right and not first.right and not stale.right
    assert stage_table.read_rows(tmp_path / "empty") == {}


def test_every_place_of_the_corpus_but_own_backends_and_healthy_programs_has_an_answer_that_is_right() -> None:
    cases = [corpus_judge.load(path.parent) for path in sorted(corpus_judge.CORPUS.glob("*/expected.toml"))]
    for case in (case for case in cases if case.stage):
        named = bool(bisector.place_of(case))
        assert named != (case.stage == bisector.HEALTHY or "backend `" in case.stage), case.name
