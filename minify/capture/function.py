"""A Python function and its inputs -> cases, without a script: for the API. Dynamo captures the graphs; nothing is compiled."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from minify.capture import prelude as preludes
from minify.capture.convert import Unrepresentable
from minify.capture.script import Suspect
from minify.capture.watch import Region, Watch, Watcher
from minify.errors import NoFailure, UsageError


def capture_function(
    fn: Callable[..., Any],
    inputs: Sequence[Any] | Mapping[str, Any],
    folder: Path,
    how: Mapping[str, Any],
    *,
    train: bool = False,
) -> tuple[Suspect, ...]:
    """Each graph Dynamo makes of `fn(*inputs)` (or `fn(**inputs)`), saved with its real inputs, in order.

    `how` has `backend`, `mode`, `options`, `dynamic`, as for torch.compile. Raises NoFailure where no graph is captured,
    UsageError where none can be written down, and whatever `fn` raises in eager."""
    name = getattr(fn, "__name__", type(fn).__name__)
    owner = _owner(fn, how.get("backend"))
    watcher = _Recorder(Watch("accuracy", folder), dict(vars(owner)) if owner else {}, _source(owner))
    watcher.how = dict(how)
    torch.compiler.reset()
    args, kwargs = ((), dict(inputs)) if isinstance(inputs, Mapping) else (tuple(inputs), {})
    try:
        with torch.set_grad_enabled(train):
            torch.compile(fn, backend=watcher.record, dynamic=how.get("dynamic"))(*args, **kwargs)
    finally:
        torch.compiler.reset()
    if not watcher.saved:
        if watcher.skipped:
            step = "inputs must be plain tensors and numbers, a backend a function of a module"
            raise UsageError(f"no graph of {name} can be written down: {watcher.skipped[0]}", step)
        raise NoFailure(f"torch.compile captures no graph from {name}")
    return tuple(Suspect(number, path, certain=False) for number, path in sorted(watcher.saved.items()))


def _owner(fn: Any, backend: Any) -> Any:
    """The module whose names and text a case may refer to: that of `fn`, or of a backend that `fn`'s does not know."""
    known = [sys.modules.get(getattr(thing, "__module__", None) or type(thing).__module__) for thing in (fn, backend)]
    if not callable(backend):
        return known[0]
    return next((module for module in known if module and preludes.expression_for(backend, vars(module))), known[0])


def _source(owner: Any) -> str:
    try:
        return inspect.getsource(owner) if owner is not None else ""
    except (OSError, TypeError):
        return ""


class _Recorder(Watcher):
    """Saves each graph at its first run and runs it eagerly."""

    how: dict[str, Any]

    def __init__(self, watch: Watch, script_globals: dict[str, Any], script_source: str) -> None:
        super().__init__(watch, script_globals, script_source)
        self.saved: dict[int, Path] = {}
        self.skipped: list[str] = []

    def event(self, name: str, **facts: Any) -> None:
        super().event(name, **facts)
        if name == "skipped":
            self.skipped.append(facts["why"])

    def record(self, module: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        """The backend."""
        region = self._enter_region(module, self.how)
        return lambda *args: self._run_recorded(region, module, args)

    def _run_recorded(self, region: Region, module: torch.fx.GraphModule, args: Sequence[Any]) -> Any:
        if region.converted is not None and region.number not in self.saved:
            try:
                self.saved[region.number] = self._write(region, self._snapshot(region, args))
            except Unrepresentable as error:
                region.converted = None
                self.event("skipped", region=region.number, why=str(error))
        return module(*args)
