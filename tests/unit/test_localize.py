"""The ladder: which backends are asked, in which order, and which stage is named."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from minify.case import Arg, Case, Const
from minify.localize import STAGES, Rung, first_stage
from minify.verdict import Outcome
from tests.fake_oracle import FakeOracle
from tests.reducing import RAISES, WRONG_VALUE, line

FAILS, PASSES, SLIPPED, INVALID = Outcome.FAILS, Outcome.PASSES, Outcome.SLIPPED, Outcome.INVALID


def on(backend: Arg, **settings: object) -> Case:
    case = line("torch.neg", "torch.exp")
    return dataclasses.replace(case, settings=dataclasses.replace(case.settings, backend=backend, **settings))  # type: ignore[arg-type]


def answering(answers: Mapping[Arg, Outcome], width: int = 1) -> FakeOracle:
    """An oracle that answers by backend; what isn't named passes."""
    return FakeOracle(lambda case: answers.get(case.settings.backend, PASSES), width=width)


@pytest.mark.parametrize("width", [1, 8])
@pytest.mark.parametrize(
    ("answers", "stage", "questions"),
    [
        ({"eager": FAILS, "aot_eager": FAILS}, "Dynamo", 1),
        ({"aot_eager": FAILS, "aot_eager_decomp_partition": FAILS}, "AOTAutograd", 2),
        ({"aot_eager_decomp_partition": FAILS}, "decompositions", 3),
        ({}, "Inductor", 3),
    ],
    ids=["dynamo", "aot", "decompositions", "inductor"],
)
def test_the_first_rung_that_fails_names_the_stage(
    answers: dict[Arg, Outcome], stage: str, questions: int, width: int
) -> None:
    oracle = answering(answers, width)
    found = first_stage(on("inductor"), WRONG_VALUE, oracle)
    assert found.stage == stage and oracle.queries == questions
    assert [rung.backend for rung in found.rungs][:questions] == [stage.backend for stage in STAGES][:questions]
    assert found.rungs[-1].outcome == "fails" and found.rungs[-1].stage == stage


def test_a_rung_that_fails_otherwise_or_cannot_run_is_noted_and_passed_over() -> None:
    found = first_stage(on("inductor"), WRONG_VALUE, answering({"eager": INVALID, "aot_eager": SLIPPED}))
    assert found.stage == "Inductor"
    assert [rung.outcome for rung in found.rungs] == ["invalid", "slipped", "passes", "fails"]


def test_a_crash_has_a_stage_too() -> None:
    found = first_stage(on("inductor"), RAISES, answering({"aot_eager": FAILS}))
    assert found.stage == "AOTAutograd"


@pytest.mark.parametrize("backend", [Const("my_backend"), "somebody_elses"])
def test_a_backend_of_the_users_own_is_compared_with_dynamo_alone(backend: Arg) -> None:
    oracle = answering({"aot_eager": FAILS})
    found = first_stage(on(backend), WRONG_VALUE, oracle)
    name = str(getattr(backend, "text", backend))
    assert found.rungs == (Rung("Dynamo", "eager", "passes"), Rung(f"backend {name}", name, "fails"))
    assert found.stage == f"backend {name}" and oracle.queries == 1
    assert first_stage(on(backend), WRONG_VALUE, answering({"eager": FAILS})).stage == "Dynamo"


@pytest.mark.parametrize(
    ("own", "below", "stage"),
    [
        ("eager", [], "Dynamo"),
        ("aot_eager", ["eager"], "AOTAutograd"),
        ("aot_eager_decomp_partition", ["eager", "aot_eager"], "decompositions"),
    ],
)
def test_a_backend_on_the_ladder_is_compared_with_what_lies_below_it(own: str, below: list[Arg], stage: str) -> None:
    later: dict[Arg, Outcome] = {"aot_eager": FAILS, "aot_eager_decomp_partition": FAILS}
    oracle = answering({} if own == "aot_eager_decomp_partition" else later)
    found = first_stage(on(own), WRONG_VALUE, oracle)
    assert found.stage == stage
    assert [case.settings.backend for case in oracle.asked] == below
    assert found.rungs[-1] == Rung(stage, own, "fails")


def test_rungs_keep_all_settings_but_those_that_are_inductors_own() -> None:
    config = (("torch._dynamo.config", "specialize_int", True),)
    case = on("inductor", mode="max-autotune", options=(("max_fusion_size", 1),), dynamic=True, config=config)
    oracle = answering({})
    first_stage(case, WRONG_VALUE, oracle)
    for asked in oracle.asked:
        assert (asked.settings.mode, asked.settings.options) == (None, ())
        assert (asked.settings.dynamic, asked.settings.config) == (True, config)
        assert asked.graph == case.graph and asked.inputs == case.inputs
