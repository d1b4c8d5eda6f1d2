"""One run of a case and what it gave: outputs, gradients, inputs as the run left them; and two such runs compared.

Owns the backward that a run ends in. Compiles nothing: `fn` may be the program itself or its compiled form.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from minify import compare, interpret
from minify.case import Case, Input, SequenceMeta, TensorMeta
from minify.replay import Replay, seeded
from minify.rounding import shaken_values
from minify.tolerance import Tolerance
from minify.verdict import Divergence


@dataclasses.dataclass
class Run:
    """What one run of the program gave: its inputs after the run, outputs, gradients by input name, and the cotangents
    (`flows`) that the gradients came from."""

    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    grads: dict[str, Any]
    flows: tuple[torch.Tensor, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Findings:
    """How one run departs from another: what is `wrong`, what is `drift`, and the worst float `within` its tolerance."""

    wrong: tuple[Divergence, ...]
    drift: tuple[Divergence, ...]
    within: Divergence | None


def out_of_memory(error: BaseException) -> bool:
    """Whether an error tells of the machine and not of the case: memory that may well be there the next time."""
    said = str(error)
    no_room = "can't allocate memory" in said or "not enough memory" in said
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "DefaultCPUAllocator" in said and no_room
    )


def run_program(live: Replay, fn: Callable[..., Any], flows: Sequence[torch.Tensor] = ()) -> Run:
    """Run `fn` once on fresh inputs with reseeded generators, backward included where the case asks for it.

    `flows` are the cotangents of an earlier run; they are used where they fit the outputs."""
    with undisturbed():
        return _run(live, fn, live.make_inputs(), flows)


def run_again(live: Replay, fn: Callable[..., Any], eager: Run, truth: Run | None, tolerance: Tolerance | None) -> Run:
    """Run `fn` as often as the case says, each time after two calls with other values, so that it is not the one that a compiler
    records; give the first run that departs from eager and the reference `truth`, or else the last.

    What a run gave is looked at once more after the next call, which may not have written to it; that it cannot be read any more,
    as what a CUDA graph gave, is no fault. Without a `tolerance` nothing is compared."""
    case, last = live.case, Run((), (), {})

    def departs(run: Run) -> bool:
        return tolerance is not None and bool(compare_runs(case, run, eager, truth, tolerance).wrong)

    with undisturbed():
        for turn in range(case.settings.replays):
            for other in (turn, turn + 1):
                with seeded(case):
                    fn(*live.other_inputs(other))
            with contextlib.suppress(RuntimeError):
                if turn and departs(last):
                    return last
            last = _run(live, fn, live.make_inputs(), eager.flows)
            if departs(last):
                return last
    return last


def _run(live: Replay, fn: Callable[..., Any], values: tuple[Any, ...], flows: Sequence[torch.Tensor]) -> Run:
    with seeded(live.case):
        result = fn(*values)
    outputs = as_tuple(result, len(live.case.graph.outputs))
    flows = cotangents(live.case, outputs, flows)
    return Run(values, outputs, gradients(live.case, values, outputs, flows), tuple(flows))


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Random generators, grad mode, autocast and functorch levels are afterwards as they were: a program that is cut
    short may enter what it never leaves."""
    state = interpret.random_state()
    with interpret.modes_kept():
        try:
            yield
        finally:
            interpret.restore_random(state)


def as_tuple(result: Any, count: int) -> tuple[Any, ...]:
    """The flat outputs of a rendered function: bare for one, None for none."""
    if count == 0:
        return ()
    return (result,) if count == 1 else tuple(result)


def differentiable(outputs: Sequence[Any]) -> list[torch.Tensor]:
    return [
        output
        for output in outputs
        if isinstance(output, torch.Tensor)
        and output.requires_grad
        and (output.is_floating_point() or output.is_complex())
    ]


def cotangents(case: Case, outputs: Sequence[Any], given: Sequence[torch.Tensor] = ()) -> list[torch.Tensor]:
    """What flows back into each differentiable output: `given` where it fits, else ones or seeded randn as a repro would
    make them (`randn_like` fills in memory order, so that two layouts of one output get two different cotangents)."""
    if not case.settings.backward:
        return []
    roots = differentiable(outputs)
    if given and [(flow.shape, flow.dtype) for flow in given] == [(root.shape, root.dtype) for root in roots]:
        return list(given)
    like = torch.ones_like if case.settings.backward == "ones" else torch.randn_like
    with seeded(case):
        return [like(root) for root in roots]


