"""The ladder: which questions are asked, in which order, which stage is named, and what else the answers say."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping

import pytest

from minify.case import Arg, Case, Const, digest
from minify.features import CUDA_GRAPHS, INDUCTOR, MAX_AUTOTUNE
from minify.localize import STAGES, Localised, Stage, first_stage, ladder
from minify.localize.raised import raised_in
from minify.verdict import Divergence, Observation, Outcome, Signature
from tests.fake_oracle import FakeOracle
from tests.reducing import HANG_SIGNATURE, RAISES, WRONG_VALUE, line

FAILS, PASSES, SLIPPED, INVALID = Outcome.FAILS, Outcome.PASSES, Outcome.SLIPPED, Outcome.INVALID
PLAIN = ("eager", "Dynamo", "AOTAutograd", "decompositions", "Inductor's extern calls", "Inductor")
Answer = Outcome | Observation


def on(backend: Arg = "inductor", **settings: object) -> Case:
    case = line("torch.neg", "torch.exp")
    return dataclasses.replace(case, settings=dataclasses.replace(case.settings, backend=backend, **settings))  # type: ignore[arg-type]


def answering(case: Case, answers: Mapping[str, Answer], width: int = 1) -> FakeOracle:
    """An oracle that answers the rungs of `case` by stage; what isn't named passes."""
    names = {digest(question): stage.name for stage, question in ladder(case)}
    return FakeOracle(lambda asked: answers.get(names[digest(asked)], PASSES), width=width)


def climbed(
    answers: Mapping[str, Answer], case: Case | None = None, signature: Signature = WRONG_VALUE, width: int = 1
) -> Localised:
    case = case or on()
    return first_stage(case, signature, answering(case, answers, width))


def names(case: Case) -> tuple[str, ...]:
    return tuple(stage.name for stage, _ in ladder(case))


# --- which rungs there are ------------------------------------------------------------------------------------------------


def test_a_plain_program_stands_on_every_stage_down_to_inductor() -> None:
    assert names(on()) == PLAIN


@pytest.mark.parametrize(
    ("settings", "more"),
    [
        ({"mode": "default"}, ()),
        ({"mode": "max-autotune"}, ("max-autotune", "CUDA graphs")),
        ({"mode": "max-autotune-no-cudagraphs"}, ("max-autotune",)),
        ({"mode": "reduce-overhead"}, ("CUDA graphs",)),
        ({"options": (("triton.cudagraphs", True), ("max-autotune", True))}, ("max-autotune", "CUDA graphs")),
        ({"options": (("triton.cudagraphs", False), ("max_fusion_size", 1))}, ()),
        ({"config": ((INDUCTOR, "max_autotune_gemm", True),)}, ("max-autotune",)),
        ({"config": (("torch._dynamo.config", "specialize_int", True),)}, ()),
    ],
)
def test_autotuning_and_cuda_graphs_are_rungs_only_where_they_are_used(
    settings: dict[str, object], more: tuple[str, ...]
) -> None:
    case = on(**settings)
    assert names(case) == (*PLAIN, *more)
    assert ladder(case)[-1][1] == case, "the last rung is the case itself"


def test_a_program_in_lite_mode_has_no_inductor_above_its_extern_calls() -> None:
    assert names(on(mode="lite")) == PLAIN[:-1]


@pytest.mark.parametrize(("own", "last"), [("eager", "Dynamo"), ("aot_eager", "AOTAutograd")])
def test_a_backend_on_the_ladder_stands_on_what_lies_below_it(own: str, last: str) -> None:
    case = on(own)
    assert names(case) == PLAIN[: PLAIN.index(last) + 1]
    assert ladder(case)[-1][1] == case


@pytest.mark.parametrize("backend", [Const("my_backend"), "somebody_elses"])
def test_a_backend_of_the_users_own_stands_on_dynamo_alone(backend: Arg) -> None:
    name = str(getattr(backend, "text", backend))
    case = on(backend, options=(("level", 2),))
    assert names(case) == ("eager", "Dynamo", f"the backend `{name}`")
    assert ladder(case)[-1][1] == case


