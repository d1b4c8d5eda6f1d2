"""The oracle's own part, with a pool that answers from a script: what is kept, what is asked again, what a death means."""

from __future__ import annotations

import dataclasses
import math
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from minify import baseline
from minify.ablation import WATCHED, alone, without
from minify.case import Case, Recipe, tensor_inputs
from minify.errors import Stopped, UsageError, WorkerBug
from minify.oracle.local import (
    COLD,
    ENOUGH_SEEN,
    LEAST_TIMEOUT,
    NOISE,
    RETRIES,
    SHAPES_TIMEOUT,
    LocalOracle,
    Manner,
)
from minify.oracle.pool import Reply
from minify.sizes import Sizes
from minify.verdict import Divergence, Observation, Outcome, Question, Signature, WorkerError
from tests.reducing import HANG_SIGNATURE, RAISES, WRONG_VALUE, line

WRONG = Observation("compare", divergences=(Divergence("output:n0", "value", excess=9.0),))
RIGHT = Observation("compare")


def told(value: object) -> Reply:
    return Reply(value, "compare", "", "", 1.0)


def died(how: str, phase: str, seconds: float = 1.0) -> Reply:
    return Reply(None, phase, how, "last words", seconds)


class ScriptedPool:
    """Answers each request at once by `script(question)`; None leaves it open. `asked` and `futures` keep all of them."""

    script: Callable[[Question], Reply | None] = staticmethod(lambda question: told(RIGHT))

    def __init__(self, command: object, size: int, **_: object) -> None:
        self.asked: list[Question] = []
        self.limits: list[float | None] = []
        self.futures: list[Future[Reply]] = []

    def submit(self, request: Question, timeout: float | None) -> Future[Reply]:
        self.asked.append(pickle.loads(pickle.dumps(request)))
        self.limits.append(timeout)
        future: Future[Reply] = Future()
        reply = type(self).script(request)
        if reply is not None:
            future.set_running_or_notify_cancel()
            future.set_result(reply)
        self.futures.append(future)
        return future

    def close(self) -> None:
        for future in self.futures:
            future.cancel()


