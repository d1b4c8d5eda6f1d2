"""Runs in the worker process: answers one `Question` after another. The only file that compiles a candidate, and the
only one that catches every exception: a candidate may do anything.

`python -m minify.worker FD`: FD is the channel's descriptor. Each phase is announced before it is entered, so that the
parent knows what killed a process that says nothing more.
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import re
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from minify import channel, compare, interpret, torch_internals
from minify.case import Case, Input
from minify.replay import Replay, applied, materialised, replay, seeded
from minify.verdict import Divergence, Observation, Question, Signature

_LOW = ("float16", "bfloat16", "complex32")
_HIGH = ("float32", "complex64", "float64", "complex128")


def main() -> None:
    """Serve until the parent hangs up."""
    link = channel.connect(sys.argv[-1])
    faulthandler.enable()
    warnings.simplefilter("ignore")
    torch_internals.warm_up()
    while (question := link.receive()) is not None:
        try:
            link.answer(answer(question, link.phase))
        except Exception as error:  # a bug of ours: the parent reports it as such
            link.answer(WorkerError(f"{type(error).__name__}: {error}"))


@dataclasses.dataclass(frozen=True)
class WorkerError:
    """An exception in our own code, not in the case's."""

    text: str


def answer(question: Any, phase: Callable[[str], None]) -> Any:
    """The reply to one question."""
    if question.action == "materialise":
        return materialised(question.case, Path(question.store))
    return judge(question, phase)


@dataclasses.dataclass
class Run:
    """What one run of the program gave: its inputs after the run, outputs, and gradients by input name."""

    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    grads: dict[str, Any]


def judge(question: Question, phase: Callable[[str], None]) -> Observation:
    """Run a case eagerly, one precision up and compiled, and compare. Never raises for what the case does."""
    started = time.monotonic()
    reached = "load"

    def enter(name: str) -> None:
        nonlocal reached
        reached = name
        phase(name)

    try:
        seen = _observe(question, enter)
    except _Invalid as reason:
        seen = Observation(reached, invalid=str(reason))
    return dataclasses.replace(seen, phase=reached, seconds=time.monotonic() - started)


class _Invalid(Exception):
    """The case is no case: it cannot be built or eager itself fails."""


def _observe(question: Question, enter: Callable[[str], None]) -> Observation:
    case = question.case
    with contextlib.ExitStack() as stack:
        enter("load")
        live = _attempt(lambda: replay(case, Path(question.store)), "cannot be loaded")
        stack.enter_context(torch_internals.no_caches())
        _attempt(lambda: stack.enter_context(applied(live)), "settings do not apply")
        enter("eager")
        eager = _attempt(lambda: run_program(live, live.fn), "eager raises")
        enter("reference")
        wants_reference = question.check == "accuracy" and question.reference != "none"
        pair = _attempt(lambda: lockstep(case, live.make_inputs, question.reference, wants_reference=wants_reference), "eager raises")
        steps = pair.steps
        shaken = [_shaken(live, seed) for seed in range(question.noise)] if question.check == "accuracy" else []
        if steps.random:
            stack.enter_context(torch_internals.fallback_random())
        facts = Observation("reference", trace=tuple(steps.trace), random=steps.random, notes=tuple(dict.fromkeys(steps.notes)))
        enter("compile")
        compiled, crash = _compiled(live, enter)
        if crash is not None:
            return dataclasses.replace(facts, crash=crash[0], crash_text=crash[1])
        if question.check != "accuracy" or compiled is None:
            return facts
        enter("compare")
        wrong, drift = compare_runs(case, compiled, eager, reference_run(pair), compare.Tolerance(question.rtol, question.atol), shaken)
        return dataclasses.replace(facts, divergences=wrong, drift=drift)


def _attempt(action: Callable[[], Any], what: str) -> Any:
    try:
        return action()
    except Exception as error:
        raise _Invalid(f"{what}: {type(error).__name__}: {first_line(str(error))}") from error


def first_line(text: str) -> str:
    stripped = text.strip()
    return stripped.splitlines()[0][:300] if stripped else ""


def run_program(live: Replay, fn: Callable[..., Any]) -> Run:
    """Run `fn` once on fresh inputs with reseeded generators, backward included where the case asks for it."""
    with _fresh_random():
        values = live.make_inputs()
        with seeded(live.case):
            result = fn(*values)
        outputs = as_tuple(result, len(live.case.graph.outputs))
        return Run(values, outputs, gradients(live.case, values, outputs))


@contextlib.contextmanager
def _fresh_random() -> Any:
    state = interpret.random_state()
    try:
        yield
    finally:
        interpret.restore_random(state)


def as_tuple(result: Any, count: int) -> tuple[Any, ...]:
    """The flat outputs of a rendered function: bare for one, None for none."""
    if count == 0:
        return ()
    return (result,) if count == 1 else tuple(result)


def cotangent(case: Case, output: torch.Tensor) -> torch.Tensor:
    """What flows back into `output`: ones, or seeded randn, as a repro would make it."""
    if case.settings.backward == "ones":
        return torch.ones_like(output)
    return torch.randn_like(output)


