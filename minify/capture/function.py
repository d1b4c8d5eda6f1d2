"""A Python function and its inputs -> cases, without a script: for the API. Dynamo captures the graphs; nothing is compiled."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from minify.capture.script import Suspect
from minify.capture.watch import Region, Watch, Watcher
from minify.errors import NoFailure


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
    and whatever `fn` raises in eager."""
    owner = sys.modules.get(getattr(fn, "__module__", None) or type(fn).__module__)
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
        raise NoFailure(f"torch.compile captures no graph from {getattr(fn, '__name__', fn)}")
    return tuple(Suspect(number, path, certain=False) for number, path in sorted(watcher.saved.items()))


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

    def record(self, module: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        """The backend."""
        region = self._enter_region(module, self.how)
        return lambda *args: self._run_recorded(region, module, args)

    def _run_recorded(self, region: Region, module: torch.fx.GraphModule, args: Sequence[Any]) -> Any:
        if region.converted is not None and region.number not in self.saved:
            self.saved[region.number] = self._write(region, self._snapshot(region, args))
        return module(*args)
