"""`torch.compile(backend="minify")`: Inductor with every graph watched, for programs whose compile call cannot be edited.

Each graph's runs are compared with eager as `minify accuracy` does it; a graph that diverges, or whose compile or run
raises, becomes a case in a run folder of its own that `minify resume DIR` takes on. The program goes on as before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from minify import case as cases
from minify import torch_internals
from minify.capture.convert import Unrepresentable
from minify.capture.watch import Region, Watch, Watcher
from minify.errors import UsageError
from minify.runs import Request, RunFolder, new_folder

log = logging.getLogger("minify")


def minify_backend(module: torch.fx.GraphModule, example_inputs: list[Any], **options: Any) -> Callable[..., Any]:
    """A Dynamo backend. `options` go to Inductor. Raises what Inductor raises, with the case on disk."""
    inductor = torch_internals.backend("inductor")
    how = {"backend": "inductor", "mode": options.get("mode"), "options": options.get("options")}
    try:
        folder = new_folder("backend", None)
    except UsageError as error:
        log.warning("minify: not watching: %s", error)
        return inductor(module, example_inputs)  # type: ignore[no-any-return]
    watcher = _Watcher(folder, example_inputs)
    watched: Callable[..., Any] = watcher.wrap(inductor, how)(module, example_inputs)
    return watched


class _Watcher(Watcher):
    """Watches one graph for both kinds of failure; its folder goes again where nothing was found."""

    def __init__(self, folder: RunFolder, example_inputs: list[Any]) -> None:
        super().__init__(Watch("accuracy", folder.path), {})
        self._run_folder = folder
        self._example = example_inputs

    def event(self, name: str, **facts: Any) -> None:
        super().event(name, **facts)
        if name == "diverged":
            self._hand_over("accuracy", Path(facts["case"]))

    def _guarded(self, region: Region, action: Callable[[], Any]) -> Any:
        try:
            return super()._guarded(region, action)
        except Exception:
            if region.converted is not None:
                self._save_crash(region, self._example)
            raise

    def _save_crash(self, region: Region, args: list[Any]) -> None:
        try:
            self._hand_over("crash", self._write(region, self._snapshot(region, args)))
        except Unrepresentable as error:
            log.warning("minify: the graph that fails cannot be written down: %s", error)

    def _hand_over(self, kind: str, path: Path) -> None:
        """Make the folder one that `minify resume` takes on."""
        self._run_folder.save_request(Request(kind=kind, script="backend"))
        cases.save(cases.load(path), self._run_folder.case_file)
        log.warning("minify: %s; reduce it with: minify resume %s", {"crash": "the compiler raises"}.get(kind, "a compiled graph diverges"),
                    self._run_folder.path)  # fmt: skip