Open = Callable[..., LocalOracle]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens oracles over one folder, each with a pool of its own that follows the script given last."""
    monkeypatch.setattr("minify.oracle.local.WorkerPool", ScriptedPool)

    def open_oracle(script: Callable[[Question], Reply | None] | None = None, **how: Any) -> LocalOracle:
        if script is not None:
            monkeypatch.setattr(ScriptedPool, "script", staticmethod(script))
        manner = {"check": "accuracy", "store": tmp_path / "store"} | how.pop("manner", {})
        return LocalOracle(Manner(**manner), tmp_path, how.pop("workers", 1), **how)

    yield open_oracle


def pool_of(oracle: LocalOracle) -> ScriptedPool:
    assert isinstance(oracle._pool, ScriptedPool)
    return oracle._pool


def in_turn(*replies: Reply) -> Callable[[Question], Reply]:
    rest = iter(replies)
    return lambda question: next(rest)


CASE = line("torch.neg", "torch.exp")


# --- asked ahead ------------------------------------------------------------------------------------------------------


def test_what_was_asked_ahead_is_the_answer_when_it_is_wanted_and_one_query(opened: Open) -> None:
    oracle = opened(lambda question: told(WRONG))
    oracle.ask_ahead(CASE)
    assert oracle.queries == 1
    assert oracle.glimpse(CASE, WRONG_VALUE).fails
    assert (len(pool_of(oracle).asked), oracle.queries, oracle.cache_hits) == (1, 1, 0)
    oracle.glimpse(CASE, WRONG_VALUE)
    assert (len(pool_of(oracle).asked), oracle.queries, oracle.cache_hits) == (1, 1, 1)


def test_what_was_asked_ahead_in_vain_counts_as_a_query_and_what_is_on_record_is_not_asked(opened: Open) -> None:
    oracle = opened(lambda question: told(RIGHT))
    oracle.ask_ahead(CASE)
    oracle.glimpse(line("torch.neg"), WRONG_VALUE)
    oracle.glimpse(CASE, WRONG_VALUE)
    oracle.ask_ahead(CASE)
    assert (len(pool_of(oracle).asked), oracle.queries) == (2, 2)


def test_a_case_is_traced_once_in_a_row(opened: Open) -> None:
    oracle = opened(lambda question: told(RIGHT))
    for case in (CASE, CASE, line("torch.neg"), CASE):
        assert oracle.trace(case) == RIGHT
    assert len(pool_of(oracle).asked) == 3


# --- the cache --------------------------------------------------------------------------------------------------------


def test_an_answer_on_disk_serves_a_new_oracle_without_a_query(opened: Open) -> None:
    first = opened(lambda question: told(WRONG))
    assert first.judge(CASE, WRONG_VALUE).fails and (first.queries, first.cache_hits) == (1, 0)
    second = opened()
    verdict = second.judge(CASE, WRONG_VALUE)
    assert verdict.fails and verdict.cached and verdict.observation == WRONG
    assert (second.queries, second.cache_hits, pool_of(second).asked) == (0, 1, [])


def with_values(case: Case) -> Case:
    (item,) = tensor_inputs(case)
    return dataclasses.replace(case, inputs=(dataclasses.replace(item, value=Recipe("ones")),))


@pytest.mark.parametrize(
    ("case", "manner"),
    [
        (with_values(CASE), {}),
        (dataclasses.replace(CASE, settings=dataclasses.replace(CASE.settings, dynamic=True)), {}),
        (CASE, {"rtol": 1e-3}),
        (CASE, {"atol": 1e-3}),
        (CASE, {"reference": "fp32"}),
        (CASE, {"check": "crash"}),
        (CASE, {"metric": "scores:top1"}),
        (CASE, {"metric": "scores:top1", "metric_tol": 0.1}),
    ],
    ids=["values", "settings", "rtol", "atol", "reference", "check", "metric", "metric_tol"],
)
def test_whatever_can_change_the_answer_is_part_of_its_key(opened: Open, case: Case, manner: dict[str, Any]) -> None:
    opened(lambda question: told(WRONG)).judge(CASE, WRONG_VALUE)
    other = opened(manner=manner)
    other.judge(case, WRONG_VALUE)
    assert (other.queries, other.cache_hits) == (1, 0)


def test_a_metric_that_was_edited_or_is_of_another_program_is_asked_again(opened: Open, tmp_path: Path) -> None:
    scores = tmp_path / "scores.py"
    scores.write_text("def top1(x): return 1")
    for body, whole, queries in (("1", "", 1), ("1", "", 0), ("2", "", 1), ("2", "ab" * 16, 1), ("2", "ab" * 16, 0)):
        scores.write_text(f"def top1(x): return {body}")
        oracle = opened(manner={"metric": f"{scores}:top1", "metric_tol": 0.5})
        oracle.whole = whole
        oracle.judge(CASE, WRONG_VALUE)
        assert oracle.queries == queries
        asked = pool_of(oracle).asked
        assert [(one.metric, one.metric_tol, one.whole) for one in asked] == [(f"{scores}:top1", 0.5, whole)] * queries


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (told(UsageError("--metric m:f raised ValueError: no", "it is called so")), "raised ValueError: no; it is"),
        (died("timeout", "metric"), "--metric m:f ends with timeout"),
        (died("SIGSEGV", "metric"), "--metric m:f ends with SIGSEGV"),
    ],
)
def test_a_metric_that_gives_no_number_in_a_worker_ends_the_run_as_the_users_error(
    reply: Reply, said: str, opened: Open
) -> None:
    oracle = opened(lambda question: reply, manner={"metric": "m:f"})
    with pytest.raises(UsageError, match=said):
        oracle.judge(CASE, WRONG_VALUE)


def smi(folder: Path, *names: str) -> str:
    """A PATH on which the driver's program tells of GPUs of these names."""
    program = folder / "nvidia-smi"
    program.write_text("#!/bin/sh\n" + "".join(f"echo '{name}'\n" for name in names) + f"exit {0 if names else 9}\n")
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