def differentiable(outputs: Sequence[Any]) -> list[torch.Tensor]:
    return [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad and (o.is_floating_point() or o.is_complex())]


def gradients(case: Case, values: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any] = ()) -> dict[str, Any]:
    """Gradients of every input that requires one, by name; {} where the case has no backward. Raises what autograd raises."""
    if not case.settings.backward:
        return {}
    wanted = {item.name: value for item, value in zip(case.inputs, values, strict=True) if _wants_grad(item, value)}
    roots = differentiable(outputs)
    if not roots or not wanted:
        return {}
    if not cotangents:
        with seeded(case):
            cotangents = [cotangent(case, root) for root in roots]
    found = torch.autograd.grad(roots, list(wanted.values()), list(cotangents), allow_unused=True)
    return dict(zip(wanted, found, strict=True))


def _wants_grad(item: Any, value: Any) -> bool:
    return isinstance(item, Input) and item.meta.requires_grad and isinstance(value, torch.Tensor) and value.requires_grad


def precision_of(case: Case, asked: str) -> str:
    """Which precision the reference has: one up from the program's own (design §4), `none` where the user wants none."""
    if asked != "auto":
        return asked
    dtypes = {item.meta.dtype for item in case.inputs if isinstance(item, Input)}
    only_half = bool(dtypes & set(_LOW)) and not dtypes & set(_HIGH)
    return "fp32" if only_half and not case.settings.autocast else "fp64"


@dataclasses.dataclass
class Pair:
    """Eager and reference after a lockstep run: inputs as the run left them, outputs in `steps`, gradients by input."""

    steps: interpret.Lockstep
    low: tuple[Any, ...]
    high: tuple[Any, ...] | None
    low_grads: dict[str, Any]
    high_grads: dict[str, Any]


def lockstep(case: Case, make_inputs: Callable[[], tuple[Any, ...]], asked: str, *, wants_reference: bool) -> Pair:
    """Eager op by op, noting every value, with the reference beside it where one is wanted. Raises what eager raises."""
    precision = precision_of(case, asked) if wants_reference else "fp64"
    with _fresh_random():
        low = make_inputs()
        high = _raised_inputs(make_inputs(), precision) if wants_reference else None
        steps = interpret.Lockstep(case.graph, precision)
        with seeded(case):
            steps.run(low, high)
    pair = Pair(steps, low, high, {}, {})
    if case.settings.backward:
        with seeded(case):
            flows = [cotangent(case, root) for root in differentiable(steps.eager)]
        pair.low_grads = gradients(case, low, steps.eager, flows)
        if high is not None and steps.reference is not None:
            try:
                raised = [interpret.raised_copy(flow, precision) for flow in flows]
                pair.high_grads = gradients(case, high, steps.reference, raised)
            except Exception as error:
                steps.notes.append(f"no reference gradient: {first_line(str(error))}")
    return pair


def _raised_inputs(values: tuple[Any, ...], precision: str) -> tuple[Any, ...]:
    """Inputs one precision up; those that share memory keep sharing it where their dtype allows."""
    bases: dict[int, torch.Tensor] = {}
    raised: list[Any] = []
    for value in values:
        if not isinstance(value, torch.Tensor) or interpret.higher_dtype(value.dtype, precision) == value.dtype:
            raised.append(value)
            continue
        wide = _raised_storage(value, precision, bases)
        raised.append(wide.requires_grad_() if value.requires_grad else wide)
    return tuple(raised)


def _raised_storage(value: torch.Tensor, precision: str, bases: dict[int, torch.Tensor]) -> torch.Tensor:
    from minify import store

    bare = value.detach()
    if bare.is_conj() or bare.is_neg() or torch_internals.is_zerotensor(bare) or bare.layout != torch.strided:
        return bare.to(interpret.higher_dtype(bare.dtype, precision))
    key = torch_internals.storage_key(bare)
    if key not in bases:
        bases[key] = store.storage_of(bare).to(interpret.higher_dtype(bare.dtype, precision))
    return torch.as_strided(bases[key], bare.shape, bare.stride(), bare.storage_offset())


def reference_run(pair: Pair) -> Run | None:
    """The reference's results, None where there is no reference."""
    if pair.steps.reference is None or pair.high is None:
        return None
    return Run(pair.high, pair.steps.reference, pair.high_grads)


def _shaken(live: Replay, seed: int) -> Run | None:
    """Eager on inputs moved by one unit in the last place, each element up or down by a seeded coin."""
    try:
        with _fresh_random():
            values = live.make_inputs()
            coin = torch.Generator().manual_seed(seed + 1)
            for value in values:
                if isinstance(value, torch.Tensor) and value.is_floating_point() and not torch_internals.is_zerotensor(value):
                    _shake(value, coin)
            with seeded(live.case):
                result = live.fn(*values)
            outputs = as_tuple(result, len(live.case.graph.outputs))
            return Run(values, outputs, gradients(live.case, values, outputs))
    except Exception:
        return None


