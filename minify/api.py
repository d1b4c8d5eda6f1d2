"""`minify.minify(fn, inputs)`: the command's powers from Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minify import pipeline, regions
from minify.capture.function import capture_function
from minify.errors import EXIT_STOPPED_EARLY, NoFailure, Stopped, Unstable, UsageError
from minify.functions import checked_metric
from minify.interesting import checked_spec
from minify.report import Report
from minify.runs import Request, RunFolder, StopFlag, new_folder

if TYPE_CHECKING:
    from minify.reduce import Session


def minify(
    fn: Callable[..., Any],
    inputs: Sequence[Any] | Mapping[str, Any],
    *,
    kind: str = "accuracy",
    backend: Any = "inductor",
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    dynamic: bool | None = None,
    train: bool = False,
    rtol: float | None = None,
    atol: float | None = None,
    reference: str = "auto",
    timeout: float | None = None,
    budget: float | None = None,
    workers: int | None = None,
    runs: int = 2,
    data: bool = False,
    out: Path | str | None = None,
    interesting: str = "",
    metric: str = "",
    metric_tol: float = 0.0,
    tell: Callable[[str], None] = lambda text: None,
) -> Report:
    """Shrink the failure of `torch.compile(fn, ...)(*inputs)` to a repro. `kind` is `accuracy` or `crash`.

    `inputs` is a sequence of arguments or a mapping of keyword arguments; `train` runs with gradients and checks them;
    times are in seconds; `interesting` and `metric` name functions, as on the command line; `tell` is told what goes on. In this
    process `fn` runs once, eagerly, on the inputs themselves, and what torch has compiled so far is forgotten. Raises NoFailure,
    Unstable and UsageError, and what `fn` raises."""
    if kind not in ("accuracy", "crash"):
        raise UsageError(f"kind is {kind!r}", "give 'accuracy' or 'crash'")
    if not callable(fn):
        raise UsageError(f"fn is a {type(fn).__name__}, not callable")
    if not isinstance(inputs, Mapping | Sequence) or isinstance(inputs, str):
        raise UsageError(
            f"inputs is a {type(inputs).__name__}", "give a tuple of arguments, or a dict of keyword arguments"
        )
    interesting, metric = checked_spec(interesting), checked_metric(metric, metric_tol)
    name = getattr(fn, "__name__", type(fn).__name__)
    folder = new_folder(name, None if out is None else Path(out))
    request = Request(
        kind=kind, script=name, mode=mode, dynamic=dynamic, train=train, rtol=rtol, atol=atol, reference=reference,
        timeout=timeout, budget=budget, workers=workers, runs=runs, data=data, interesting=interesting, metric=metric,
        metric_tol=metric_tol,
    )  # fmt: skip
    folder.save_request(request)
    how = {"backend": backend, "mode": mode, "options": dict(options or {}), "dynamic": dynamic}
    try:
        suspects = capture_function(fn, inputs, folder.path, how, train=train)
        return pipeline.run(request, folder, StopFlag(budget), _Telling(tell), suspects)
    except (NoFailure, Unstable) as error:
        regions.no_failure_report(request, folder, error)
        raise
    except Stopped as stop:
        report = _nothing_confirmed(kind, folder, stop)
        report.write()
        return report


def _nothing_confirmed(kind: str, folder: RunFolder, stop: Stopped) -> Report:
    message = f"stopped ({stop.reason}) before a failure was confirmed"
    return Report("stopped early", EXIT_STOPPED_EARLY, kind, folder.path, stopped_by=stop.reason, message=message)


class _Telling:
    """Progress for Python callers: steps as text, queries not at all."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def step(self, text: str) -> None:
        self._tell(text)

    def searching(self, session: Session) -> None:
        return None