def test_rungs_keep_all_settings_but_those_they_are_about() -> None:
    config = (("torch._dynamo.config", "specialize_int", True), (INDUCTOR, "max_autotune", True))
    case = on(mode="max-autotune", dynamic=True, config=config, seed=3)
    by_name = {stage.name: question.settings for stage, question in ladder(case)}
    for stage, question in ladder(case):
        assert (question.settings.dynamic, question.settings.seed) == (True, 3)
        assert config[0] in question.settings.config
        assert question.graph == case.graph and question.inputs == case.inputs
        off = ("torch._dynamo.config", "disable", True) in question.settings.config
        assert off == (stage.name == "eager"), "no compiler on the lowest rung, and one on all others"
    assert [by_name[name].backend for name in PLAIN[:4]] == [
        "eager",
        "eager",
        "aot_eager",
        "aot_eager_decomp_partition",
    ]
    modes = {name: settings.mode for name, settings in by_name.items() if settings.backend == "inductor"}
    assert modes == {
        "Inductor's extern calls": "lite",
        "Inductor": None,
        "max-autotune": "max-autotune-no-cudagraphs",
        "CUDA graphs": "max-autotune",
    }
    assert by_name["Inductor"].config == config[:1] and by_name["CUDA graphs"].config == config


def test_options_become_configs_where_a_mode_takes_their_place() -> None:
    case = on(options=(("max-fusion-size", 1),), config=((INDUCTOR, "max_fusion_size", 7),))
    lite = next(question.settings for stage, question in ladder(case) if stage.mode == "lite")
    assert (lite.mode, lite.options, lite.config) == ("lite", (), ((INDUCTOR, "max_fusion_size", 1),))


def test_a_row_may_change_configs() -> None:
    config = ((INDUCTOR, "epilogue_fusion", True), (INDUCTOR, "max_fusion_size", 7))
    case = on(config=config, options=(("epilogue-fusion", True), ("shape_padding", False)))
    row = Stage("fusion", config=((INDUCTOR, "epilogue_fusion", False),))
    settings = row.of(case).settings
    assert settings.options == (("shape_padding", False),), "an option would win over the row's config"
    assert settings.config == ((INDUCTOR, "max_fusion_size", 7), (INDUCTOR, "epilogue_fusion", False))
    assert (settings.backend, settings.mode) == ("inductor", None)


def test_no_two_questions_of_a_ladder_are_one_query() -> None:
    for case in (on(), on(mode="max-autotune"), on("aot_eager"), on(Const("mine"))):
        asked = [digest(question) for _, question in ladder(case)]
        assert len(set(asked)) == len(asked)


@pytest.mark.parametrize("feature", [MAX_AUTOTUNE, CUDA_GRAPHS])
def test_every_mode_that_turns_a_feature_on_becomes_one_that_does_not(feature: object) -> None:
    modes = getattr(feature, "modes")  # noqa: B009 - rows of data, whatever their type
    assert not set(modes.values()) & set(modes)


# --- which stage is named -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 8])
@pytest.mark.parametrize("first", range(1, len(PLAIN)))
def test_the_first_rung_that_fails_names_the_stage_and_the_one_below_confirms_it(first: int, width: int) -> None:
    found = climbed(dict.fromkeys(PLAIN[first:], FAILS), width=width)
    assert found.stage == PLAIN[first]
    assert [rung.stage for rung in found.rungs] == list(PLAIN), "all rungs are asked, the lowest first"
    assert found.failing is found.rungs[first] and found.passing is found.rungs[first - 1]
    assert found.pair() == {"fails": found.rungs[first].digest, "passes": found.rungs[first - 1].digest}
    assert found.notes == ()


def test_where_nothing_fails_there_is_no_divergence() -> None:
    found = climbed({})
    assert (found.stage, found.failing, found.pair(), found.notes) == ("", None, {}, ())
    assert all(rung.passes for rung in found.rungs)


