"""The user's own metric: which divergences it lets pass, of the program that it is meant for and of what is cut out of it."""

from __future__ import annotations

import dataclasses
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from minify import worker
from minify.case import Case, Derived, Op, Recipe, Ref
from minify.errors import UsageError
from minify.metric import Metric, named
from minify.store import save_base
from minify.verdict import Measured, Observation, Question
from tests.cases import build, given, op, tensor
from tests.unit.test_worker_judge import INTS, PRELUDE, RANDN, RELU, TRAINS, VIEWS, WRITES, faulty, kinds

R = Ref
METRICS = """
import torch

def top1(logits, *rest):
    return (logits.argmax(-1) == 0).float().mean()

def mean(*outputs):
    return outputs[0].double().mean()

def both(*outputs):
    return 1, outputs[0].double().mean().item()

def still(*outputs):
    return 1.0

def spoils(logits):
    torch.manual_seed(7)
    return float(logits.zero_().sum())

def raises(logits):
    raise ValueError("no labels")

def leaves(logits):
    raise SystemExit(3)

def nothing(logits):
    return None

def no_numbers(logits):
    return ()

def text(logits):
    return "0.5"

def vector(logits):
    return logits

def nan(logits):
    return float("nan")

def fewer(logits):
    return [1.0] * (1 + int(logits.mean() > 50))

def grows(logits):
    return logits.double().mean().log()
"""


@pytest.fixture
def metrics(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.py"
    path.write_text(METRICS)
    return path


def asked(case: Case, metrics: Path, name: str, whole: Case | None = None, **how: Any) -> Observation:
    """What a worker sees of `case`, judged by a metric of the outputs of `whole`, which is the case itself if it is not given."""
    root = metrics.parent
    base = save_base(root, case if whole is None else whole)
    question = Question("judge", case, "accuracy", str(root), metric=f"{metrics}:{name}", whole=base, **how)
    return worker.judge(question, lambda phase: None)


LOGITS = faulty(RELU, "adds to relu")  # each element is off by 0.01


@pytest.mark.parametrize(
    ("name", "tolerance", "stands"),
    [
        ("top1", 0.0, False),
        ("still", 0.0, False),
        ("mean", 0.0, True),
        ("mean", 0.005, True),
        ("mean", 0.02, False),
        ("both", 0.005, True),
        ("both", 0.02, False),
    ],
)
@pytest.mark.parametrize("noise", [0, 2])
def test_a_wrong_output_counts_only_if_the_metric_moves_by_more_than_its_tolerance(
    name: str, tolerance: float, stands: bool, noise: int, metrics: Path
) -> None:
    seen = asked(LOGITS, metrics, name, metric_tol=tolerance, noise=noise)
    assert kinds(seen) == (["output:y value"] if stands else [])
    assert [f"{row.where} {row.kind}" for row in seen.drift] == ([] if stands else ["output:y value"])
    assert seen.metric is not None and seen.metric.moved is stands and seen.phase == "compare"


def test_the_numbers_of_all_three_results_are_told(metrics: Path) -> None:
    seen = asked(LOGITS, metrics, "mean")
    assert seen.metric is not None
    assert seen.metric.compiled[0] - seen.metric.eager[0] == pytest.approx(0.01, rel=1e-4)
    assert seen.metric.reference == pytest.approx(seen.metric.eager, rel=1e-6)
    assert str(Measured((0.5,), (0.75,), (0.7512345678,), (0.0,), 0.01)) == (
        "the metric moves (0.5 compiled, 0.75 in eager, 0.751235 by the reference, tolerance 0.01)"
    )


def test_of_many_numbers_the_first_are_told() -> None:
    many = tuple(map(float, range(6)))
    told = (
        "the metric lets it pass (0, 1, 2, 3, ... compiled, 0, 1, 2, 3, ... in eager, 0, 1, 2, 3, ... by the reference"
    )
    assert str(Measured(many, many, many, many)).startswith(told)


def test_a_program_that_is_right_never_asks_its_metric(metrics: Path) -> None:
    assert asked(faulty(RELU, "right"), metrics, "raises").metric is None


def test_the_metric_tells_its_numbers_of_mere_drift_and_changes_nothing(metrics: Path) -> None:
    near_ties = build(
        [given("x", tensor((3, 16)), Recipe("full", (9.5,)))],
        [op("a", "torch.tanh", R("x")), op("y", "torch.argmax", R("a"), -1, meta=tensor((3,), "int64"))],
        ["y"],
    )
    seen = asked(faulty(near_ties, "off by one"), metrics, "mean", noise=3)
    assert kinds(seen) == [] and seen.metric is not None and seen.metric.by == 1.0


@pytest.mark.parametrize(
    ("case", "fault", "stays"),
    [
        (RELU, "changes strides", "output:y stride"),
        (RELU, "changes the dtype", "output:y dtype"),
        (RELU, "makes NaN", "output:y nonfinite"),
        (WRITES, "forgets writes", "input:x value"),
        (VIEWS, "copies views", "output:v aliasing"),
        (TRAINS, "doubles the gradient", "grad:x value"),
    ],
)
def test_what_a_metric_of_the_outputs_cannot_see_it_does_not_excuse(
    case: Case, fault: str, stays: str, metrics: Path
) -> None:
    assert kinds(asked(faulty(case, fault), metrics, "still")) == [stays]


def test_an_integer_is_judged_by_the_metric_too(metrics: Path) -> None:
    case = faulty(INTS, "off by one")
    assert kinds(asked(case, metrics, "still")) == []
    assert kinds(asked(case, metrics, "mean")) == ["output:y integer"]


# --- when it has moved ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("compiled", "eager", "reference", "spread", "tolerance", "moved"),
    [
        (0.90, 0.93, 0.93, 0.0, 0.02, True),
        (0.90, 0.93, 0.93, 0.0, 0.05, False),
        (0.90, 0.91, 0.93, 0.0, 0.0, False),  # eager itself is off by two thirds as much
        (0.85, 0.91, 0.93, 0.0, 0.0, True),
        (0.90, 0.93, 0.93, 0.02, 0.0, False),  # inputs that are a little off do as much
        (0.93, 0.93, 0.93, 0.0, 0.0, False),
        (math.nan, 0.93, 0.93, 0.0, 9.0, True),
        (math.inf, 0.93, 0.93, 5.0, 9.0, True),
    ],
)
def test_a_metric_has_moved_where_neither_the_tolerance_nor_eager_explains_it(
    compiled: float, eager: float, reference: float, spread: float, tolerance: float, moved: bool
) -> None:
    found = Measured((compiled,), (eager,), (reference,), (spread,), tolerance)
    assert found.moved is moved
    assert (found.by == math.inf) == (not math.isfinite(compiled))
    beside = Measured((1.0, compiled), (1.0, eager), (1.0, reference), (0.0, spread), tolerance)
    assert beside.moved is moved and beside.by == found.by


