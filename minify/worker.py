"""Runs in the worker process: answers one `Question` after another. The only file that compiles a candidate, and the
only one that catches every exception: a candidate may do anything.

`python -m minify.worker FD`: FD is the channel's descriptor; with `--fork-server` before it, that of what wants workers
forked. Each phase is announced before it is entered, so that the parent knows what killed a process that says nothing
more.
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from minify import graphs, render, torch_internals
from minify import metric as metrics
from minify.artifacts import PROGRAM
from minify.case import Case, Ref, tensor_inputs
from minify.crashes import crash_signature, first_line, root_frames, trace_text
from minify.errors import UsageError
from minify.fork_server import connected
from minify.kernels.finding import Finding
from minify.kernels.judge import first_wrong
from minify.kernels.recorder import Recorder
from minify.propagation import propagated
from minify.reference import forward_run, lockstep, reference_run, rounded_runs
from minify.replay import Replay, applied, materialised, replay, switches_kept
from minify.sizes import Sizes
from minify.tolerance import Tolerance
from minify.trial import Run, compare_runs, out_of_memory, rounds_in_half, run_again, run_program, shaken, undisturbed
from minify.verdict import Observation, Question, WorkerError


def main() -> None:
    """Serve until the parent hangs up."""
    warnings.simplefilter("ignore")
    link = connected(sys.argv, torch_internals.warm_up, torch_internals.survived_fork)
    faulthandler.enable()
    np.random.seed()
    while (question := link.receive()) is not None:
        try:
            link.answer(answer(question, link.phase))
        except Exception as error:
            link.answer(_excuse(error))


def _excuse(error: Exception) -> Observation | UsageError | WorkerError:
    """What is answered where there is no answer. All but a lack of memory, and a metric of the user's that gives no number, is a
    bug of ours, and reported as such."""
    if out_of_memory(error):
        return Observation("", worker_lost=f"out of memory: {first_line(str(error))}")
    if isinstance(error, UsageError):
        return UsageError(error.message, error.next_step)
    return WorkerError("".join(traceback.format_exception(error))[-2000:])


def answer(question: Any, phase: Callable[[str], None]) -> Any:
    """The reply to one question."""
    if question.action == "warm":
        return question
    if question.action == "materialise":
        return materialised(question.case, Path(question.store))
    if question.action == "sizes":
        return _sizes(question)
    if question.action == "kernel":
        return _wrong_kernel(question, phase)
    return judge(question, phase)


def _sizes(question: Question) -> Sizes | None:
    """How the sizes of a case hang together; None where torch cannot tell, for whatever reason: dims of one size then shrink
    together."""
    try:
        with warnings.catch_warnings(), torch_internals.configs_kept(), switches_kept(), undisturbed():
            warnings.simplefilter("ignore")
            return propagated(question.case)
    except Exception:
        return None


def _wrong_kernel(question: Question, enter: Callable[[str], None]) -> Finding:
    """Compile and run a case, its kernels watched: the first that writes something wrong, and who is to blame for that."""
    tolerance = Tolerance(question.rtol, question.atol)
    try:
        if lacking := torch_internals.cannot_watch_kernels():
            raise _Invalid(f"not available here: {lacking}")
        with warnings.catch_warnings(), torch_internals.configs_kept(), switches_kept(), undisturbed():
            warnings.simplefilter("ignore")
            recorder = Recorder(tolerance=tolerance)
            with _about_to_compile(question, enter) as (live, eager), torch_internals.kernels_watched(recorder):
                _, crash = _compiled(live, eager)
            if crash is not None and not recorder.done:
                raise _Invalid(f"its kernels could not be watched: {crash['crash']}")
            enter("run")
            return first_wrong(recorder, tolerance)
    except _Invalid as reason:
        return Finding(notes=(str(reason),))


@contextlib.contextmanager
def _about_to_compile(question: Question, enter: Callable[[str], None]) -> Iterator[tuple[Replay, Run]]:
    """The case with its settings applied, and its run in eager. Compiled code draws as that did."""
    with contextlib.ExitStack() as stack:
        enter("load")
        live = _attempt(lambda: replay(question.case, Path(question.store)), "cannot be loaded")
        stack.enter_context(torch_internals.no_caches())
        stack.enter_context(torch_internals.fallback_random())
        _attempt(lambda: stack.enter_context(applied(live)), "settings do not apply")
        enter("eager")
        eager = _attempt(lambda: run_program(live, live.eager_fn), "eager raises")
        enter("compile")
        yield live, eager


def judge(question: Question, phase: Callable[[str], None]) -> Observation:
    """Run a case eagerly, one precision up and compiled, and compare. Raises where memory runs out, but nothing else
    for what the case does."""
    started = time.monotonic()
    reached = "load"

    def enter(name: str) -> None:
        nonlocal reached
        reached = name
        phase(name)

    seen: Observation | None = None
    try:
        with warnings.catch_warnings(), torch_internals.configs_kept(), switches_kept(), undisturbed():
            warnings.simplefilter("ignore")  # whoever has made warnings errors did not mean the compiler's own
            seen = _ASKED.get(question.action, _observe)(question, enter)
    except _Invalid as reason:
        seen = Observation(reached, invalid=str(reason))
    except Exception:
        if seen is None or not seen.retire_worker:  # a poisoned GPU context cannot be put back in order: fine
            raise
    return dataclasses.replace(seen, phase=reached, seconds=time.monotonic() - started)


class _Invalid(Exception):
    """The case is no case: it cannot be built or eager itself fails."""


def _observe(question: Question, enter: Callable[[str], None]) -> Observation:
    case = question.case
    with contextlib.ExitStack() as stack:
        enter("load")
        judge = metrics.judge_for(question)
        if lacking := torch_internals.cannot_ablate(question.ablation):
            raise _Invalid(f"not available here: {lacking}")
        live = _attempt(lambda: replay(case, Path(question.store)), "cannot be loaded")
        stack.enter_context(torch_internals.no_caches())
        _attempt(lambda: stack.enter_context(applied(live)), "settings do not apply")
        enter("eager")
        eager = _attempt(lambda: run_program(live, live.eager_fn), "eager raises")
        enter("reference")
        wants_reference = question.check == "accuracy" and question.reference != "none"
        pair = _attempt(
            lambda: lockstep(
                case, live.make_inputs, question.reference, wants_reference=wants_reference, scope=live.scope
            ),
            "eager raises",
        )
        steps, truth = pair.steps, reference_run(pair)
        if steps.random:
            stack.enter_context(torch_internals.fallback_random())
        facts = Observation(
            "reference",
            trace=tuple(steps.trace),
            random=steps.random,
            drew=tuple(steps.drew),
            notes=tuple(dict.fromkeys(steps.notes)),
        )
        if question.action == "trace":
            return facts
        del pair, steps  # eager's values once more: a screen has many
        enter("compile")
        devices = frozenset(item.meta.device.partition(":")[0] for item in tensor_inputs(case))
        with torch_internals.ablated(question.ablation, devices) as met, _artifacts(question):
            within = Tolerance(question.rtol, question.atol) if question.check == "accuracy" else None
            compiled, crash = _compiled(live, eager, partial(run_again, truth=truth, tolerance=within))
            facts = dataclasses.replace(facts, applications=met())
        if crash is not None:
            return dataclasses.replace(facts, **crash)
        if question.check != "accuracy" or compiled is None:
            return facts
        return _compared(question, Beside(case, live, compiled, eager, truth, judge), facts, enter)


@contextlib.contextmanager
def _artifacts(question: Question) -> Iterator[None]:
    """What is compiled meanwhile leaves its artifacts where the question wants them, the program first."""
    if not question.artifacts:
        yield
        return
    with torch_internals.artifacts_written(Path(question.artifacts)) as write:
        write(PROGRAM, render.text([render.function(question.case.graph, "fn")]))
        yield


@dataclasses.dataclass(frozen=True)
class Beside:
    """A run of a case that may be wrong, those it is held against, and the user's metric if that has a say."""

    case: Case
    live: Replay
    run: Run
    eager: Run
    truth: Run | None
    judge: metrics.Judge | None