def test_a_ladder_that_is_not_monotone_names_the_first_rung_and_says_where_it_passes_again() -> None:
    found = climbed({"AOTAutograd": FAILS, "Inductor": FAILS})
    assert (found.stage, found.passing) == ("AOTAutograd", found.rungs[1])
    assert found.notes == ("it passes again at decompositions", "it passes again at Inductor's extern calls")


@pytest.mark.parametrize("unsettled", [SLIPPED, INVALID, Outcome.TIMED_OUT, Outcome.BROKEN_WORKER])
def test_a_rung_that_does_not_settle_it_is_named_along_with_the_one_above(unsettled: Outcome) -> None:
    found = climbed({"AOTAutograd": unsettled, "decompositions": FAILS, "Inductor": FAILS})
    assert found.stage == "AOTAutograd or decompositions"
    assert (found.failing, found.passing) == (found.rungs[3], found.rungs[1])


@pytest.mark.parametrize("unsettled", [SLIPPED, INVALID])
def test_extern_calls_that_do_not_settle_it_leave_inductor_to_blame(unsettled: Outcome) -> None:
    found = climbed({"Inductor's extern calls": unsettled, "Inductor": FAILS})
    assert found.stage == "Inductor"
    assert found.passing is not None and found.passing.stage == "decompositions"


def test_a_rung_that_slips_below_a_pass_is_told_and_not_blamed() -> None:
    found = climbed({"Dynamo": INVALID, "AOTAutograd": SLIPPED, "Inductor": FAILS})
    assert found.stage == "Inductor"
    assert found.notes == ("at AOTAutograd another failure shows: exception Notvalue",)
    assert [rung.outcome for rung in found.rungs][1:3] == ["invalid", "slipped"]


def test_no_stage_is_named_without_a_rung_below_that_passes() -> None:
    found = climbed(dict.fromkeys(PLAIN, FAILS))
    assert (found.stage, found.pair()) == ("", {})
    assert found.notes == ("no rung below passes, so that no stage is to blame",)


def wrong(kind: str, excess: float = 9.0) -> Observation:
    return Observation("compare", divergences=(Divergence("output:n1", kind, max_abs=0.5, excess=excess),), seconds=2.5)


def test_the_same_symptom_with_another_signature_further_up_is_told() -> None:
    found = climbed({"AOTAutograd": wrong("value"), "Inductor": wrong("integer"), "decompositions": wrong("value")})
    assert found.stage == "AOTAutograd"
    assert found.notes == ("it passes again at Inductor's extern calls", "at Inductor it shows as value integer")


def test_a_crash_has_a_stage_too() -> None:
    found = climbed({"AOTAutograd": FAILS, "decompositions": FAILS, "Inductor": FAILS}, signature=RAISES)
    assert found.stage == "AOTAutograd"


def raising(*frames: str) -> Observation:
    return Observation("compile", crash=RAISES, frames=frames)


def test_where_an_exception_came_from_is_told_where_it_is_not_the_stage() -> None:
    found = climbed({"Inductor": raising("torch/_functorch/partitioners.py:min_cut")}, signature=RAISES)
    assert found.stage == "Inductor"
    assert found.notes == ("raised in AOTAutograd (lowering.py:lower)",)
    assert climbed({"Inductor": raising("torch/_inductor/graph.py:run_node")}, signature=RAISES).notes == ()


def test_a_hang_is_waited_for_once() -> None:
    case = on()
    oracle = answering(case, dict.fromkeys(PLAIN[2:], FAILS))
    found = first_stage(case, HANG_SIGNATURE, oracle)
    assert found.stage == "AOTAutograd"
    assert oracle.queries == 3 and len(found.rungs) == 3


def test_a_rung_asked_before_is_answered_from_the_cache() -> None:
    case = on()
    oracle = answering(case, {"Inductor": FAILS})
    oracle.judge(case, WRONG_VALUE)
    found = first_stage(case, WRONG_VALUE, oracle)
    assert [rung.cached for rung in found.rungs] == [False] * 5 + [True]
    assert found.rungs[-1].digest == digest(case)