def test_a_metric_that_is_no_number_for_the_compiled_result_alone_has_moved(metrics: Path) -> None:
    case = build([given("x", tensor((4,)), Recipe("full", (0.005,)))], [op("y", ".mul", R("x"), 1.0)], ["y"])
    minus = PRELUDE.format("lambda call: lambda *args: tuple(o - 0.01 for o in call(*args))")
    wrong = dataclasses.replace(LOGITS, inputs=case.inputs, program=dataclasses.replace(case.program, prelude=minus))
    seen = asked(wrong, metrics, "grows", metric_tol=100.0)
    assert kinds(seen) == ["output:y value"] and seen.metric is not None and seen.metric.by == math.inf


# --- a metric that is none -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raises", "raised ValueError: no labels, for the eager outputs (float32[4, 3])"),
        ("leaves", "raised SystemExit: 3"),
        ("nothing", "raised TypeError: float() argument"),
        ("no_numbers", "returned no number"),
        ("text", "raised TypeError: '0.5' is no number"),
        ("vector", "a tensor of shape (4, 3) is no number"),
        ("nan", "is nan, for the eager outputs"),
        ("missing", "has no attribute 'missing'"),
    ],
)
def test_a_metric_that_gives_no_number_is_the_users_error(name: str, said: str, metrics: Path) -> None:
    with pytest.raises(UsageError) as raised:
        asked(LOGITS, metrics, name)
    answer = pickle.loads(pickle.dumps(worker._excuse(raised.value)))
    assert isinstance(answer, UsageError) and str(answer) == str(raised.value)
    assert said in answer.message and f"{metrics}:{name}" in answer.message and answer.next_step


def test_a_metric_that_returns_now_one_number_and_now_two_is_the_users_error(metrics: Path) -> None:
    far = PRELUDE.format("lambda call: lambda *args: tuple(o + 99 for o in call(*args))")
    case = dataclasses.replace(LOGITS, program=dataclasses.replace(LOGITS.program, prelude=far))
    with pytest.raises(UsageError, match="returned 1 numbers, then 1 and 2"):
        asked(case, metrics, "fewer")