def gradients(
    case: Case, values: Sequence[Any], outputs: Sequence[Any], flows: Sequence[torch.Tensor]
) -> dict[str, Any]:
    """Gradients of every input that requires one, by name; {} where the case has no backward. Raises what autograd raises."""
    roots = differentiable(outputs)
    wanted = {item.name: value for item, value in zip(case.inputs, values, strict=True) if _wants_grad(item, value)}
    if not case.settings.backward or not roots or not wanted:
        return {}
    found = torch.autograd.grad(roots, list(wanted.values()), list(flows), allow_unused=True)
    return dict(zip(wanted, found, strict=True))


def _wants_grad(item: Any, value: Any) -> bool:
    declared = isinstance(item, Input) and item.meta.requires_grad
    return declared and isinstance(value, torch.Tensor) and value.requires_grad


# --- eager on shaken inputs ---------------------------------------------------------------------------------------------


def rounds_in_half(case: Case, trace: Iterable[tuple[str, object]]) -> bool:
    """Whether any op of it hands on a value of half precision, by what a run noted of each."""

    def half(meta: object) -> bool:
        if isinstance(meta, SequenceMeta):
            return any(map(half, meta.items))
        return isinstance(meta, TensorMeta) and meta.dtype in ("float16", "bfloat16")

    return bool(case.settings.autocast) or any(half(meta) for _, meta in trace)


def shaken(live: Replay, seed: int, flows: Sequence[torch.Tensor] = (), *, half: bool = True) -> Run | None:
    """Eager on inputs moved by one unit in the last place, each element up or down by a seeded coin; None if it raises. Inputs
    of half precision stay unless `half`: where nothing is rounded to half in between, such a unit is thousands of those that
    rounding takes. Raises what `out_of_memory` knows."""
    try:
        with undisturbed():
            return _run(live, live.eager_fn, shaken_values(live.make_inputs(), seed, half=half), flows)
    except Exception as error:  # the shaken program may leave its domain, and then says nothing
        if out_of_memory(error):
            raise
        return None


# --- comparing two runs -------------------------------------------------------------------------------------------------


def compare_runs(
    case: Case,
    compiled: Run,
    eager: Run,
    reference: Run | None,
    tolerance: Tolerance,
    trials: Sequence[Run | None] = (),
    rounded: Sequence[Run | None] = (),
) -> Findings:
    """What there is to say over outputs, gradients, inputs after the run, and which results share memory. `trials` are runs of
    eager on shaken inputs, `rounded` some that round otherwise in between, which only integers have to outdo."""
    rows: list[compare.Compared] = []
    shaken_runs = [trial for trial in trials if trial is not None]

    def check(where: str, pick: Callable[[Run], Any], strides: bool = True) -> None:
        true = pick(reference) if reference else None
        noisy = [pick(trial) for trial in shaken_runs]
        if _is_exact(pick(eager)):
            noisy += [pick(trial) for trial in rounded if trial is not None]
        rows.extend(compare.compare_results(where, pick(compiled), pick(eager), true, tolerance, noisy, strides))

    with torch.no_grad(), interpret.NoDispatch():
        for position, output in enumerate(case.graph.outputs):
            check(f"output:{getattr(output, 'name', position)}", lambda run, at=position: run.outputs[at])  # type: ignore[misc]
        for name in eager.grads:
            check(f"grad:{name}", lambda run, name=name: run.grads.get(name), strides=False)  # type: ignore[misc]
        for position, item in enumerate(case.inputs):
            check(f"input:{item.name}", lambda run, at=position: run.inputs[at])  # type: ignore[misc]
        rows += _aliasing(case, compiled, eager)
    within = max((row.within for row in rows if row.within), key=lambda row: row.excess, default=None)
    return Findings(
        tuple(row.wrong for row in rows if row.wrong), tuple(row.drift for row in rows if row.drift), within
    )


def _is_exact(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not (value.is_floating_point() or value.is_complex())


def _aliasing(case: Case, compiled: Run, eager: Run) -> list[compare.Compared]:
    ours = compare.alias_pattern(compiled.inputs, compiled.outputs)
    theirs = compare.alias_pattern(eager.inputs, eager.outputs)
    outputs = [str(getattr(output, "name", output)) for output in case.graph.outputs]
    names = [item.name for item in case.inputs] + outputs
    rows = []
    for output, got, due in zip(outputs, ours, theirs, strict=True):
        if got != due:
            told = [f"shares {', '.join(names[i] for i in part) or 'nothing'}" for part in (due, got)]
            row = Divergence(f"output:{output}", "aliasing", expected=told[0], observed=told[1])
            rows.append(compare.Compared(row))
    return rows