VARIABLES = ("TORCHINDUCTOR_MAX_AUTOTUNE", "TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE", "TRITON_INTERPRET")
NO_MATTER = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS", "TORCH_HOME", "HOME")


@pytest.mark.parametrize("change", ["torch", "triton", "torch-minify", "GPU", *VARIABLES])
def test_an_answer_of_other_surroundings_is_not_taken(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    opened(lambda question: told(WRONG)).judge(CASE, WRONG_VALUE)
    if change in VARIABLES:
        monkeypatch.setenv(change, "1")
    elif change == "GPU":
        monkeypatch.setenv("PATH", smi(tmp_path, "NVIDIA H200"))
    else:
        version = metadata.version
        monkeypatch.setattr(metadata, "version", lambda name: "99" if name == change else version(name))
    for queries in (1, 0):
        other = opened(lambda question: told(RIGHT))
        assert not other.judge(CASE, WRONG_VALUE).fails and other.queries == queries


@pytest.mark.parametrize("name", NO_MATTER)
def test_an_answer_holds_whatever_else_the_shell_says(opened: Open, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    opened(lambda question: told(WRONG)).judge(CASE, WRONG_VALUE)
    monkeypatch.setenv(name, "/elsewhere")
    other = opened()
    assert other.judge(CASE, WRONG_VALUE).fails and other.queries == 0


def test_a_driver_that_tells_nothing_is_no_gpu(opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(lambda question: told(WRONG)).judge(CASE, WRONG_VALUE)
    monkeypatch.setenv("PATH", smi(tmp_path))
    other = opened()
    assert other.judge(CASE, WRONG_VALUE).fails and other.queries == 0


def test_repeated_and_shaken_runs_have_answers_of_their_own(opened: Open) -> None:
    oracle = opened()
    for noise, run in ((0, 0), (0, 1), (3, 0), (0, 0)):
        oracle.observe(CASE, noise=noise, run=run)
    assert (oracle.queries, oracle.cache_hits) == (3, 1)
    assert [question.noise for question in pool_of(oracle).asked] == [0, 0, 3]


@pytest.mark.parametrize(
    ("signature", "manner", "noise"),
    [
        (WRONG_VALUE, {}, NOISE),
        (Signature("accuracy", "value", "integer"), {}, NOISE),
        (Signature("accuracy", "value", "nonfinite"), {}, NOISE),
        (Signature("accuracy", "metadata", "stride"), {}, 0),
        (RAISES, {"check": "crash"}, 0),
    ],
)
def test_candidates_of_what_rounding_may_decide_are_run_on_shaken_inputs_as_well(
    opened: Open, signature: Signature, manner: dict[str, Any], noise: int
) -> None:
    oracle = opened(manner=manner)
    oracle.rate = 0.5
    oracle.judge(CASE, signature)
    assert {question.noise for question in pool_of(oracle).asked} == {noise}


def test_what_the_baseline_saw_of_a_case_answers_for_it_as_a_candidate(opened: Open) -> None:
    oracle = opened()
    oracle.observe(CASE, noise=baseline.NOISE)
    oracle.judge(CASE, WRONG_VALUE)
    assert (oracle.queries, oracle.cache_hits) == (1, 1)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a pickle",
        pickle.dumps(WRONG)[:-9],
        pickle.dumps("no observation"),
        b"cno_such_module\nname\n.",
        b"I12x\n.",
    ],
    ids=["empty", "no pickle", "cut short", "something else", "of a module that is gone", "garbled"],
)
def test_a_spoilt_file_in_the_cache_is_asked_again_and_replaced(opened: Open, tmp_path: Path, content: bytes) -> None:
    opened(lambda question: told(WRONG)).judge(CASE, WRONG_VALUE)
    (kept,) = (tmp_path / "verdicts").iterdir()
    kept.write_bytes(content)
    again = opened()
    assert again.judge(CASE, WRONG_VALUE).fails and again.queries == 1
    assert pickle.loads(kept.read_bytes()) == WRONG


def test_an_answer_that_took_too_long_is_asked_again_once_it_may_take_longer(opened: Open) -> None:
    allowed = [60.0]
    oracle = opened(lambda question: died("timeout", "compile", allowed[-1] + 0.2))
    for limit, queries in ((60.0, 1), (60.0, 1), (30.0, 1), (600.0, 2), (600.0, 2)):
        oracle.timeout = limit
        allowed.append(limit)
        assert oracle.judge(CASE, WRONG_VALUE).outcome is Outcome.TIMED_OUT
        assert oracle.queries == queries
    assert pool_of(oracle).limits == [60.0, 600.0]


# --- deaths -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["", "load", "eager", "reference", "compile", "compare"])
@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "hung up"])
def test_a_worker_killed_from_outside_says_nothing_and_is_never_kept(
    opened: Open, tmp_path: Path, how: str, phase: str
) -> None:
    oracle = opened(lambda question: died(how, phase))
    verdict = oracle.judge(CASE, WRONG_VALUE)
    assert verdict.outcome is Outcome.BROKEN_WORKER and how in verdict.observation.worker_lost
    assert len(pool_of(oracle).asked) == 1 + RETRIES and oracle.queries == 1
    assert list((tmp_path / "verdicts").iterdir()) == []
    assert opened(lambda question: told(WRONG)).judge(CASE, WRONG_VALUE).fails