def test_what_a_metric_does_to_its_arguments_and_to_random_numbers_stays_with_it(metrics: Path) -> None:
    torch.manual_seed(3)
    due = torch.rand(2)
    torch.manual_seed(3)
    outputs = (torch.ones(3, requires_grad=True), 2)
    assert Metric("m", lambda x, n: x.zero_().sum() + n).of(outputs, "eager") == (2.0,)
    assert named(f"{metrics}:spoils", 0.0).of(outputs[:1], "eager") == (0.0,)
    assert outputs[0].sum() == 3 and torch.equal(torch.rand(2), due)


# --- cuts of the program -------------------------------------------------------------------------------------------------

# All its results are 0.01 too large. `p` is multiplied by nought; `r` is what the program returns.
TWO = build(
    [given("x", tensor((4, 3)), RANDN)],
    [
        op("p", "torch.exp", R("x")),
        op("q", "torch.mul", R("p"), 0.0),
        op("r", "torch.neg", R("x")),
        op("y", "torch.add", R("q"), R("r")),
    ],
    ["y"],
)


def cut(*ops: Op, inputs: Any = None, outputs: tuple[str, ...] = ()) -> Case:
    case = build(inputs or list(TWO.inputs), ops, list(outputs or [call.name for call in ops]))
    return faulty(case, "adds to relu")


P, Q, RR, Y = TWO.graph.ops
WHOLE = faulty(TWO, "adds to relu")


@pytest.mark.parametrize(
    ("case", "wrong"),
    [
        (cut(P), []),
        (cut(RR), ["output:r value"]),
        (cut(P, RR), ["output:p value", "output:r value"]),
        (cut(P, Q, outputs=("q",)), ["output:q value"]),
    ],
    ids=["of no effect", "of effect", "both", "of effect through another op"],
)
def test_a_cut_is_judged_by_what_its_wrong_values_do_to_the_metric_of_the_original(
    case: Case, wrong: list[str], metrics: Path
) -> None:
    seen = asked(case, metrics, "mean", WHOLE, metric_tol=1e-3)
    assert kinds(seen) == wrong and seen.metric is not None
    assert kinds(asked(case, metrics, "still", WHOLE)) == []


def test_a_cut_that_reads_a_value_of_the_original_is_judged_so(metrics: Path) -> None:
    base = save_base(metrics.parent, WHOLE)
    case = cut(Q, inputs=[given("p", tensor((4, 3)), Derived(base, "p"))])
    assert kinds(asked(case, metrics, "still", WHOLE)) == []
    assert kinds(asked(case, metrics, "mean", WHOLE)) == ["output:q value"]


def test_noise_explains_what_a_cut_does_to_the_metric_as_well(metrics: Path) -> None:
    seen = asked(cut(RR), metrics, "mean", WHOLE, noise=2)
    assert seen.metric is not None and 0 < seen.metric.spread[0] < 1e-6 and kinds(seen) == ["output:r value"]


@pytest.mark.parametrize(
    "case",
    [
        cut(RR, inputs=[given("x", tensor((4, 3)), Recipe("ones"))]),
        cut(dataclasses.replace(RR, name="r__alone")),
        cut(dataclasses.replace(RR, args=(R("x"),), target=".sum")),
    ],
    ids=["other values", "another name", "another shape"],
)
def test_what_has_no_place_in_the_original_is_not_the_metrics_business(case: Case, metrics: Path) -> None:
    seen = asked(case, metrics, "still", WHOLE)
    assert len(kinds(seen)) == 1 and seen.metric is None


def test_wrong_values_that_the_original_cannot_go_on_with_do_matter(metrics: Path) -> None:
    whole = build(
        [given("x", tensor((4,), "int64"), Recipe("full", (3,)))],
        [op("i", "torch.mul", R("x"), 1), op("t", "torch.arange", 4.0), op("y", "operator.getitem", R("t"), R("i"))],
        ["y"],
    )
    wrong = faulty(build(list(whole.inputs), whole.graph.ops[:1], ["i"]), "off by one")
    seen = asked(wrong, metrics, "still", faulty(whole, "off by one"))
    assert kinds(seen) == ["output:i integer"] and seen.metric is not None and seen.metric.by == math.inf


def test_a_case_of_no_known_whole_is_judged_without_the_metric(metrics: Path) -> None:
    question = Question("judge", LOGITS, "accuracy", str(metrics.parent), metric=f"{metrics}:still")
    assert kinds(worker.judge(question, lambda phase: None)) == ["output:y value"]


def test_the_metric_is_a_phase_of_its_own(metrics: Path) -> None:
    phases: list[str] = []
    base = save_base(metrics.parent, LOGITS)
    question = Question("judge", LOGITS, "accuracy", str(metrics.parent), metric=f"{metrics}:mean", whole=base)
    worker.judge(question, phases.append)
    assert phases == ["load", "eager", "reference", "compile", "compare", "metric", "compare"]
