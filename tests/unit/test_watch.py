"""Watching a program as it compiles: healthy regions are checked and left alone, wrong ones saved, the rest explained."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from minify import case as cases
from minify import torch_internals
from minify.capture.watch import AHEAD_FROM_OPS, Watch, Watcher
from minify.case import Case, ScalarInput
from minify.metric import Metric

X = torch.arange(1.0, 7.0)
Change = Callable[[Callable[..., Any]], Callable[..., Any]]


def wrong(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: tuple(result + 1e-2 for result in call(*args))


def wrong_gradient(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: tuple(2 * result - result.detach() for result in call(*args))


def forgets_writes(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: call(*(arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args))


class Fake:
    """A backend that runs graphs eagerly, changed by `change`."""

    def __init__(self, change: Change = lambda call: call) -> None:
        self.change = change

    def __call__(self, module: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        return self.change(module.forward)


def run(
    folder: Path, fn: Callable[..., Any], *inputs: Any, change: Change = lambda call: call, **how: Any
) -> list[dict[str, Any]]:
    """The journal of one watched run. The backend counts as one that the script calls `fake`."""
    fake = Fake(change)
    watch = Watch(how.pop("kind", "accuracy"), folder, keep=how.pop("keep", None), ahead=how.pop("ahead", False))
    watcher = Watcher(watch, {"fake": fake}, "fake = None")
    watcher.metric = how.pop("metric", None)
    torch.compiler.reset()
    with torch_internals.watched_compiles(watcher.wrap):
        compiled = torch.compile(fn, backend=fake, dynamic=how.pop("dynamic", None))
        for _ in range(how.pop("times", 1)):
            compiled(*inputs)
    torch.compiler.reset()
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def named(events: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] in names]


VERDICTS = ("checked", "unchecked", "diverged", "deferred", "skipped", "drift")


def told(events: list[dict[str, Any]]) -> list[str]:
    return [event["event"] for event in named(events, *VERDICTS)]


def branching(x: torch.Tensor, n: int) -> torch.Tensor:
    return x.view(n, -1).sum(0)


@torch.library.custom_op("watch_test::twice", mutates_args=())
def no_backward(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@no_backward.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@pytest.mark.parametrize(
    ("fn", "inputs", "how"),
    [
        (lambda x: x.sin() + 1, (X,), {}),
        (lambda x: x.mul_(2).add(1), (X.clone(),), {}),
        (lambda x: (x * 2).sum(), (X.clone().requires_grad_(),), {}),
        (lambda x: x.mul_(2).sin(), (X.clone().requires_grad_() * 1,), {}),
        (branching, (X, 2), {"dynamic": True}),
        (lambda x, s: x * s + s, (X, 1.5), {"dynamic": True}),
        (lambda x, s: x * s + s, (X.clone().requires_grad_(), 1.5), {"dynamic": True}),
        (lambda x: (x[1:], x.view(2, 3).t()), (X,), {}),
        (lambda x: x * torch.tensor([1.0, 2.0]).sum(), (X,), {}),
    ],
)
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_healthy_region_is_checked_and_nothing_more(fn: Any, inputs: Any, how: Any, tmp_path: Path) -> None:
    assert told(run(tmp_path, fn, *inputs, **how)) == ["checked"]


def long(x: torch.Tensor) -> torch.Tensor:
    for _ in range(AHEAD_FROM_OPS):
        x = x.sin()
    return x


def test_a_region_is_on_disk_before_its_compile_as_it_is_after_its_wrong_run(tmp_path: Path) -> None:
    events = run(tmp_path, long, X, change=wrong, ahead=True)
    before, after = named(events, "compiling")[0]["ahead"], named(events, "diverged")[0]["case"]
    assert before == after
    saved = cases.digest(cases.load(Path(after)))
    (tmp_path / "again").mkdir()
    assert run(tmp_path / "again", long, X, ahead=True)[-1]["event"] == "checked"
    assert cases.digest(cases.load(tmp_path / "again" / "regions" / "0.case")) == saved


@pytest.mark.parametrize(
    ("fn", "x", "how"),
    [
        (long, X, {"ahead": False}),
        (lambda x: x.sin(), X, {"ahead": True}),
        (long, X.clone().requires_grad_(), {"ahead": True}),
    ],
)
def test_no_other_region_is(fn: Any, x: torch.Tensor, how: dict[str, bool], tmp_path: Path) -> None:
    assert named(run(tmp_path, fn, x, **how), "compiling")[0]["ahead"] == ""


def test_of_several_regions_the_first_is_on_disk_before_its_compile(tmp_path: Path) -> None:
    def twice(x: torch.Tensor) -> torch.Tensor:
        x = long(x)
        torch._dynamo.graph_break()
        return long(x)

    assert [bool(event["ahead"]) for event in named(run(tmp_path, twice, X, ahead=True), "compiling")] == [True, False]


@pytest.mark.parametrize(
    ("fn", "inputs", "change", "where"),
    [
        (lambda x: x.sin(), (X,), wrong, "output:sin value"),
        (lambda x: x.sin(), (X.clone().requires_grad_(),), wrong_gradient, "grad:x value"),
        (lambda x: x.mul_(2) + 1, (X.clone(),), forgets_writes, "input:x value"),
    ],
)
def test_a_wrong_region_is_saved_with_its_real_inputs(
    fn: Any, inputs: Any, change: Change, where: str, tmp_path: Path
) -> None:
    events = run(tmp_path, fn, *inputs, change=change)
    assert told(events) == ["diverged"]
    (event,) = named(events, "diverged")
    assert [f"{row['where']} {row['kind']}" for row in event["rows"]] == [where]
    case = cases.load(Path(event["case"]))
    assert isinstance(case, Case)
    assert [item.name for item in case.inputs] == ["x"]
    assert case.settings.backend == cases.Const("fake")


def test_a_symbolic_float_is_a_number_in_the_saved_case(tmp_path: Path) -> None:
    events = run(tmp_path, lambda x, s: x * s, X, 1.5, change=wrong, dynamic=True)
    case = cases.load(Path(named(events, "diverged")[0]["case"]))
    assert case.inputs[1] == ScalarInput("s", 1.5, dynamic=True)


def test_a_region_that_draws_random_numbers_is_left_to_a_worker(tmp_path: Path) -> None:
    assert told(run(tmp_path, lambda x: torch.rand_like(x) + x, X)) == ["deferred"]


def slightly_off(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: tuple(part * 1.015 for part in call(*args))


def test_drift_in_half_precision_is_left_to_a_worker_which_can_ask_the_same_of_float32(tmp_path: Path) -> None:
    def rounds(x: torch.Tensor) -> torch.Tensor:
        return ((x.bfloat16() + 64) - 64).float()

    events = run(tmp_path, rounds, X / 7, change=slightly_off, times=3)
    assert told(events) == ["drift", "checked", "deferred", "drift", "checked", "drift", "checked"]
    (tmp_path / "float32").mkdir()
    in_float32 = run(tmp_path / "float32", lambda x: (x + 2e5) - 2e5, X / 7, change=slightly_off)
    assert told(in_float32) == ["drift", "checked"]


def test_a_backward_that_eager_cannot_run_is_left_out(tmp_path: Path) -> None:
    fn = lambda x: no_backward(x) + 1  # noqa: E731
    assert told(run(tmp_path, fn, X.clone().requires_grad_())) == ["checked"]
    (tmp_path / "again").mkdir()
    events = run(tmp_path / "again", fn, X.clone().requires_grad_(), change=wrong)
    assert told(events) == ["diverged"]
    case = cases.load(Path(named(events, "diverged")[0]["case"]))
    assert (case.settings.grad_mode, case.settings.backward) == ("grad", "")


def test_later_runs_are_checked_more_and_more_rarely(tmp_path: Path) -> None:
    events = run(tmp_path, lambda x: x.sin(), X, times=70)
    assert [event["call"] for event in named(events, "checked")] == [*range(1, 17), 32, 64]


def test_the_random_numbers_of_the_program_are_those_it_draws_unwatched(tmp_path: Path) -> None:
    torch.manual_seed(3)
    run(tmp_path, lambda x: x.sin(), X)
    watched = torch.rand(4)
    torch.manual_seed(3)
    assert torch.equal(watched, torch.rand(4))


def test_a_compiler_that_raises_is_reported_with_the_case_it_raised_on(tmp_path: Path) -> None:
    def refuses(call: Callable[..., Any]) -> Callable[..., Any]:
        raise ValueError("cannot lower node 12")

    with pytest.raises(Exception, match="cannot lower"):
        run(tmp_path, lambda x: x.sin(), X, change=refuses, kind="crash")
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    (crashed,) = named(events, "crashed")
    assert (crashed["signature"]["name"], crashed["signature"]["message"]) == ("ValueError", "cannot lower node #")
    (compiling,) = named(events, "compiling")
    assert cases.load(Path(compiling["case"])).graph.ops[0].target == ".sin"


@pytest.mark.parametrize("grows", [True, False])
def test_a_region_is_told_to_have_a_backward_to_come_exactly_when_its_case_runs_one(
    grows: bool, tmp_path: Path
) -> None:
    events = run(tmp_path, lambda x: x.sin(), X.clone().requires_grad_(grows), kind="crash")
    for event in named(events, "compiling", "running"):
        assert event["backward"] is bool(cases.load(Path(event["case"])).settings.backward) is grows


@pytest.mark.parametrize(
    ("beside", "line", "kept"),
    [
        ("beside_the_script", "import beside_the_script", True),
        ("signal", "import signal", False),  # the standard library's is there already
        ("beside_the_script", "import signal", False),
    ],
)
def test_the_folder_of_the_script_is_kept_only_for_a_module_that_comes_from_it(
    beside: str, line: str, kept: bool, tmp_path: Path
) -> None:
    (tmp_path / f"{beside}.py").touch()
    source = f"{line}\n\n\ndef mine(gm, inputs):\n    return {line.split()[1]} and gm.forward\n"
    watcher = Watcher(Watch("crash", tmp_path), {"__file__": str(tmp_path / "user.py")}, source)
    prelude = watcher._prelude(frozenset(["mine"]), frozenset())
    assert line in prelude
    assert (str(tmp_path) in prelude) == kept


def next_integer(call: Any) -> Any:
    return lambda *args: tuple(value + 1 if not value.is_floating_point() else value for value in call(*args))


@pytest.mark.parametrize(
    ("fn", "x", "change", "sure"),
    [
        (lambda x: x.sin(), X, wrong, ["output:sin"]),
        (lambda x: x.sin(), X.clone().requires_grad_(), wrong_gradient, []),
        (lambda x: x.mul_(2) + 1, X.clone(), forgets_writes, []),
        (lambda x: x.tanh().argmax(-1), torch.linspace(-1, 1, 12).reshape(3, 4), next_integer, ["output:argmax"]),
        (lambda x: x.tanh().argmax(-1), torch.full((3, 16), 9.5), next_integer, []),
    ],
    ids=["an output", "a gradient", "a write", "an integer", "an integer that rounding decides"],
)
def test_only_an_output_that_no_rounding_explains_is_surely_wrong(
    fn: Any, x: torch.Tensor, change: Any, sure: list[str], tmp_path: Path
) -> None:
    (event,) = named(run(tmp_path, fn, x, change=change), "diverged")
    assert [row["where"] for row in event["sure"]] == sure


@pytest.mark.parametrize(("keep", "saved"), [(None, ""), (0, "regions/0.case"), (1, "")])
def test_the_case_of_a_healthy_region_is_kept_where_it_is_wanted(keep: int | None, saved: str, tmp_path: Path) -> None:
    events = named(run(tmp_path, lambda x: x.sin() + 1, X, keep=keep, times=2), "checked")
    assert [event["case"] for event in events] == [saved and str(tmp_path / saved), ""]
    assert (tmp_path / "regions" / "0.case").exists() == bool(saved)


def test_that_a_region_raises_is_noted_whatever_is_looked_for(tmp_path: Path) -> None:
    def raising(call: Callable[..., Any]) -> Callable[..., Any]:
        raise ValueError("no")

    with pytest.raises(Exception, match="no"):
        run(tmp_path, lambda x: x.sin() + 1, X, change=raising)
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [event["raised"] for event in named(events, "left")] == ["ValueError"]


# --- the user's metric ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fn", "x", "change", "metric", "verdict"),
    [
        (lambda x: x.sin(), X, wrong, lambda y: y.argmax(), "checked"),
        (lambda x: x.sin(), X, wrong, lambda y: y.double().mean(), "diverged"),
        (lambda x: x.sin(), X.clone().requires_grad_(), wrong, lambda y: y.argmax(), "checked"),
        (lambda x: x.sin(), X.clone().requires_grad_(), wrong_gradient, lambda y: y.argmax(), "diverged"),
        (lambda x: x.mul_(2) + 1, X.clone(), forgets_writes, lambda y: 0, "diverged"),
    ],
    ids=["unmoved", "moved", "unmoved, with a right gradient", "unmoved, with a wrong gradient", "a write"],
)
def test_a_wrong_output_is_a_find_only_where_the_metric_moves(
    fn: Any, x: torch.Tensor, change: Change, metric: Any, verdict: str, tmp_path: Path
) -> None:
    events = run(tmp_path, fn, x, change=change, metric=Metric("m.py:f", metric, 1e-4))
    assert [event["event"] for event in named(events, "checked", "diverged", "unchecked")] == [verdict]
    for event in named(events, "metric"):
        assert event["text"].startswith("the metric ") and (event["by"] > 1e-4) == (verdict == "diverged")


def test_each_run_is_measured_until_one_moves_the_metric(tmp_path: Path) -> None:
    metric = Metric("m.py:f", lambda y: y.double().mean(), 0.05)

    def worse_and_worse(call: Callable[..., Any]) -> Callable[..., Any]:
        runs = itertools.count(1)
        return lambda *args: tuple(result + 0.02 * number for number in [next(runs)] for result in call(*args))

    events = run(tmp_path, lambda x: x.sin(), X, change=worse_and_worse, metric=metric, times=5)
    assert [event["call"] for event in named(events, "metric")] == [1, 2, 3]
    assert [event["call"] for event in named(events, "diverged")] == [3]
    rows = named(events, "diverged")[0]["sure"]
    assert [row["where"] for row in rows] == ["output:sin"]


def test_a_metric_that_raises_is_told_and_is_nobody_elses_trouble(tmp_path: Path) -> None:
    events = run(tmp_path, lambda x: x.sin(), X, change=wrong, metric=Metric("m.py:f", lambda a, b: 0))
    assert told(events) == []
    (event,) = named(events, "refused")
    assert event["message"].startswith("--metric m.py:f raised TypeError") and "float32[6]" in event["message"]
