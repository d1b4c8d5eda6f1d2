"""What is refused before anything is shrunk, in which words, and how often a failure has to show to be believed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from minify.baseline import MORE_RUNS, NOISE, Baseline, confirm
from minify.capture.script import Suspect
from minify.case import Case, Graph, Op, Program, Ref, TensorMeta, ValueMeta
from minify.errors import NoFailure, Unstable
from minify.oracle.local import LEAST_TIMEOUT, LocalOracle, Manner
from minify.verdict import Divergence, Measured, Observation, Signature
from tests.cases import build, given, op, tensor
from tests.reducing import HANG_SIGNATURE, RAISES, WRONG_VALUE, line

ROW = Divergence("output:n0", "value", max_abs=0.25, max_rel=0.125, eager_abs=0.0625, excess=40.0)
WRONG = Observation("compare", divergences=(ROW,), seconds=3.0)
RIGHT = Observation("compare", seconds=2.0)
DRIFTS = Observation("compare", drift=(dataclasses.replace(ROW, where="output:other", excess=1.0), ROW))
CRASHES = Observation("compile", crash=RAISES, seconds=2.0)
LOST = Observation("", worker_lost="SIGKILL while in compile")
CASE = line("torch.neg")
NUMBERS = r"output:n0 has max abs 0\.25, max rel 0\.125; eager's own error is 0\.0625"


class ScriptedOracle:
    """Answers the runs of a case in turn, the last answer for ever; `cured` with emulate_precision_casts on."""

    def __init__(self, *answers: Observation, check: str = "accuracy", cured: Observation = WRONG) -> None:
        self.manner = Manner(check, Path("store"))
        self.rate, self.timeout, self.calibrates = 1.0, 300.0, True
        self.asked: list[tuple[int, int]] = []
        self.cures: list[Case] = []
        self._answers = answers
        self._cured = cured

    def observe(self, case: Case, *, noise: int = 0, run: int = 0) -> Observation:
        if case.settings.config:
            self.cures.append(case)
            return self._cured
        self.asked.append((run, noise))
        return self._answers[min(run, len(self._answers) - 1)]

    def observe_runs(self, case: Case, runs: Sequence[int], *, noise: int = 0) -> list[Observation]:
        return [self.observe(case, run=run, noise=noise if run == runs[0] else 0) for run in runs]


def confirmed(oracle: ScriptedOracle, case: Case = CASE, certain: bool = True) -> Baseline:
    return confirm(case, Suspect(7, Path("7.case"), certain), cast(LocalOracle, oracle))


# --- how often it fails -----------------------------------------------------------------------------------------------


def test_a_failure_that_shows_in_every_run_is_believed_after_two() -> None:
    oracle = ScriptedOracle(WRONG)
    found = confirmed(oracle)
    assert (found.runs, found.failed, found.rate, oracle.rate) == (2, 2, 1.0, 1.0)
    assert found.signature == WRONG_VALUE and found.observation == WRONG
    assert oracle.asked == [(0, NOISE), (1, 0)]


def test_a_crash_is_confirmed_without_shaken_inputs() -> None:
    oracle = ScriptedOracle(CRASHES, check="crash")
    assert confirmed(oracle).signature == RAISES
    assert oracle.asked == [(0, 0), (1, 0)]


@pytest.mark.parametrize("answers", [[WRONG, RIGHT, WRONG, RIGHT], [RIGHT, RIGHT, WRONG, RIGHT], [RIGHT] * 7 + [WRONG]])
def test_a_failure_that_shows_sometimes_is_run_more_often_and_has_a_rate(answers: list[Observation]) -> None:
    oracle = ScriptedOracle(*answers)
    found = confirmed(oracle)
    shown = [answers[min(run, len(answers) - 1)] for run in range(MORE_RUNS)].count(WRONG)
    assert (found.runs, found.failed) == (MORE_RUNS, shown)
    assert oracle.rate == found.rate == shown / MORE_RUNS
    assert found.observation == WRONG
    assert [run for run, _ in oracle.asked] == list(range(MORE_RUNS))


def test_runs_that_lost_their_worker_count_neither_for_nor_against() -> None:
    found = confirmed(ScriptedOracle(LOST, WRONG))
    assert found.rate == 1.0 and found.signature == WRONG_VALUE


# --- what is no failure of the compiler -------------------------------------------------------------------------------


def test_drift_is_refused_with_its_numbers() -> None:
    with pytest.raises(NoFailure, match=f"drift, no divergence: {NUMBERS}"):
        confirmed(ScriptedOracle(DRIFTS))


MEASURED = Measured((0.5,), (0.75,), (0.75,), (0.0,), 0.3)


def test_drift_by_the_users_metric_is_told_with_its_numbers() -> None:
    """Those of the run that moved it most."""
    runs = [dataclasses.replace(DRIFTS, metric=dataclasses.replace(MEASURED, compiled=(c,))) for c in (0.6, 0.5)]
    told = f"drift, no divergence: {NUMBERS}; the metric lets it pass \\(0.5 compiled, 0.75 in eager"
    with pytest.raises(NoFailure, match=told):
        confirmed(ScriptedOracle(*runs))
    with pytest.raises(NoFailure, match=f"ill-conditioned.*{told}"):
        confirmed(ScriptedOracle(runs[1], WRONG))


def test_what_diverges_no_further_than_eager_on_shaken_inputs_is_ill_conditioned() -> None:
    with pytest.raises(NoFailure, match=f"ill-conditioned, .*{NUMBERS}.*one unit in the last place"):
        confirmed(ScriptedOracle(DRIFTS, WRONG))


def test_what_fails_in_eager_too_is_no_compiler_bug() -> None:
    invalid = Observation("eager", invalid="eager raises: RuntimeError: shapes")
    with pytest.raises(NoFailure, match="RuntimeError: shapes; this is not a compiler bug"):
        confirmed(ScriptedOracle(invalid), certain=False)
    with pytest.raises(NoFailure, match="this is not a compiler bug"):
        confirmed(ScriptedOracle(invalid, check="crash"))


def test_what_ran_in_the_script_and_not_here_is_not_blamed_on_eager() -> None:
    with pytest.raises(Unstable, match="cannot be replayed outside the script: eager raises"):
        confirmed(ScriptedOracle(Observation("eager", invalid="eager raises: AssertionError: no kernel 0")))
    slow = Observation("eager", invalid="eager ends with timeout", timed_out=True)
    with pytest.raises(Unstable, match="cannot be replayed"):
        confirmed(ScriptedOracle(slow, check="crash"))


@pytest.mark.parametrize("why", ["cannot be loaded: ImportError: no eager_ops", "loading ends with SIGSEGV"])
def test_what_cannot_be_loaded_is_not_blamed_on_eager(why: str) -> None:
    with pytest.raises(Unstable, match="cannot be replayed outside the script"):
        confirmed(ScriptedOracle(Observation("load", invalid=why)))


def test_a_crash_where_wrong_results_were_looked_for_points_to_the_other_command() -> None:
    with pytest.raises(NoFailure, match=r"LoweringError.*try `minify crash`"):
        confirmed(ScriptedOracle(CRASHES))


def test_a_region_seen_to_fail_that_is_right_in_fresh_processes_is_unstable() -> None:
    oracle = ScriptedOracle(RIGHT)
    with pytest.raises(Unstable, match=f"region 7 failed in the script but not in {MORE_RUNS} fresh processes"):
        confirmed(oracle)
    with pytest.raises(Unstable, match="failed in the script"):
        confirmed(ScriptedOracle(RIGHT, check="crash"))


def test_a_program_that_does_not_crash_may_be_wrong_all_the_same() -> None:
    with pytest.raises(NoFailure, match="whether its result is right, `minify accuracy` tells"):
        confirmed(ScriptedOracle(RIGHT, check="crash"), certain=False)


def test_a_region_only_suspected_is_given_up_sooner_and_as_right() -> None:
    oracle = ScriptedOracle(RIGHT)
    with pytest.raises(NoFailure, match="right result in 2 fresh processes"):
        confirmed(oracle, certain=False)
    assert len(oracle.asked) == 2


def test_a_script_that_died_outside_its_regions_is_not_called_healthy() -> None:
    suspect = Suspect(7, Path("7.case"), certain=False, signature=Signature("crash", "signal", "SIGSEGV"))
    with pytest.raises(Unstable, match=r"signal SIGSEGV.* outside its compiled regions, and region 7 does not"):
        confirm(CASE, suspect, cast(LocalOracle, ScriptedOracle(RIGHT, check="crash")))


@pytest.mark.parametrize("certain", [True, False])
def test_a_region_that_no_worker_survives_is_not_called_right(certain: bool) -> None:
    with pytest.raises(Unstable, match="never answered for: SIGKILL while in compile; fewer --workers"):
        confirmed(ScriptedOracle(LOST), certain=certain)


# --- rounding ---------------------------------------------------------------------------------------------------------

HALF = build([given("x", tensor(dtype="bfloat16"))], [op("n0", "torch.neg", Ref("x"))], ["n0"])
AUTOCAST = dataclasses.replace(CASE, settings=dataclasses.replace(CASE.settings, autocast=(("cpu", "torch.bfloat16"),)))


@pytest.mark.parametrize("case", [HALF, AUTOCAST], ids=["half inputs", "autocast"])
def test_what_vanishes_when_inductor_rounds_as_eager_does_is_drift(case: Case) -> None:
    oracle = ScriptedOracle(WRONG, cured=DRIFTS)
    with pytest.raises(NoFailure, match=f"emulate_precision_casts.*{NUMBERS}"):
        confirmed(oracle, case)
    assert oracle.cures[0].settings.config == (("torch._inductor.config", "emulate_precision_casts", True),)


def with_trace(meta: ValueMeta) -> Observation:
    return dataclasses.replace(WRONG, trace=(("n0", meta),))


def test_half_precision_inside_a_program_of_floats_counts_as_well() -> None:
    half: TensorMeta = tensor(dtype="float16")
    with pytest.raises(NoFailure, match="emulate_precision_casts"):
        confirmed(ScriptedOracle(with_trace(half), cured=RIGHT))


@pytest.mark.parametrize(
    ("case", "answer"),
    [
        (CASE, with_trace(tensor())),
        (dataclasses.replace(HALF, settings=dataclasses.replace(HALF.settings, backend="aot_eager")), WRONG),
    ],
    ids=["no half precision", "not inductor"],
)
def test_rounding_is_asked_about_only_where_inductor_may_skip_it(case: Case, answer: Observation) -> None:
    oracle = ScriptedOracle(answer, cured=RIGHT)
    assert confirmed(oracle, case).rate == 1.0 and oracle.cures == []


@pytest.mark.parametrize("cured", [WRONG, CRASHES, Observation("eager", invalid="eager raises")])
def test_what_stays_or_ends_otherwise_with_emulated_rounding_is_a_failure(cured: Observation) -> None:
    assert confirmed(ScriptedOracle(WRONG, cured=cured), HALF).signature == WRONG_VALUE


def test_a_failure_that_comes_and_goes_is_not_called_rounding_for_one_right_run() -> None:
    assert confirmed(ScriptedOracle(WRONG, RIGHT, WRONG, cured=RIGHT), HALF).rate < 1


def test_the_argmax_of_near_ties_is_decided_by_rounding() -> None:
    answer = Observation("compare", divergences=(Divergence("output:n0", "integer"),))
    with pytest.raises(NoFailure, match="emulate_precision_casts"):
        confirmed(ScriptedOracle(answer, cured=RIGHT), HALF)


def test_wrong_metadata_is_no_rounding() -> None:
    stride = Observation("compare", divergences=(Divergence("output:n0", "stride"),))
    found = confirmed(ScriptedOracle(stride, cured=RIGHT), HALF)
    assert found.signature == Signature("accuracy", "metadata", "stride")


# --- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "limit"),
    [(30.0, 300.0), (45.0, 450.0), (1.0, LEAST_TIMEOUT)],
)
def test_a_question_may_take_ten_times_the_slowest_run(seconds: float, limit: float) -> None:
    oracle = ScriptedOracle(WRONG, dataclasses.replace(WRONG, seconds=seconds))
    oracle._answers = (dataclasses.replace(WRONG, seconds=0.5), oracle._answers[1])
    confirmed(oracle)
    assert oracle.timeout == limit


@pytest.mark.parametrize("asked", [20.0, 900.0])
def test_a_time_that_the_user_gave_is_kept(asked: float) -> None:
    oracle = ScriptedOracle(WRONG)
    oracle.timeout, oracle.calibrates = asked, False
    confirmed(oracle)
    assert oracle.timeout == asked


def test_a_hang_keeps_the_time_that_it_was_given() -> None:
    oracle = ScriptedOracle(Observation("compile", crash=HANG_SIGNATURE, timed_out=True, seconds=300.0), check="crash")
    assert confirmed(oracle).signature == HANG_SIGNATURE and oracle.timeout == 300.0


# --- random numbers ---------------------------------------------------------------------------------------------------


class DrawingOracle(ScriptedOracle):
    """Fails as it stands; answers `given` once the numbers that ops draw are inputs."""

    def __init__(self, tmp_path: Path, given: Observation) -> None:
        super().__init__(dataclasses.replace(WRONG, drew=("a", "b")))
        self.manner = Manner("accuracy", tmp_path)
        self._given = given

    def observe(self, case: Case, *, noise: int = 0, run: int = 0) -> Observation:
        drawn = any(op.name in ("a", "b") for op in case.graph.ops)
        return super().observe(case, noise=noise, run=run) if drawn else self._given


def drawing_case() -> Case:
    meta = TensorMeta((4,), (1,), 0, "float32", "cpu", False, 0, 4)
    other = dataclasses.replace(meta, storage=1)
    ops = (
        Op("a", "torch.rand", (4,), meta=meta),
        Op("b", "torch.rand", (4,), meta=other),
        Op("sum", "operator.add", (Ref("a"), Ref("b")), meta=dataclasses.replace(meta, storage=2)),
    )
    return Case(Program(Graph((), ops, (Ref("sum"),))), ())


def test_random_numbers_drawn_in_another_order_are_no_failure(tmp_path: Path) -> None:
    with pytest.raises(NoFailure, match="a, b draw in another order"):
        confirmed(DrawingOracle(tmp_path, Observation("compare")), drawing_case())


def test_a_failure_that_stays_with_the_numbers_given_is_one(tmp_path: Path) -> None:
    assert confirmed(DrawingOracle(tmp_path, WRONG), drawing_case()).rate == 1
