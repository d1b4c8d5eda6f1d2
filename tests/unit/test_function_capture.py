"""Failures caught without a script: graphs of a Python function, and `torch.compile(backend="minify")`. Nothing here
compiles: Dynamo captures, and stand-ins take the place of Inductor."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from minify import case as cases
from minify import torch_internals
from minify.backend import minify_backend
from minify.capture.function import capture_function
from minify.capture.script import Suspect
from minify.case import Case, Const
from minify.errors import NoFailure, UsageError
from minify.replay import replay
from minify.runs import RunFolder
from tests.backends import off_by_one, scaled


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def captured(
    fn: Callable[..., Any], inputs: Sequence[Any] | Mapping[str, Any], *, train: bool = False, **how: Any
) -> list[Case]:
    """The cases of `fn`, whose order and files are as promised."""
    suspects = capture_function(fn, inputs, Path.cwd(), how, train=train)
    assert [suspect.region for suspect in suspects] == sorted({suspect.region for suspect in suspects})
    assert not any(suspect.certain for suspect in suspects)
    return [loaded(suspect) for suspect in suspects]


def loaded(suspect: Suspect) -> Case:
    return cases.load(suspect.case)


def rerun(case: Case, store: Path = Path("store")) -> Any:
    live = replay(case, store)
    return live.fn(*live.make_inputs())


# --- functions --------------------------------------------------------------------------------------------------------


def broken_in_two(x: torch.Tensor) -> torch.Tensor:
    y = x.sin() + 1
    torch._dynamo.graph_break()
    return y.cos() * 2


def test_a_function_gives_its_graph_with_its_real_inputs() -> None:
    x, by = torch.randn(3, 4).t(), torch.tensor(2.5)
    (case,) = captured(scaled, (x, by))
    assert [op.target for op in case.graph.ops] == ["torch.relu", "operator.mul"]
    assert torch.equal(rerun(case), scaled(x, by))
    metas = {item.name: item.meta for item in cases.tensor_inputs(case)}
    assert sorted((meta.shape, meta.stride) for meta in metas.values()) == [((), ()), ((4, 3), (1, 4))]


def test_keyword_arguments_are_given_by_name() -> None:
    x, by = torch.randn(2, 2), torch.full((2, 2), 3.0)
    (case,) = captured(scaled, {"by": by, "x": x})
    assert torch.equal(rerun(case), scaled(x, by))


def test_each_side_of_a_graph_break_is_a_region_of_its_own_fed_by_the_one_before() -> None:
    x = torch.randn(5)
    first, second = captured(broken_in_two, [x])
    assert [[op.target for op in case.graph.ops] for case in (first, second)] == [
        [".sin", "operator.add"],
        [".cos", "operator.mul"],
    ]
    assert torch.equal(rerun(second), broken_in_two(x))


def test_what_a_closure_holds_becomes_an_input() -> None:
    weight = torch.randn(4)
    (case,) = captured(lambda x: x @ weight, (torch.ones(4),))
    assert torch.allclose(rerun(case), weight.sum())


def test_a_module_gives_its_parameters_as_inputs() -> None:
    model = torch.nn.Linear(3, 2)
    x = torch.randn(1, 3)
    (case,) = captured(model, (x,))
    assert {"parameter" in item.meta.flags for item in cases.tensor_inputs(case)} == {True, False}
    assert torch.allclose(rerun(case), model(x))


def test_gradients_are_asked_for_only_in_training() -> None:
    x = torch.randn(3, requires_grad=True)
    (plain,) = captured(scaled, (x, torch.ones(3)))
    (training,) = captured(scaled, (x, torch.ones(3)), train=True)
    assert (plain.settings.grad_mode, plain.settings.backward) == ("no_grad", "")
    assert training.settings.grad_mode == "grad" and training.settings.backward
    assert torch.is_grad_enabled()


def test_how_the_program_would_be_compiled_is_kept_though_nothing_is() -> None:
    (case,) = captured(scaled, (torch.ones(2), torch.ones(2)), mode="max-autotune", dynamic=False)
    assert (case.settings.backend, case.settings.mode, case.settings.dynamic) == ("inductor", "max-autotune", False)
    (case,) = captured(scaled, (torch.ones(2), torch.ones(2)), backend="aot_eager", options={"max_fusion_size": 1})
    assert (case.settings.backend, case.settings.options) == ("aot_eager", (("max_fusion_size", 1),))


@pytest.mark.parametrize("fn", [scaled, torch.nn.Bilinear(2, 2, 2)], ids=["of its module", "of torch"])
def test_a_backend_of_the_users_own_goes_along_by_name_with_its_text(fn: Callable[..., Any]) -> None:
    (case,) = captured(fn, (torch.ones(2), torch.ones(2)), backend=off_by_one)
    assert case.settings.backend == Const("off_by_one")
    assert "def off_by_one" in case.program.prelude and "unrelated" not in case.program.prelude
    live = replay(case, Path("store"))
    compiler = live.python(case.settings.backend)
    assert compiler.__doc__ == off_by_one.__doc__


def test_a_backend_without_a_name_cannot_be_written_down() -> None:
    with pytest.raises(UsageError, match=r"no graph of scaled can be written down: .*function of a module"):
        captured(scaled, (torch.ones(2), torch.ones(2)), backend=lambda module, inputs: module)


class Own(torch.Tensor):
    """A tensor that is more than its elements."""


def test_inputs_that_are_no_plain_tensors_are_named_as_the_reason() -> None:
    with pytest.raises(UsageError, match=r"written down: input x\S* is a Own"):
        captured(torch.neg, (torch.ones(2).as_subclass(Own),))


def test_where_dynamo_captures_no_graph_there_is_no_failure() -> None:
    with pytest.raises(NoFailure, match="captures no graph from plain"):

        def plain(number: int) -> int:
            return number + 1

        captured(plain, (1,))


def test_what_the_function_raises_comes_through() -> None:
    with pytest.raises(Exception, match=r"size|shape|dimension"):
        captured(scaled, (torch.ones(2), torch.ones(3)))


def test_a_graph_run_many_times_is_saved_as_it_first_ran() -> None:
    def twice(x: torch.Tensor) -> Any:
        return stepped(stepped(x))

    @torch.compiler.disable(recursive=False)  # type: ignore[untyped-decorator]
    def stepped(x: torch.Tensor) -> torch.Tensor:
        return inner(x)

    def inner(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    (case,) = captured(twice, (torch.zeros(2),))
    assert torch.equal(rerun(case), torch.ones(2))


# --- backend="minify" -------------------------------------------------------------------------------------------------

Compiler = Callable[..., Callable[..., Any]]


def right(module: torch.fx.GraphModule, example_inputs: list[Any], **_: Any) -> Callable[..., Any]:
    return module.forward


def fails_to_compile(module: torch.fx.GraphModule, example_inputs: list[Any], **_: Any) -> Callable[..., Any]:
    raise NotImplementedError("no lowering")


def fails_to_run(module: torch.fx.GraphModule, example_inputs: list[Any], **_: Any) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        raise FloatingPointError("no kernel")

    return run


def compiled_by(
    inductor: Compiler, monkeypatch: pytest.MonkeyPatch, fn: Callable[..., Any] = scaled, **how: Any
) -> Callable[..., Any]:
    """`fn` compiled with `backend=minify_backend`, `inductor` standing in for Inductor."""
    monkeypatch.setattr(torch_internals, "backend", lambda name: {"inductor": inductor}[name])
    return torch.compile(fn, backend=minify_backend, **how)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "minify"]


def assert_resumable(kind: str, caplog: pytest.LogCaptureFixture) -> Case:
    """There is one run folder, it says all that `minify resume` needs, and the log tells of it."""
    (path,) = Path("minify-out").iterdir()
    folder = RunFolder(path)
    assert folder.load_request().kind == kind
    (warning,) = told(caplog)
    assert warning.endswith(f"minify resume {path.resolve()}")
    case = folder.captured()
    assert case is not None
    events = [json.loads(row)["event"] for row in (path / "events.jsonl").read_text().splitlines()]
    assert events[0] == "region" and (kind == "crash" or "diverged" in events)
    return case


def test_a_graph_that_diverges_becomes_a_case_and_the_program_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = compiled_by(off_by_one, monkeypatch)
    x, by = torch.randn(4), torch.full((4,), 2.0)
    for _ in range(3):
        assert torch.equal(run(x, by), scaled(x, by) + 1)
    case = assert_resumable("accuracy", caplog)
    assert case.settings.backend == "inductor"
    (path,) = Path("minify-out").iterdir()
    assert torch.equal(rerun(case, path / "store"), scaled(x, by))


@pytest.mark.parametrize(("broken", "what"), [(fails_to_compile, "no lowering"), (fails_to_run, "no kernel")])
def test_a_graph_whose_compile_or_run_raises_becomes_a_case_and_the_exception_comes_through(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: Compiler, what: str
) -> None:
    run = compiled_by(broken, monkeypatch)
    x, by = torch.randn(4), torch.full((4,), 2.0)
    for _ in range(2 if broken is fails_to_run else 1):
        with pytest.raises(Exception, match=what):
            run(x, by)
    case = assert_resumable("crash", caplog)
    (path,) = Path("minify-out").iterdir()
    assert torch.equal(rerun(case, path / "store"), scaled(x, by))


def test_nothing_is_left_or_said_where_nothing_is_wrong(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = compiled_by(right, monkeypatch, broken_in_two)
    x = torch.randn(4)
    assert torch.equal(run(x), broken_in_two(x))
    assert list(Path.cwd().iterdir()) == [] and told(caplog) == []


def test_each_graph_that_fails_has_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled_by(off_by_one, monkeypatch, broken_in_two)(torch.randn(4))
    assert sorted(path.name for path in Path("minify-out").iterdir()) == ["backend-1", "backend-2"]


def test_a_graph_that_draws_random_numbers_is_said_to_be_unchecked_and_left_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = compiled_by(right, monkeypatch, functools.partial(torch.nn.functional.dropout, p=0.5))
    run(torch.ones(8))
    run(torch.ones(8))
    assert list(Path.cwd().iterdir()) == []
    assert ["draws random numbers" in text for text in told(caplog)] == [True]


def test_a_graph_that_cannot_be_written_down_is_said_to_go_unwatched(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = compiled_by(right, monkeypatch, torch.neg)
    run(torch.ones(2).as_subclass(Own))
    assert ["unwatched: input" in text and "Own" in text for text in told(caplog)] == [True]


def test_where_no_folder_can_be_made_the_program_goes_on_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Path("minify-out").write_text("in the way")
    x, by = torch.randn(4), torch.ones(4)
    assert torch.equal(compiled_by(off_by_one, monkeypatch)(x, by), scaled(x, by) + 1)
    assert "cannot be kept" in caplog.text
    caplog.clear()
    torch.compiler.reset()
    with pytest.raises(Exception, match="no lowering"):
        compiled_by(fails_to_compile, monkeypatch)(x, by)
    assert "cannot be kept" in caplog.text


def test_mode_and_options_reach_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []

    def noting(module: torch.fx.GraphModule, example_inputs: list[Any], **given: Any) -> Callable[..., Any]:
        seen.append(given)
        return module.forward

    x = torch.ones(2)
    compiled_by(noting, monkeypatch)(x, x)
    compiled_by(noting, monkeypatch, options={"max_fusion_size": 1})(x, x)
    compiled_by(noting, monkeypatch, mode="max-autotune-no-cudagraphs")(x, x)
    assert seen[:2] == [{}, {"config_patches": {"max_fusion_size": 1}}]
    assert seen[2]["config_patches"]["max_autotune"] is True
