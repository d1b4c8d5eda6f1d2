"""The user's own metric (`--metric`) on a program's outputs, and which divergences it lets pass.

Where single elements are out of tolerance, the metric says whether that matters. It sees outputs, and so excuses wrong
values of outputs alone: no gradient, nothing written to an input, no NaN, no dtype, shape, stride or sharing of memory.
A cut of the original has other outputs; there the metric sees the original's, run with the cut's wrong values in place of
its own.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from minify import functions, interpret, store
from minify.case import Case, Derived, Ref, ScalarInput, digest
from minify.errors import UsageError
from minify.lockstep import cast_like, same_structure
from minify.reference import forward_run
from minify.replay import Replay, applied, replay, switches_kept
from minify.trial import Run, out_of_memory, undisturbed
from minify.verdict import Divergence, Measured, Question

OPTION = "--metric"
JUDGED = ("value", "integer")
Rows = tuple[Divergence, ...]
Runs = tuple[Run, Run, "Run | None", Sequence["Run | None"]]  # compiled, eager, reference, eager on shaken inputs


@dataclasses.dataclass(frozen=True)
class Metric:
    """The user's function, called with a program's outputs one by one, and how far it may move."""

    spec: str
    function: Callable[..., object]
    tolerance: float = 0.0

    def of(self, outputs: Sequence[Any], whose: str) -> tuple[float, ...]:
        """Its numbers for outputs of its own to change. Raises UsageError where it raises, or returns none."""
        try:
            with torch.no_grad(), undisturbed():
                found = self.function(*interpret.map_tensors(tuple(outputs), lambda tensor: tensor.detach().clone()))
                numbers = tuple(found) if isinstance(found, tuple | list) else (found,)
                told = tuple(map(_number, numbers))
        except (Exception, SystemExit) as error:
            if out_of_memory(error):
                raise
            raise self._unusable(f"raised {type(error).__name__}: {error}", outputs, whose) from error
        if not told:
            raise self._unusable("returned no number", outputs, whose)
        return told

    def finite(self, outputs: Sequence[Any], whose: str) -> tuple[float, ...]:
        """As `of`, for a result that all others are held against: NaN and inf are refused, too."""
        found = self.of(outputs, whose)
        if not all(map(math.isfinite, found)):
            raise self._unusable(f"is {', '.join(map(str, found))}", outputs, whose)
        return found

    def _unusable(self, what: str, outputs: Sequence[Any], whose: str) -> UsageError:
        given = ", ".join(
            f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
            if isinstance(value, torch.Tensor)
            else type(value).__name__
            for value in outputs
        )
        return UsageError(
            f"{OPTION} {self.spec} {what}, for the {whose} outputs ({given})",
            "it is called with the outputs of a compiled region and returns a number; --region N judges one region alone",
        )


def named(spec: str, tolerance: float) -> Metric:
    """The metric that `spec` names. Raises UsageError where there is none."""
    with undisturbed(), switches_kept():
        return Metric(spec, functions.load(spec, OPTION), tolerance)


def _number(value: object) -> float:
    """Raises TypeError and ValueError for what is no real number."""
    if isinstance(value, str | bytes):
        raise TypeError(f"{value!r} is no number")
    if isinstance(value, torch.Tensor) and value.numel() != 1:
        raise TypeError(f"a tensor of shape {tuple(value.shape)} is no number")
    return float(value)  # type: ignore[arg-type]


# --- what it is asked about ---------------------------------------------------------------------------------------------


def judged(row: Divergence) -> bool:
    """Whether a metric of the outputs has a say in it."""
    return row.where.startswith("output:") and row.kind in JUDGED


# The outputs that the metric sees of a run, with those of `names` as the run has them; None where there are none.
View = Callable[[Run, frozenset[str]], "tuple[Any, ...] | None"]


@dataclasses.dataclass(frozen=True)
class Judge:
    """The metric for one case. `places` names the results that it can see through `view`; `always` has it tell its numbers of
    mere drift, too."""

    metric: Metric
    view: View
    places: frozenset[str]
    always: bool = False

    def is_asked(self, wrong: Iterable[Divergence], drift: Iterable[Divergence]) -> bool:
        return bool(self._names(wrong) or (self.always and self._names(drift)))

    def rule(
        self,
        wrong: Rows,
        drift: Rows,
        compiled: Run,
        eager: Run,
        reference: Run | None,
        trials: Sequence[Run | None] = (),
    ) -> tuple[Rows, Rows, Measured | None]:
        """What stays wrong, what is drift, and the numbers; none where the original cannot go on with such values. `trials` are
        runs of eager on shaken inputs. Raises UsageError where the metric does not give numbers."""
        names = self._names(wrong) or self._names(drift)
        found = self._measured(names, compiled, eager, reference, trials)
        if found is None or found.moved:
            return wrong, drift, found
        passed = tuple(row for row in wrong if judged(row) and _place(row) in names)
        return tuple(row for row in wrong if row not in passed), (*drift, *passed), found

    def _names(self, rows: Iterable[Divergence]) -> frozenset[str]:
        return frozenset(_place(row) for row in rows if judged(row)) & self.places

    def _measured(
        self, names: frozenset[str], compiled: Run, eager: Run, reference: Run | None, trials: Sequence[Run | None]
    ) -> Measured | None:
        known = self.view(eager, names)
        true = known if reference is None else self.view(_rounded(reference, eager), names)
        if known is None or true is None:
            return None
        near, due = self.metric.finite(known, "eager"), self.metric.finite(true, "reference")
        seen = self.view(compiled, names)  # None where the original does not survive them: worse than any number
        ours = (math.inf,) * len(near) if seen is None else self.metric.of(seen, "compiled")
        if not len(near) == len(due) == len(ours):
            raise UsageError(
                f"{OPTION} {self.metric.spec} returned {len(near)} numbers, then {len(due)} and {len(ours)}"
            )
        found = Measured(ours, near, due, (0.0,) * len(near), self.metric.tolerance)
        return dataclasses.replace(found, spread=self._spread(names, near, trials)) if found.moved else found

    def _spread(
        self, names: frozenset[str], near: tuple[float, ...], trials: Sequence[Run | None]
    ) -> tuple[float, ...]:
        """How far eager's numbers move on shaken inputs; what is no number there says nothing."""
        views = [self.view(trial, names) for trial in trials if trial is not None]
        rows = [self.metric.of(outputs, "shaken") for outputs in views if outputs is not None]
        steps = [[abs(moved - still) for moved, still in zip(row, near, strict=False)] for row in rows]
        return tuple(
            max((row[place] for row in steps if place < len(row) and math.isfinite(row[place])), default=0.0)
            for place in range(len(near))
        )


