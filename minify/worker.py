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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from minify import torch_internals
from minify.crashes import crash_signature, first_line, trace_text
from minify.fork_server import connected
from minify.propagation import propagated
from minify.reference import lockstep, reference_run, rounded_runs
from minify.replay import Replay, applied, materialised, replay, switches_kept
from minify.sizes import Sizes
from minify.tolerance import Tolerance
from minify.trial import Run, compare_runs, out_of_memory, rounds_in_half, run_program, shaken, undisturbed
from minify.verdict import Observation, Question, Signature, WorkerError


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


def _excuse(error: Exception) -> Observation | WorkerError:
    """What is answered where there is no answer. All but a lack of memory is a bug of ours, and reported as such."""
    if out_of_memory(error):
        return Observation("", worker_lost=f"out of memory: {first_line(str(error))}")
    return WorkerError("".join(traceback.format_exception(error))[-2000:])


def answer(question: Any, phase: Callable[[str], None]) -> Any:
    """The reply to one question."""
    if question.action == "warm":
        return question
    if question.action == "materialise":
        return materialised(question.case, Path(question.store))
    if question.action == "sizes":
        return _sizes(question)
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
            seen = _observe(question, enter)
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
        compiled, crash = _compiled(live, eager)
        if crash is not None:
            return dataclasses.replace(facts, crash=crash[0], crash_text=crash[1])
        if question.check != "accuracy" or compiled is None:
            return facts
        enter("compare")
        tolerance = Tolerance(question.rtol, question.atol)
        wrong, drift = compare_runs(case, compiled, eager, truth, tolerance)
        if wrong and question.noise:  # shaken runs only explain: they cannot make wrong what is right without
            enter("reference")
            half = rounds_in_half(case, facts.trace)
            trials = [shaken(live, seed, eager.flows, half=half) for seed in range(question.noise)]
            rounded = rounded_runs(case, live.make_inputs, wrong, question.noise, live.scope)
            enter("compare")
            wrong, drift = compare_runs(case, compiled, eager, truth, tolerance, trials, rounded)
        return dataclasses.replace(facts, divergences=wrong, drift=drift)


def _attempt(action: Callable[[], Any], what: str) -> Any:
    try:
        return action()
    except Exception as error:
        if out_of_memory(error):  # that the machine is full says nothing of the case, and must not be kept as if it did
            raise
        raise _Invalid(f"{what}: {type(error).__name__}: {first_line(str(error))}") from error


def _compiled(live: Replay, eager: Run) -> tuple[Run | None, tuple[Signature, str] | None]:
    """Compile and run. The second part is set when the compiler or what it made raised."""
    settings = live.case.settings
    torch.compiler.reset()
    options: dict[str, Any] = {key: live.python(value) for key, value in settings.options}
    try:
        compiled = torch.compile(
            live.fn,
            backend=live.python(settings.backend),
            mode=settings.mode,
            options=options or None,
            dynamic=settings.dynamic,
        )
        run = run_program(live, compiled, eager.flows)
        torch_internals.synchronise()
        return run, None
    except (MemoryError, torch.OutOfMemoryError):
        raise  # not all that `out_of_memory` knows: a size no CPU can allocate, and eager could, is more likely miscompiled
    except Exception as error:
        return None, (crash_signature(error), trace_text(error))
    finally:
        torch.compiler.reset()


if __name__ == "__main__":
    main()