def _shake(value: torch.Tensor, coin: torch.Generator) -> None:
    from minify import store

    with torch.no_grad():
        flat = store.storage_of(value)
        up = torch.randint(0, 2, flat.shape, generator=coin, dtype=torch.int8).to(flat.device).bool()
        limit = torch.full_like(flat, float("inf"))
        with contextlib.suppress(RuntimeError, NotImplementedError):
            moved = torch.nextafter(flat, torch.where(up, limit, -limit))
            flat.copy_(torch.where(flat.isfinite() & (flat != 0) & moved.isfinite(), moved, flat))


def _compiled(live: Replay, enter: Callable[[str], None]) -> tuple[Run | None, tuple[Signature, str] | None]:
    """Compile and run. The second part is set when the compiler or what it made raised."""
    settings = live.case.settings
    torch_internals.reset_compiler()
    options: dict[str, Any] = {key: live.python(value) for key, value in settings.options}
    try:
        compiled = torch.compile(
            live.fn,
            backend=live.python(settings.backend),
            mode=settings.mode,
            options=options or None,
            dynamic=settings.dynamic,
        )
        return run_program(live, compiled), None
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        return None, (crash_signature(error), _trace_text(error))
    finally:
        torch_internals.reset_compiler()


def compare_runs(
    case: Case, compiled: Run, eager: Run, reference: Run | None, tolerance: compare.Tolerance, shaken: Sequence[Run | None] = ()
) -> tuple[tuple[Divergence, ...], tuple[Divergence, ...]]:
    """(wrong, drift) over outputs, gradients, inputs after the run, and which results share memory."""
    rows: list[compare.Compared] = []
    trials = [trial for trial in shaken if trial is not None]
    with torch.no_grad(), torch_internals.NoDispatch():
        for position, output in enumerate(case.graph.outputs):
            where = f"output:{getattr(output, 'name', position)}"
            true = reference.outputs[position] if reference else None
            noisy = [trial.outputs[position] for trial in trials]
            rows += compare.compare_results(where, compiled.outputs[position], eager.outputs[position], true, tolerance, noisy)
        for name, gradient in eager.grads.items():
            true = reference.grads.get(name) if reference else None
            noisy = [trial.grads.get(name) for trial in trials]
            rows += compare.compare_results(f"grad:{name}", compiled.grads.get(name), gradient, true, tolerance, noisy, strides=False)
        for position, item in enumerate(case.inputs):
            true = reference.inputs[position] if reference else None
            noisy = [trial.inputs[position] for trial in trials]
            rows += compare.compare_results(
                f"input:{item.name}", compiled.inputs[position], eager.inputs[position], true, tolerance, noisy
            )
        rows += _aliasing(case, compiled, eager)
    return tuple(row.wrong for row in rows if row.wrong), tuple(row.drift for row in rows if row.drift)


def _aliasing(case: Case, compiled: Run, eager: Run) -> list[compare.Compared]:
    ours = compare.alias_pattern(compiled.inputs, compiled.outputs)
    theirs = compare.alias_pattern(eager.inputs, eager.outputs)
    names = [item.name for item in case.inputs] + [str(getattr(output, "name", output)) for output in case.graph.outputs]
    rows = []
    for output, got, due in zip(case.graph.outputs, ours, theirs, strict=True):
        if got != due:
            where = f"output:{getattr(output, 'name', output)}"
            told = [", ".join(names[i] for i in part) or "nothing" for part in (due, got)]
            rows.append(compare.Compared(Divergence(where, "aliasing", expected=f"shares {told[0]}", observed=f"shares {told[1]}")))
    return rows


# --- crash signatures ---------------------------------------------------------------------------------------------------

_STRIPPED = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"(/[\w.+\-]+)+"), "<path>"),
    (re.compile(r"""'[^'\n]*'|"[^"\n]*"|‘[^’\n]*’|`[^`\n]*`"""), "''"),
    (re.compile(r"0x[0-9a-fA-F]+"), "#"),
    (re.compile(r"\b\w*\d\w*\b"), "#"),
    (re.compile(r"(# *[,x×] *)+#"), "#"),
    (re.compile(r"\s+"), " "),
)


def plain_message(text: str) -> str:
    """A message without numbers, names and paths; of a C++ compiler's output the first error."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line[line.index("error:") :] for line in lines if "error:" in line]
    message = errors[0] if errors else " ".join(lines[:2])
    for pattern, replacement in _STRIPPED:
        message = pattern.sub(replacement, message)
    return message.strip()[:200]


def crash_signature(error: BaseException) -> Signature:
    """The identity of an exception: its root's type, the innermost compiler frame, the stripped message."""
    root = torch_internals.root_cause(error)
    frame = torch_internals.compiler_frame(root) or torch_internals.compiler_frame(error)
    return Signature("crash", "exception", type(root).__name__, frame, plain_message(str(root)))


def _trace_text(error: BaseException) -> str:
    root = torch_internals.root_cause(error)
    return f"{type(root).__name__}: {root}"[:4000]


if __name__ == "__main__":
    main()
