"""The tables over the corpus judge reports rightly: what is expected of one, what passes cost, what drift is. Compiles nothing."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from scripts import corpus_judge, corpus_table, drift_table, pass_table
from scripts.corpus_judge import Alone, Expected, Row
from scripts.drift_table import Answer

EXPECTED = Expected(
    name="div_floor_inf",
    command="accuracy",
    exit_code=0,
    signature="value",
    max_ops=1,
    torch=("2.13",),
    devices=("cpu",),
    slow=False,
    args=(),
)
REPORT: dict[str, Any] = {
    "outcome": "reduced",
    "exit_code": 0,
    "signature": {"family": "value", "name": "value"},
    "reduced": {"ops": 1, "inputs": 2, "elements": 6, "recorded_inputs": 0},
    "repro_lines": 40,
    "one_minimal": True,
    "verified": {"runs": 2, "reproduced": 2},
    "also_found": ["metadata stride; `minify resume also-found-1` reduces it"],
    "decisive": ["x is a transpose (stride (1, 2)); contiguous passes", "dim 0 of x: size 3; 2 passes"],
    "passing": "passing.py",
    "calls": ["torch.div"],
    "queries": 9,
}


def row(report: dict[str, Any] = REPORT, status: int | None = 0, **changed: Any) -> Row:
    return Row(dataclasses.replace(EXPECTED, **changed), status, 3.0, report, Alone(True, "yes"), True)


def test_a_report_that_says_all_that_is_expected_differs_in_nothing() -> None:
    wanted: dict[str, Any] = {
        "also_found": "metadata stride",
        "facts": ("is a transpose", "size 3"),
        "calls": (".div",),
    }
    assert corpus_judge.differences(row()) == []
    assert corpus_judge.differences(row(**wanted)) == []


@pytest.mark.parametrize(
    ("key", "wanted", "told"),
    [
        ("also_found", "exception", "also_found says nothing of 'exception': metadata stride"),
        ("facts", ("is a transpose", "float16"), "decisive says nothing of 'float16': x is a transpose"),
        ("calls", (".mul",), "calls says nothing of '.mul': torch.div"),
    ],
)
def test_what_a_report_leaves_unsaid_differs(key: str, wanted: Any, told: str) -> None:
    (found,) = corpus_judge.differences(row(**{key: wanted}))
    assert found.startswith(told)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"ops": 2}, "2 ops for 1"),
        ({"inputs": 3}, "3 inputs for 2"),
        ({"elements": 7}, "7 elements for 6"),
        ({"elements": None}, "None elements for 6"),
        ({"ops": 0}, "no op is left"),
        ({"recorded_inputs": 1}, "1 inputs of real data"),
    ],
)
def test_a_program_larger_than_it_can_be_made_differs(changed: dict[str, int], told: str) -> None:
    report = REPORT | {"reduced": REPORT["reduced"] | changed}
    assert corpus_judge.differences(row(report, max_inputs=2, max_elements=6)) == [told]


def test_inputs_and_elements_are_bounded_only_where_the_expectation_bounds_them() -> None:
    large = REPORT | {"reduced": REPORT["reduced"] | {"inputs": 30, "elements": 70}}
    assert corpus_judge.differences(row(large)) == []
    assert corpus_judge.differences(row(large, max_inputs=0)) == ["30 inputs for 0"]


def test_a_smaller_program_than_was_expected_is_no_difference() -> None:
    smaller = {"ops": 1, "inputs": 0, "elements": 0, "recorded_inputs": 0}
    assert corpus_judge.differences(row(REPORT | {"reduced": smaller}, max_inputs=2, max_elements=6)) == []


def test_facts_want_a_program_that_passes_beside_the_repro() -> None:
    assert corpus_judge.differences(row(REPORT | {"passing": None}, facts=("is a transpose",))) == [
        "no passing.py beside it"
    ]
    assert corpus_judge.differences(row(REPORT | {"passing": None})) == []


def test_parts_of_one_fact_are_not_found_across_two_lines() -> None:
    assert corpus_judge.differences(row(facts=("contiguous passes", "passes; dim 0")))


@pytest.mark.parametrize(
    "report", [REPORT | {"also_found": []}, {k: v for k, v in REPORT.items() if k != "also_found"}]
)
def test_a_report_without_such_lines_says_nothing(report: dict[str, Any]) -> None:
    assert corpus_judge.differences(row(report, also_found="metadata")) == [
        "also_found says nothing of 'metadata': empty"
    ]


def test_optional_expectations_are_read_where_they_are_and_nothing_where_they_are_not(tmp_path: Path) -> None:
    lines = [
        'command = "accuracy"',
        "exit_code = 0",
        'signature = "value"',
        "max_ops = 1",
        'torch = ["2.13"]',
        'devices = ["cpu"]',
        "slow = false",
        "args = []",
    ]
    (tmp_path / "expected.toml").write_text("\n".join(lines))
    assert dataclasses.replace(corpus_judge.load(tmp_path), name=EXPECTED.name) == EXPECTED
    lines += ['also_found = "metadata"', 'facts = ["a", "b"]', 'calls = ["div"]', "max_inputs = 2", "max_elements = 0"]
    lines += ['stage = "Inductor"', 'inside = ["fusion", "and"]']
    (tmp_path / "expected.toml").write_text("\n".join(lines))
    found = corpus_judge.load(tmp_path)
    assert (found.stage, found.inside) == ("Inductor", ("fusion", "and"))
    assert (found.max_inputs, found.max_elements) == (2, 0)
    assert (found.also_found, found.facts, found.calls) == ("metadata", ("a", "b"), ("div",))


# --- stage --------------------------------------------------------------------------------------------------------------

LOCATED: dict[str, Any] = {
    "outcome": "localised",
    "exit_code": 0,
    "stage": "Inductor",
    "inside": "fusion op0+op1 (sin with cos) and op0+op2 (sin with exp)",
}


def test_a_run_that_only_names_the_stage_needs_no_repro() -> None:
    stage_row = Row(
        dataclasses.replace(EXPECTED, command="stage", max_ops=0, stage="Inductor", inside=("fusion", "and")),
        0, 3.0, LOCATED, None, True,
    )  # fmt: skip
    assert corpus_judge.differences(stage_row) == []


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"stage": "decompositions"}, "stage Inductor for decompositions"),
        ({"stage": "Inductor", "inside": ("pass", "sin")}, "inside says nothing of 'pass': fusion op0"),
        ({"stage": "no divergence"}, "stage Inductor for no divergence"),
    ],
)
def test_another_stage_or_application_than_is_expected_differs(changed: dict[str, Any], told: str) -> None:
    (found,) = corpus_judge.misplaced(dataclasses.replace(EXPECTED, **changed), LOCATED)
    assert found.startswith(told)


def test_a_reduction_is_held_to_its_stage_as_well() -> None:
    found = corpus_judge.differences(row(REPORT | {"stage": "decompositions"}, stage="Inductor", inside=("pass",)))
    assert found == ["stage decompositions for Inductor", "inside says nothing of 'pass': empty"]


# --- passes -------------------------------------------------------------------------------------------------------------


def count(tried: int, accepted: int, seconds: float = 1.0) -> dict[str, float]:
    return {
        "tried": tried + 3,
        "queries": tried,
        "accepted": accepted,
        "invalid": 0,
        "slipped": 0,
        "timed_out": 0,
        "seconds": seconds,
    }


PASSES: list[dict[str, Any]] = [
    {"passes": {"ops": count(2, 1), "dims": count(40, 0, 20.0), "values": count(10, 2)}},
    {"passes": {"ops": count(8, 3, 4.0), "values": count(40, 0)}},
    {"outcome": "no failure"},
]


def test_passes_are_summed_over_all_cases_and_shown_by_their_queries() -> None:
    rows = pass_table.pass_rows(PASSES)
    assert [(row.name, row.queries, row.accepted, row.share, row.seconds) for row in rows] == [
        ("values", 50, 2, 0.5, 2.0),
        ("dims", 40, 0, 0.4, 20.0),
        ("ops", 10, 4, 0.1, 5.0),
    ]


def test_a_pass_is_marked_that_takes_over_a_quarter_of_the_queries_and_brings_nothing() -> None:
    assert [row.name for row in pass_table.pass_rows(PASSES) if row.barren] == ["dims"]
    edge = pass_table.pass_rows([{"passes": {"a": count(1, 0), "b": count(3, 1)}}])
    assert not any(row.barren for row in edge), "a quarter is not over a quarter"


def test_no_passes_make_no_rows() -> None:
    assert pass_table.pass_rows([]) == []
    assert pass_table.pass_rows([{"passes": {"ops": count(0, 0)}}])[0].share == 0


def test_passes_stand_below_the_table_of_a_document_where_they_were_asked_for() -> None:
    rows = [row(REPORT | part) for part in PASSES]
    plain = corpus_table.document(rows, "2.13", "cpu", passes=False)
    both = corpus_table.document(rows, "2.13", "cpu", passes=True)
    assert both.startswith(plain)
    assert "dims" not in plain
    assert "| dims | 40 | 0 | 40% | 20 | BARREN |" in both.splitlines()
    assert "| ops | 10 | 4 | 10% | 5 |  |" in both.splitlines()


# --- drift --------------------------------------------------------------------------------------------------------------

NUMBERS = ("0.00293", "2.69e+03", "1e-05")


@pytest.mark.parametrize(
    ("message", "text", "numbers"),
    [
        (
            "drift, no divergence, in the 1 region(s) that model.py compiles: max abs 0.00293, max rel 2.69e+03, eager's own "
            "error 1e-05; it raised AssertionError: not equal",
            "drift",
            NUMBERS,
        ),
        (
            "ill-conditioned, drift, no divergence: output:words has max abs 0.00293, max rel 2.69e+03; eager's own error is "
            "1e-05; inputs off by one unit in the last place do as much",
            "ill-conditioned",
            NUMBERS,
        ),
        (
            "no divergence in 1 checked run(s) of the 1 region(s) that model.py compiles; its output is in /tmp/drift/x/script.log",
            "no divergence",
            (),
        ),
        ("other random numbers, no divergence: randn, rand draw in another order", "other random numbers", ()),
    ],
)
def test_an_answer_is_read_with_its_numbers(message: str, text: str, numbers: tuple[str, ...]) -> None:
    answer = drift_table.read_answer(1, message)
    assert (answer.text, answer.numbers) == (text, numbers)
    assert answer.faults() == []


@pytest.mark.parametrize(
    "answer",
    [
        Answer(0, "reduced torch.softmax"),
        Answer(None, "killed"),
        Answer(1, "drift"),
        Answer(1, "eager itself fails"),
    ],
)
def test_an_answer_that_no_healthy_program_should_get_is_a_fault(answer: Answer) -> None:
    assert answer.faults()
    found = drift_table.Row("healthy_x", Answer(1, "no divergence"), answer)
    assert found.faults[0].startswith("strict: ")
    assert "1 are answered wrongly" in drift_table.summary([found])
    assert "| healthy_x | 1 | no divergence |" in drift_table.markdown([found], ("--rtol", "1e-07"), "cpu")
