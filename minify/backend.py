"""`torch.compile(backend="minify")`: Inductor with every graph watched, for programs whose compile call cannot be edited.

Each graph's runs are compared with eager as `minify accuracy` does it; a graph that diverges, or whose compile or run
raises, becomes a case in a run folder of its own that `minify resume DIR` takes on. The program goes on as before.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import logging
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from minify import case as cases
from minify import torch_internals
from minify.capture.snapshot import Snapshot
from minify.capture.watch import Region, Watch, Watcher
from minify.errors import UsageError
from minify.runs import Request, RunFolder, new_folder

log = logging.getLogger("minify")


def minify_backend(module: torch.fx.GraphModule, example_inputs: list[Any], **options: Any) -> Callable[..., Any]:
    """A Dynamo backend. `mode` and `options` go to Inductor. Raises what Inductor raises, with the case on disk."""
    mode, chosen = options.get("mode"), dict(options.get("options") or {})
    how = {"backend": "inductor", "mode": mode, "options": chosen}
    patches = torch_internals.inductor_patches(mode, chosen)
    watching = _Watcher(example_inputs).wrap(torch_internals.backend("inductor"), how)
    watched: Callable[..., Any] = watching(module, example_inputs, **({"config_patches": patches} if patches else {}))
    return watched


class _Watcher(Watcher):
    """Watches one graph for both kinds of failure. It has a folder from the moment that there is a case to keep."""

    def __init__(self, example_inputs: list[Any]) -> None:
        names = vars(sys.modules["__main__"])
        super().__init__(Watch("accuracy", Path()), names, _source(names.get("__file__")))
        self._run_folder: RunFolder | None = None
        self._untold: list[tuple[str, dict[str, Any]]] = []
        self._args: Sequence[Any] = example_inputs
        self._lacking = ""

    def event(self, name: str, **facts: Any) -> None:
        self._untold.append((name, {"time": time.time(), **facts}))
        if self._run_folder is not None:
            self._tell()
        if name == "skipped":
            log.warning("minify: a graph goes unwatched: %s", facts["why"])
        if name == "diverged":
            self._hand_over("accuracy", Path(facts["case"]))

    def _tell(self) -> None:
        while self._untold:
            name, facts = self._untold.pop(0)
            super().event(name, **facts)

    def _checked_run(self, region: Region, compiled: Callable[..., Any], args: Sequence[Any]) -> Any:
        self._args = args
        try:
            return super()._checked_run(region, compiled, args)
        finally:
            self._args = ()

    def _guarded(self, region: Region, action: Callable[[], Any]) -> Any:
        try:
            return super()._guarded(region, action)
        except Exception:
            if region.converted is not None and not self.found:
                self._save_crash(region)
            raise

    def _save_crash(self, region: Region) -> None:
        self.found += 1
        try:
            self._hand_over("crash", self._write(region, self._snapshot(region, self._args)))
        except Exception as error:  # noqa: BLE001 - the user's own exception is on its way and must get there
            log.warning("minify: the graph that fails cannot be kept: %s", error)

    def _defer(self, region: Region, taken: Snapshot, why: str) -> None:
        """Only a run of its own can tell whether it is right: not kept for that alone."""
        if not region.deferred:
            region.deferred = True
            log.warning("minify: a graph that %s goes unchecked; `minify accuracy` can check it", why)

    def _write(self, region: Region, taken: Snapshot, part: str = "") -> Path:
        if self._run_folder is None:
            try:
                self._run_folder = new_folder("backend", None)
            except UsageError as error:
                log.warning("minify: a failing graph cannot be kept: %s", error)
                raise
            self.watch = dataclasses.replace(self.watch, folder=self._run_folder.path)
            self._tell()
        self._lacking = self._undefined(taken.converted.namespaces)
        return super()._write(region, taken, part)

    def _undefined(self, namespaces: frozenset[str]) -> str:
        """What keeps a new process from running a case with such custom ops, in words; "" where nothing is seen to."""
        text = self._prelude(frozenset(), namespaces) if self.source and namespaces else ""
        missing = ", ".join(sorted(name for name in namespaces if name not in text))
        if not missing:
            return ""
        where = "the main program does not define them" if self.source else "the main program has no file"
        return f"the custom ops of {missing} are not in the case: {where}" + (", unless its imports do" if text else "")

    def _hand_over(self, kind: str, path: Path) -> None:
        """Make the folder one that `minify resume` takes on."""
        assert self._run_folder is not None
        self._run_folder.save_request(Request(kind=kind, script="backend"))
        cases.save(cases.load(path), self._run_folder.case_file)
        what = "the compiler or its code raises" if kind == "crash" else "a compiled graph diverges"
        if self._lacking:
            log.warning("minify: %s; %s cannot be resumed, since %s", what, self._run_folder.path, self._lacking)
            return
        log.warning("minify: %s; reduce it with: minify resume %s", what, self._run_folder.path)


def _source(file: str | None) -> str:
    """The text of the main program, in which a case finds the definitions that it needs; "" where it has none."""
    try:
        return importlib.util.decode_source(Path(file).read_bytes()) if file else ""
    except (OSError, ValueError, SyntaxError):  # an archive, a compiled extension
        return ""