# --- what is kept of each rung --------------------------------------------------------------------------------------------


def row_of(observation: Observation) -> dict[str, object]:
    (row,) = [row for row in climbed({"Inductor": observation}).rows() if row["stage"] == "Inductor"]
    return row


def numbers(excess: float) -> Divergence:
    return Divergence("output:n1", "value", max_abs=1e-6, max_rel=2e-6, eager_abs=3e-6, excess=excess)


@pytest.mark.parametrize(
    ("observation", "outcome", "excess"),
    [
        (wrong("value"), "fails", 9.0),
        (Observation("compare", divergences=(numbers(5.0), numbers(7.0)), drift=(numbers(99.0),)), "fails", 7.0),
        (Observation("compare", drift=(numbers(2.0), numbers(3.0)), within=numbers(0.5)), "passes", 3.0),
        (Observation("compare", within=numbers(0.5)), "passes", 0.5),
    ],
    ids=["wrong", "worst of two", "drift", "within"],
)
def test_a_rung_keeps_the_numbers_of_the_worst_result(observation: Observation, outcome: str, excess: float) -> None:
    row = row_of(observation)
    assert row["outcome"] == outcome
    kept = row["numbers"]
    assert isinstance(kept, dict) and kept["excess"] == excess
    assert set(kept) == {"where", "max_abs", "max_rel", "excess", "eager_abs"}


def test_a_row_of_the_report_is_plain_data_with_all_there_is_to_know() -> None:
    row = row_of(wrong("value"))
    assert set(row) >= {"stage", "outcome", "numbers", "signature", "seconds", "cached", "digest"}
    assert (row["seconds"], row["cached"]) == (2.5, False)
    signature = row["signature"]
    assert isinstance(signature, dict) and signature["name"] == "value"
    json.dumps(climbed({"Inductor": wrong("value"), "Dynamo": INVALID}).rows(), allow_nan=False)


def test_why_a_rung_could_not_be_run_is_kept() -> None:
    row = row_of(Observation("load", invalid="settings do not apply: RuntimeError: Unrecognized mode=lite"))
    assert row["why"] == "settings do not apply: RuntimeError: Unrecognized mode=lite"


@pytest.mark.parametrize(
    ("frames", "step"),
    [
        ((), ""),
        (("torch/_dynamo/symbolic_convert.py:run", "torch/_dynamo/utils.py:get_fake_value"), "Dynamo"),
        (("torch/_dynamo/variables/builtin.py:call", "torch/_subclasses/fake_tensor.py:dispatch"), "Dynamo"),
        (("torch/_dynamo/output_graph.py:_call_user_compiler",), ""),
        (("torch/_dynamo/output_graph.py:call_user_compiler", "torch/_functorch/aot_autograd.py:trace"), "AOTAutograd"),
        (("torch/_functorch/aot_autograd.py:trace", "torch/_inductor/compile_fx.py:fw_compiler_base"), "Inductor"),
        (("torch/_functorch/x.py:f", "torch/_inductor/decomposition.py:pad"), "decompositions"),
        (
            (
                "torch/_functorch/x.py:f",
                "torch/fx/experimental/proxy_tensor.py:maybe_handle_decomp",
                "torch/_refs/__init__.py:sub",
            ),
            "decompositions",
        ),
        (("torch/_inductor/runtime/triton_heuristics.py:launch", "triton/compiler/compiler.py:compile"), "Triton"),
    ],
)
def test_the_innermost_frame_of_a_step_tells_where_it_was_raised(frames: tuple[str, ...], step: str) -> None:
    assert raised_in(frames) == step


def test_every_step_an_exception_may_come_from_is_a_stage_of_the_ladder_or_below_it() -> None:
    stages = {stage.name for stage in STAGES}
    check: Callable[[str], str] = lambda frame: raised_in((frame,))  # noqa: E731
    for frame in ("torch/_dynamo/a.py:f", "torch/_functorch/a.py:f", "torch/_inductor/a.py:f"):
        assert check(frame) in stages