def _compared(question: Question, runs: Beside, facts: Observation, enter: Callable[[str], None]) -> Observation:
    """`facts`, and where the run departs from eager and the reference by more than rounding explains."""
    enter("compare")
    case, live, tolerance = runs.case, runs.live, Tolerance(question.rtol, question.atol)
    found = compare_runs(case, runs.run, runs.eager, runs.truth, tolerance)
    moved: list[Run | None] = []
    if found.wrong and question.noise:  # shaken runs only explain: they cannot make wrong what is right without
        enter("reference")
        half = rounds_in_half(case, facts.trace)
        trials = [shaken(live, seed, runs.eager.flows, half=half) for seed in range(question.noise)]
        rounded = rounded_runs(case, live.make_inputs, found.wrong, question.noise, live.scope)
        enter("compare")
        found = compare_runs(case, runs.run, runs.eager, runs.truth, tolerance, trials, rounded)
        moved = [*trials, *rounded]
    wrong, drift, measured = found.wrong, found.drift, None
    if runs.judge is not None and runs.judge.is_asked(wrong, drift):
        enter("metric")
        wrong, drift, measured = runs.judge.rule(wrong, drift, runs.run, runs.eager, runs.truth, moved)
        enter("compare")
    return dataclasses.replace(facts, divergences=wrong, drift=drift, within=found.within, metric=measured)