def test_a_worker_that_lost_its_memory_once_is_asked_again(opened: Open) -> None:
    lost = Observation("", worker_lost="out of memory")
    oracle = opened(in_turn(told(lost), died("SIGKILL", "compile"), told(WRONG)))
    assert oracle.judge(CASE, WRONG_VALUE).fails
    assert (len(pool_of(oracle).asked), oracle.queries) == (3, 1)


POISONED = Observation("eager", invalid="eager raises: AcceleratorError: CUDA error: an illegal memory access")


@pytest.mark.parametrize(
    ("replies", "outcome"),
    [
        ([told(POISONED), told(WRONG)], Outcome.FAILS),
        ([told(POISONED), told(POISONED)], Outcome.INVALID),
        ([told(POISONED), died("SIGKILL", "load"), told(RIGHT)], Outcome.PASSES),
    ],
)
def test_an_eager_run_that_met_a_spoilt_context_is_asked_once_more_before_it_is_kept(
    opened: Open, replies: list[Reply], outcome: Outcome
) -> None:
    oracle = opened(in_turn(*replies))
    assert oracle.judge(CASE, WRONG_VALUE).outcome is outcome
    assert (len(pool_of(oracle).asked), oracle.queries) == (len(replies), 1)
    again = opened()
    assert again.judge(CASE, WRONG_VALUE).outcome is outcome and again.queries == 0


@pytest.mark.parametrize("how", ["SIGSEGV", "exit 1", "timeout"])
def test_a_worker_that_dies_before_it_says_anything_tells_nothing_of_the_case(opened: Open, how: str) -> None:
    assert opened(lambda question: died(how, "")).judge(CASE, WRONG_VALUE).outcome is Outcome.BROKEN_WORKER


@pytest.mark.parametrize("how", ["SIGSEGV", "SIGABRT", "exit 1", "timeout"])
@pytest.mark.parametrize(("phase", "what"), [("load", "loading"), ("eager", "eager"), ("reference", "eager")])
def test_a_death_before_the_compiler_had_its_turn_makes_the_case_invalid(
    opened: Open, how: str, phase: str, what: str
) -> None:
    verdict = opened(lambda question: died(how, phase)).judge(CASE, RAISES)
    assert verdict.outcome is Outcome.INVALID
    assert verdict.observation.invalid == f"{what} ends with {how}"


