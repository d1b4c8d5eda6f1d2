"""The graphs AOTAutograd makes of a region: each is captured with its real arguments, and its text does what it did."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from minify import case as cases
from minify import reference, replay
from minify.capture import snapshot, watch
from minify.capture.aten import aten_snapshots, kept
from minify.capture.child import Plan
from minify.capture.convert import Unrepresentable
from minify.capture.script import _suspects, read_events
from minify.capture.watch import Watch, Watcher
from minify.case import Case, ScalarInput


def parts_of(fn: Callable[..., Any], inputs: Sequence[Any], root: Path, **how: Any) -> dict[str, Case]:
    """The case of each part of the one graph that Dynamo makes of `fn(*inputs)`."""
    found: dict[str, Case] = {}

    def record(module: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        graph = kept(module)

        def run(*args: Any) -> Any:
            backward = torch.is_grad_enabled()
            settings = snapshot.current_settings(how, lambda value: None, backward=backward)
            found.update((part, taken.case(root)) for part, taken in aten_snapshots(graph, args, settings))
            return module(*args)

        return run

    torch.compiler.reset()
    try:
        torch.compile(fn, backend=record, dynamic=how.get("dynamic"))(*inputs)
    finally:
        torch.compiler.reset()
    return found


def run(case: Case, root: Path) -> tuple[list[Any], list[Any]]:
    """Outputs, and the inputs afterwards, of one eager run of the text."""
    live = replay.replay(case, root)
    with replay.applied(live):
        values = live.make_inputs()
        result = live.fn(*values)
    return list(result) if isinstance(result, tuple) else [result], list(values)


def targets(case: Case) -> list[str]:
    return [op.target for op in case.graph.ops]


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


def test_a_training_step_gives_its_forward_and_its_backward(tmp_path: Path) -> None:
    model, x = mlp(), torch.randn(4, 6, requires_grad=True)
    parts = parts_of(model, (x,), tmp_path)
    assert list(parts) == ["forward", "backward"]
    assert "torch.ops.aten.relu.default" in targets(parts["forward"])
    assert "torch.ops.aten.le.Scalar" in targets(parts["backward"])
    for case in parts.values():
        assert case.program.level == "aten"
        assert (case.settings.grad_mode, case.settings.backward) == ("no_grad", "")
        assert not any(item.meta.requires_grad for item in cases.tensor_inputs(case))


def test_the_text_of_both_parts_gives_what_eager_autograd_gives(tmp_path: Path) -> None:
    model, x = mlp(), torch.randn(4, 6, requires_grad=True)
    parts = parts_of(model, (x,), tmp_path)
    outputs, _ = run(parts["forward"], tmp_path)
    y = model(x)
    torch.testing.assert_close(outputs[0], y)
    torch.manual_seed(0)
    wanted = torch.autograd.grad(y, [*model.parameters(), x], torch.randn_like(y))
    found, _ = run(parts["backward"], tmp_path)
    assert len(found) == len(wanted)
    for gradient in wanted:
        assert any(other.shape == gradient.shape and torch.allclose(other, gradient) for other in found)


def test_without_gradients_there_is_one_inference_graph(tmp_path: Path) -> None:
    model, x = mlp(), torch.randn(4, 6)
    with torch.no_grad():
        parts = parts_of(model, (x,), tmp_path)
        assert list(parts) == ["inference"]
        torch.testing.assert_close(run(parts["inference"], tmp_path)[0][0], model(x))


def test_a_symbolic_size_stays_one(tmp_path: Path) -> None:
    def sized(x: torch.Tensor) -> torch.Tensor:
        return F.relu(x.reshape(-1)) * x.shape[0]

    x = torch.randn(4, 6, requires_grad=True)
    parts = parts_of(sized, (x,), tmp_path, dynamic=True)
    assert list(parts) == ["forward", "backward"]
    assert parts["forward"].settings.dynamic is True
    assert any(target == ".size" for target in targets(parts["forward"]))
    torch.testing.assert_close(run(parts["forward"], tmp_path)[0][0], sized(x))
    sizes = [item.value for item in parts["backward"].inputs if isinstance(item, ScalarInput)]
    assert sizes == [4, 6]


def test_only_the_dims_that_dynamo_made_symbolic_are_dynamic(tmp_path: Path) -> None:
    x = torch.randn(4, 6)
    torch._dynamo.mark_dynamic(x, 0)
    (case,) = parts_of(lambda x: F.relu(x) + 1, (x,), tmp_path).values()
    assert [item.dynamic_dims for item in cases.tensor_inputs(case)] == [(0,)]


def test_a_write_to_an_input_is_in_the_graph_and_not_in_the_users_memory(tmp_path: Path) -> None:
    def write(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x + 1

    x = torch.ones(3)
    (case,) = parts_of(write, (x,), tmp_path).values()
    assert "torch.ops.aten.copy_.default" in targets(case)
    assert x.tolist() == [2, 2, 2], "the user's own run, once"
    outputs, inputs = run(case, tmp_path)
    assert inputs[0].tolist() == [2, 2, 2]
    assert any(output.tolist() == [3, 3, 3] for output in outputs)


def test_inputs_that_share_memory_share_it_in_the_copies(tmp_path: Path) -> None:
    def write(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y * 2

    whole = torch.zeros(4)
    (case,) = parts_of(write, (whole, whole[1:]), tmp_path).values()
    outputs, _ = run(case, tmp_path)
    assert any(output.tolist() == [2, 2, 2] for output in outputs)


def test_autocast_is_in_the_graph_and_no_longer_a_setting(tmp_path: Path) -> None:
    model, x = mlp(), torch.randn(4, 6)
    with torch.autocast("cpu", torch.bfloat16):
        parts = parts_of(model, (x,), tmp_path)
    assert all(case.settings.autocast == () for case in parts.values())
    assert run(parts["forward"], tmp_path)[0][0].dtype == torch.bfloat16


def test_the_users_random_numbers_and_modes_are_left_alone(tmp_path: Path) -> None:
    x = torch.randn(8, requires_grad=True)
    before = torch.get_rng_state()
    parts = parts_of(lambda x: torch.cos(x) * 2, (x,), tmp_path)
    assert list(parts) == ["forward", "backward"]
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.is_grad_enabled()
    assert x.grad is None


def watched(
    folder: Path, level: str, fn: Callable[..., Any], *inputs: Any, kind: str = "accuracy"
) -> list[tuple[str, str]]:
    """(event, part) of every event of a watched run of `fn`, compiled eagerly."""
    watcher = Watcher(Watch(kind, folder, level=level), {})
    torch.compiler.reset()
    try:
        torch.compile(fn, backend=watcher.wrap(lambda module, _: module, {"backend": "eager"}))(*inputs)
    finally:
        torch.compiler.reset()
    return [(event["event"], event.get("part", "")) for event in read_events(folder)]


@pytest.mark.parametrize("kind", ["accuracy", "crash"])
def test_at_level_aten_each_part_is_a_suspect_of_its_own(tmp_path: Path, kind: str) -> None:
    events = watched(tmp_path, "aten", mlp(), torch.randn(2, 6), kind=kind)
    assert [part for name, part in events if name == "deferred"] == ["forward", "backward"]
    plan = Plan("s.py", (), str(tmp_path), kind, level="aten")
    suspects = _suspects(plan, read_events(tmp_path), "")
    assert [str(suspect) for suspect in suspects] == ["region 0 forward", "region 0 backward"]
    assert [suspect.case.name for suspect in suspects] == ["0-forward.case", "0-backward.case"]
    assert all(cases.load(suspect.case).program.level == "aten" for suspect in suspects)


def test_a_region_that_can_be_checked_is_no_suspect_at_level_auto(tmp_path: Path) -> None:
    events = watched(tmp_path, "auto", mlp(), torch.randn(2, 6))
    assert ("checked", "") in events
    assert not [name for name, _ in events if name == "deferred"]


@pytest.mark.parametrize(("level", "parts"), [("auto", ["inference"]), ("dynamo", [])])
def test_a_region_that_cannot_be_written_down_falls_back_on_its_aten_graphs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str, parts: list[str]
) -> None:
    def refuse(module: Any) -> Any:
        raise Unrepresentable("an argument of type Opaque")

    monkeypatch.setattr(watch, "convert", refuse)
    events = watched(tmp_path, level, lambda x: F.relu(x), torch.randn(3))
    assert [part for name, part in events if name == "deferred"] == parts


def test_a_region_that_cannot_be_checked_falls_back_on_its_aten_graphs_as_before_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("eager cannot")

    def write(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)

    monkeypatch.setattr(reference, "lockstep", fail)
    events = watched(tmp_path, "auto", write, torch.ones(3))
    assert ("unchecked", "") in events
    assert ("deferred", "inference") in events
    _, inputs = run(cases.load(tmp_path / "regions" / "0-inference.case"), tmp_path / "store")
    assert inputs[0].tolist() == [2, 2, 2]


def test_what_aot_autograd_cannot_trace_costs_a_note_and_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("no such decomposition")

    monkeypatch.setattr(watch, "aten_snapshots", fail)
    events = watched(tmp_path, "aten", lambda x: F.relu(x), torch.randn(3))
    assert ("skipped", "") in events
    rows = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert "no such decomposition" in next(row["why"] for row in rows if row["event"] == "skipped")