def _patched(question: Question, enter: Callable[[str], None]) -> Observation:
    """The whole program in eager, with the compiled results of `question.case` in place of those of its ops: is that enough to
    make it wrong? Nothing is told where none of these results is the whole's, or the case fails otherwise."""
    part, whole = question.case, question.inside
    assert whole is not None
    with _about_to_compile(question, enter) as (live, eager):
        compiled, crash = _compiled(live, eager)
    if compiled is None or crash is not None:
        return Observation("compile")
    own = {op.name for op in whole.graph.ops}
    results = zip(part.graph.outputs, compiled.outputs, strict=True)
    patches = {output.name: value for output, value in results if isinstance(output, Ref) and output.name in own}
    forward = dataclasses.replace(whole, settings=dataclasses.replace(whole.settings, backward=""))
    enter("reference")
    live = _attempt(lambda: replay(forward, Path(question.store)), "cannot be loaded")
    with applied(live):
        pair = _attempt(
            lambda: lockstep(forward, live.make_inputs, question.reference, wants_reference=True, scope=live.scope),
            "eager raises",
        )
        run = forward_run(forward, live.make_inputs, None, live.scope, patches)
        if run is None or not patches:
            return Observation("reference")
        judge = (
            metrics.of_whole(metrics.named(question.metric, question.metric_tol), whole) if question.metric else None
        )
        runs = Beside(forward, live, run, Run(pair.low, pair.steps.eager, {}), reference_run(pair), judge)
        return _compared(question, runs, Observation("", trace=tuple(pair.steps.trace)), enter)


def _graphs(question: Question, enter: Callable[[str], None]) -> Observation:
    """The case compiled and run, and each ATen graph that came of it judged by itself."""
    recorder = graphs.Recorder()
    with _about_to_compile(question, enter) as (live, eager):
        with torch_internals.watched_graphs(recorder):
            _compiled(live, eager)
        enter("compare")
        again = partial(torch.compile, **_asked_for(live))
        seen = graphs.judged(recorder.records, again, Tolerance(question.rtol, question.atol))
        torch.compiler.reset()
        return Observation("compare", graphs=seen)


_ASKED = {"patch": _patched, "graphs": _graphs}


def _attempt(action: Callable[[], Any], what: str) -> Any:
    try:
        return action()
    except Exception as error:
        if out_of_memory(error):  # that the machine is full says nothing of the case, and must not be kept as if it did
            raise
        raise _Invalid(f"{what}: {type(error).__name__}: {first_line(str(error))}") from error


def _asked_for(live: Replay) -> dict[str, Any]:
    """What the case asks of `torch.compile`."""
    settings = live.case.settings
    options = {key: live.python(value) for key, value in settings.options}
    backend = live.python(settings.backend)
    return {"backend": backend, "mode": settings.mode, "options": options or None, "dynamic": settings.dynamic}


def _once(live: Replay, fn: Callable[..., Any], eager: Run) -> Run:
    return run_program(live, fn, eager.flows)


def _compiled(
    live: Replay, eager: Run, again: Callable[[Replay, Callable[..., Any], Run], Run] = _once
) -> tuple[Run | None, dict[str, Any] | None]:
    """Compile and run, and `again` where the case asks for replays. The second part says what there is to observe where the compiler
    or what it made raised."""
    torch.compiler.reset()
    torch_internals.forget_decompositions()
    try:
        compiled = torch.compile(live.fn, **_asked_for(live))
        run = (again if live.case.settings.replays else _once)(live, compiled, eager)
        torch_internals.synchronise()
        return run, None
    except (MemoryError, torch.OutOfMemoryError):
        raise  # not all that `out_of_memory` knows: a size no CPU can allocate, and eager could, is more likely miscompiled
    except Exception as error:
        return None, {
            "crash": crash_signature(error),
            "crash_text": trace_text(error),
            "frames": root_frames(error),
        }
    finally:
        torch.compiler.reset()


if __name__ == "__main__":
    main()