@pytest.mark.parametrize("phase", ["compile", "run", "compare"])
def test_a_death_by_signal_in_the_compiler_or_its_code_is_a_crash(opened: Open, phase: str) -> None:
    oracle = opened(lambda question: died("SIGSEGV", phase))
    wanted = Signature("crash", "signal", "SIGSEGV")
    assert oracle.judge(CASE, wanted).fails
    assert oracle.judge(CASE, wanted).observation.crash_text == "last words"
    assert oracle.judge(CASE, RAISES).outcome is Outcome.SLIPPED
    assert oracle.queries == 1


@pytest.mark.parametrize(
    ("seconds", "calibrates", "due"), [(10.0, True, 200.0), (1.0, True, COLD * LEAST_TIMEOUT), (1.0, False, 300.0)]
)
def test_how_long_a_hang_is_waited_for_is_learnt_from_candidates_that_come_back(
    opened: Open, seconds: float, calibrates: bool, due: float
) -> None:
    oracle = opened(lambda question: told(dataclasses.replace(RIGHT, seconds=seconds)), manner={"check": "crash"})
    oracle.timeout, oracle.calibrates = 300.0, calibrates
    cases = [line(*["torch.neg"] * length) for length in range(1, ENOUGH_SEEN + 1)]
    for case in cases[:-1]:
        oracle.judge(case, HANG_SIGNATURE)
    assert oracle.timeout == 300.0
    oracle.judge(cases[-1], HANG_SIGNATURE)
    assert oracle.timeout == due


def test_a_slow_candidate_makes_the_wait_for_a_hang_longer_again(opened: Open) -> None:
    oracle = opened(
        lambda question: told(dataclasses.replace(RIGHT, seconds=1.0 if len(question.case.graph.ops) < 4 else 12.0)),
        manner={"check": "crash"},
    )
    oracle.timeout = 300.0
    for length in range(1, 5):
        oracle.judge(line(*["torch.neg"] * length), HANG_SIGNATURE)
    assert oracle.timeout == 240.0


def test_only_a_hang_is_learnt_for(opened: Open) -> None:
    oracle = opened(manner={"check": "crash"})
    oracle.timeout = 300.0
    for length in range(1, ENOUGH_SEEN + 1):
        oracle.judge(line(*["torch.neg"] * length), RAISES)
    assert oracle.timeout == 300.0


def test_running_out_of_time_is_a_hang_and_a_failure_only_where_a_hang_is_looked_for(opened: Open) -> None:
    oracle = opened(lambda question: died("timeout", "compile", 600.0))
    assert oracle.judge(CASE, HANG_SIGNATURE).fails
    verdict = oracle.judge(CASE, WRONG_VALUE)
    assert verdict.outcome is Outcome.TIMED_OUT and verdict.signature == HANG_SIGNATURE


def test_an_error_of_our_own_in_a_worker_is_said_to_be_one(opened: Open, tmp_path: Path) -> None:
    oracle = opened(lambda question: told(WorkerError("KeyError: 'oops'")))
    with pytest.raises(WorkerBug, match="KeyError: 'oops'"):
        oracle.observe(CASE)
    assert oracle.judge(CASE, WRONG_VALUE).outcome is Outcome.BROKEN_WORKER
    assert oracle.bugs == ["a worker failed: KeyError: 'oops'"]
    with pytest.raises(WorkerBug, match="no worker can be started"):
        opened(lambda question: died("cannot start", "")).judge(CASE, WRONG_VALUE)
    assert list((tmp_path / "verdicts").iterdir()) == []


def test_a_pool_that_closes_under_a_question_stops_the_run(opened: Open) -> None:
    oracle = opened(lambda question: died("cancelled", "compile"))
    with pytest.raises(Stopped):
        oracle.judge(CASE, WRONG_VALUE)
    assert oracle.queries == 0


# --- failures that show sometimes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "runs"), [(1.0, 1), (0.9, 2), (0.5, 6), (0.125, 30)])
def test_a_candidate_of_a_flaky_failure_passes_only_after_enough_runs(opened: Open, rate: float, runs: int) -> None:
    oracle = opened()
    oracle.rate = rate
    assert oracle.judge(CASE, WRONG_VALUE).outcome is Outcome.PASSES
    assert oracle.queries == len(pool_of(oracle).asked) == runs
    assert rate == 1.0 or math.pow(1 - rate, runs) <= 0.02