def _place(row: Divergence) -> str:
    return row.where.partition(":")[2]


def _rounded(reference: Run, eager: Run) -> Run:
    """The reference in eager's dtypes: the metric gets what the program would hand it."""
    if not same_structure(reference.outputs, eager.outputs):
        return reference
    return dataclasses.replace(reference, outputs=cast_like(tuple(reference.outputs), tuple(eager.outputs)))


def of_whole(metric: Metric, case: Case) -> Judge:
    """The judge of the program that the metric is meant for."""
    names = (str(getattr(output, "name", place)) for place, output in enumerate(case.graph.outputs))
    return Judge(metric, lambda run, names: run.outputs, frozenset(names), always=True)


def ruled(
    metric: Metric | None, case: Case, wrong: Rows, drift: Rows, runs: Runs, tell: Callable[..., object]
) -> tuple[Rows, Rows, bool]:
    """What stays wrong of a run of the whole program, what is drift, and whether the metric lets the wrong outputs pass. `tell`
    is given the name of an event and its facts. Raises UsageError."""
    judge = None if metric is None else of_whole(metric, case)
    if judge is None or not judge.is_asked(wrong, drift):
        return wrong, drift, False
    tell("measuring")
    wrong, drift, found = judge.rule(wrong, drift, *runs)
    assert found is not None  # whose own outputs are there to be seen
    tell("metric", by=found.by, text=str(found))
    return wrong, drift, not found.moved


def judge_for(question: Question) -> Judge | None:
    """The judge of a question's case: of the original, or of a cut of it that runs on the original's own values. None for all
    others, which have no place in the original any more. Raises UsageError where there is no such metric."""
    if not question.metric:
        return None
    case, metric = question.case, named(question.metric, question.metric_tol)
    if not question.whole or digest(case) == question.whole:
        return of_whole(metric, case) if question.whole else None
    root = Path(question.store)
    base = store.load_base(root, question.whole)
    if not _on_own_values(case, base, question.whole):
        return None
    results = frozenset(output.name for output in case.graph.outputs if isinstance(output, Ref))
    return Judge(metric, _InPlace(case, base, root), results & {op.name for op in base.graph.ops})


def _on_own_values(case: Case, base: Case, digest_of_base: str) -> bool:
    """Whether each input of `case` is one of the original's or a value computed in it."""
    known = {item.name: item.value for item in base.inputs}

    def own(name: str, value: object) -> bool:
        return (isinstance(value, Derived) and value.base == digest_of_base) or (name in known and known[name] == value)

    return all(isinstance(item, ScalarInput) or own(item.name, item.value) for item in case.inputs)


class _InPlace:
    """The original's outputs when results of a cut take the place of its own."""

    def __init__(self, case: Case, base: Case, root: Path) -> None:
        self._names = [getattr(output, "name", "") for output in case.graph.outputs]
        self._base = base
        self._root = root
        self._live: Replay | None = None

    def __call__(self, run: Run, names: frozenset[str]) -> tuple[Any, ...] | None:
        """None where the original raises on them, or they have no place in it. Raises what `out_of_memory` knows."""
        given = {name: value for name, value in zip(self._names, run.outputs, strict=True) if name in names}
        self._live = live = self._live or replay(self._base, self._root)
        with applied(live):
            whole = forward_run(self._base, live.make_inputs, scope=live.scope, patches=given)
        return None if whole is None else whole.outputs