def test_a_candidate_of_a_flaky_failure_fails_as_soon_as_one_run_does(opened: Open) -> None:
    oracle = opened(in_turn(told(RIGHT), told(RIGHT), told(WRONG)))
    oracle.rate = 0.5
    assert oracle.judge(CASE, WRONG_VALUE).fails and oracle.queries == 3
    again = opened()
    again.rate = 0.5
    assert again.judge(CASE, WRONG_VALUE).fails and (again.queries, again.cache_hits) == (0, 3)


def test_an_invalid_candidate_of_a_flaky_failure_is_run_once(opened: Open) -> None:
    oracle = opened(lambda question: told(Observation("eager", invalid="eager raises")))
    oracle.rate = 0.2
    assert oracle.judge(CASE, WRONG_VALUE).outcome is Outcome.INVALID and oracle.queries == 1


# --- order, looking ahead, stopping -----------------------------------------------------------------------------------


def programs(count: int) -> list[Case]:
    return [line(*["torch.neg"] * (number + 1)) for number in range(count)]


def test_verdicts_come_in_the_order_of_the_cases_whatever_is_finished_first(opened: Open) -> None:
    answers = [WRONG, RIGHT, RIGHT, WRONG]
    late = threading.Timer(0.2, lambda: pool_of(oracle).futures[0].set_result(told(answers[0])))

    def script(question: Question) -> Reply | None:
        place = len(question.case.graph.ops) - 1
        return told(answers[place]) if place else None

    oracle = opened(script, workers=4)
    late.start()
    assert [verdict.fails for verdict in oracle.judge_in_order(programs(4), WRONG_VALUE)] == [True, False, False, True]


def test_no_more_is_asked_ahead_than_there_are_workers_and_only_answers_used_are_counted(opened: Open) -> None:
    oracle = opened(workers=3)
    verdicts = oracle.judge_in_order(iter(programs(9)), WRONG_VALUE)
    next(verdicts)
    assert (oracle.queries, len(pool_of(oracle).asked)) == (1, 3)
    next(verdicts)
    assert (oracle.queries, len(pool_of(oracle).asked)) == (2, 4)


def test_closing_the_verdicts_cancels_what_was_asked_ahead(opened: Open) -> None:
    oracle = opened(lambda question: told(WRONG) if len(question.case.graph.ops) == 1 else None, workers=4)
    verdicts = oracle.judge_in_order(programs(8), WRONG_VALUE)
    next(verdicts)
    verdicts.close()  # type: ignore[attr-defined]
    first, *others = pool_of(oracle).futures
    assert first.done() and len(others) == 3 and all(future.cancelled() for future in others)
    assert oracle.queries == 1


def test_the_same_case_asked_twice_at_once_costs_one_query_as_one_by_one(opened: Open) -> None:
    counts = []
    for workers in (1, 4):
        case = line(*["torch.exp"] * workers)
        oracle = opened(workers=workers)
        list(oracle.judge_in_order([case, case, case], WRONG_VALUE))
        counts.append((oracle.queries, oracle.cache_hits))
    assert counts == [(1, 2), (1, 2)]


def test_being_told_to_stop_while_waiting_ends_at_once_and_counts_no_query(opened: Open) -> None:
    calls = iter(["", "", "budget"])
    oracle = opened(lambda question: None, workers=2, stopped=lambda: next(calls, "budget"))
    with pytest.raises(Stopped) as stop:
        list(oracle.judge_in_order(programs(3), WRONG_VALUE))
    assert stop.value.reason == "budget" and oracle.queries == 0
    assert all(future.cancelled() for future in pool_of(oracle).futures)


def test_values_are_recorded_by_a_worker_without_a_query(opened: Open) -> None:
    made = with_values(CASE)
    oracle = opened(lambda question: told(made))
    assert oracle.materialise(CASE) == made and oracle.queries == 0
    assert pool_of(oracle).asked[0].action == "materialise"
    lost = Observation("", worker_lost="out of memory")
    assert opened(in_turn(told(lost), told(made))).materialise(CASE) == made
    with pytest.raises(WorkerBug, match="could not be recorded"):
        opened(lambda question: told(WorkerError("no"))).materialise(CASE)


SIZES = Sizes((("x.0", 4),), ())


@pytest.mark.parametrize(
    ("reply", "expected"), [(told(SIZES), SIZES), (told(None), None), (told(WorkerError("no")), None)]
)
def test_how_sizes_hang_together_is_no_query(opened: Open, reply: Reply, expected: Sizes | None) -> None:
    oracle = opened(lambda question: reply)
    assert oracle.sizes(CASE) == expected and oracle.queries == 0
    assert pool_of(oracle).asked[0].action == "sizes"


@pytest.mark.parametrize("how", ["SIGSEGV", "timeout"])
def test_a_shape_rule_that_dies_or_hangs_tells_no_sizes_and_is_not_waited_for_long(opened: Open, how: str) -> None:
    oracle = opened(lambda question: died(how, ""))
    oracle.timeout = 600.0
    assert oracle.sizes(CASE) is None and pool_of(oracle).limits == [SHAPES_TIMEOUT]


def test_a_glimpse_is_one_run_without_shaken_inputs(opened: Open) -> None:
    oracle = opened(lambda question: told(Observation("compare")))
    oracle.rate = 0.5
    assert oracle.glimpse(CASE, WRONG_VALUE).outcome is Outcome.PASSES
    assert [question.noise for question in pool_of(oracle).asked] == [0]


def test_workers_are_warmed_without_a_query(opened: Open) -> None:
    oracle = opened(workers=3)
    oracle.warm_up()
    assert [question.action for question in pool_of(oracle).asked] == ["warm"] * 3 and oracle.queries == 0


def test_what_a_part_does_in_the_whole_is_a_query_of_its_own_and_kept(opened: Open) -> None:
    part = line("torch.neg")
    oracle = opened(lambda question: told(WRONG if question.action == "patch" else RIGHT))
    assert oracle.patched(part, CASE) == WRONG and not oracle.judge(part, WRONG_VALUE).fails
    (asked, _) = pool_of(oracle).asked
    assert (asked.case, asked.inside, asked.noise, oracle.queries) == (part, CASE, NOISE, 2)
    again = opened()
    assert again.patched(part, CASE) == WRONG and (again.queries, again.cache_hits) == (0, 1)
    again.patched(part, with_values(CASE))
    assert again.queries == 1


# --- parts of the compiler left out -----------------------------------------------------------------------------------

PARTS = [WATCHED, alone("fusion"), without("fusion", ["op1+op2"]), alone("fusion", ["op1+op2"])]


def test_what_is_left_out_of_the_compiler_travels_with_the_question_and_is_part_of_its_key(opened: Open) -> None:
    oracle = opened(lambda question: told(RIGHT if question.ablation == alone("fusion") else WRONG), workers=2)
    oracle.judge(CASE, WRONG_VALUE)
    answers = [verdict.fails for verdict in oracle.judge_ablated(CASE, PARTS, WRONG_VALUE)]
    assert answers == [True, False, True, True] and oracle.queries == 1 + len(PARTS)
    assert [question.ablation for question in pool_of(oracle).asked] == [None, *PARTS]
    again = opened(lambda question: told(WRONG))
    assert [verdict.cached for verdict in again.judge_ablated(CASE, PARTS, WRONG_VALUE)] == [True] * len(PARTS)
    assert not pool_of(again).asked


def test_runs_repeated_for_a_flaky_failure_leave_out_the_same(opened: Open) -> None:
    oracle = opened(lambda question: told(RIGHT))
    oracle.rate = 0.5
    (verdict,) = oracle.judge_ablated(CASE, [alone("fusion")], WRONG_VALUE)
    assert verdict.outcome is Outcome.PASSES and oracle.queries == 6
    assert {question.ablation for question in pool_of(oracle).asked} == {alone("fusion")}
