"""The process that runs a user's script, unedited, as `__main__`, with every region it compiles watched.

`python -m minify.capture.child PLAN`: PLAN is a JSON file. What happened is told through `events.jsonl` beside it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True)
class Plan:
    """What the child is to do. `backend` and what follows say how to compile `model` where the script compiles nothing itself.
    `keep` wants the case of one region (`only`, or the first) even if nothing is wrong with it. `ahead` wants that of a region
    before it is compiled."""

    script: str
    args: tuple[str, ...]
    folder: str
    kind: str
    rtol: float | None = None
    atol: float | None = None
    reference: str = "auto"
    only: int | None = None
    every: bool = False
    record_call: int = 0
    level: str = "auto"
    device: str | None = None
    backend: str = "inductor"
    mode: str | None = None
    dynamic: bool | None = None
    train: bool = False
    keep: bool = False
    metric: str = ""
    metric_tol: float = 0.0
    ahead: bool = False


def main() -> None:
    """Run the plan and leave: 0 whatever the script did; the journal says what that was."""
    plan = Plan(**json.loads(Path(sys.argv[1]).read_text()))
    sys.argv = [plan.script, *plan.args]
    sys.path[0] = str(Path(plan.script).resolve().parent)
    for name in [name for name in os.environ if name.startswith("MINIFY_")]:
        del os.environ[name]
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=plan.script, __builtins__=__builtins__)
    sys.modules["__main__"] = module
    _run(plan, module)


def _run(plan: Plan, module: types.ModuleType) -> None:
    import torch

    from minify import torch_internals
    from minify.capture.watch import Watch, Watcher
    from minify.errors import UsageError
    from minify.tolerance import Tolerance

    tolerance = Tolerance(plan.rtol, plan.atol)
    watch = Watch(
        plan.kind, Path(plan.folder), tolerance, plan.reference, plan.only, plan.every, plan.record_call, plan.level,
        (plan.only or 0) if plan.keep else None, plan.ahead,
    )  # fmt: skip
    watcher = Watcher(watch, module.__dict__)

    def wrap(compiler: Callable[..., Any], how: dict[str, Any]) -> Callable[..., Any]:
        watcher.event("compiles")
        return watcher.wrap(compiler, how)

    try:
        watcher.metric = _metric(plan, module)
    except UsageError as error:
        watcher.refuse(error)
        return
    try:
        if plan.device:
            with _usable(f"--device {plan.device}", watcher):
                torch.empty(0, device=plan.device)
                torch.set_default_device(plan.device)
        content = Path(plan.script).read_bytes()
        code = compile(content, plan.script, "exec", dont_inherit=True)
        watcher.source = importlib.util.decode_source(content)
        with torch_internals.watched_compiles(wrap):
            exec(code, module.__dict__)
            if not watcher.regions:
                _compile_model(plan, module.__dict__, watcher)
    except SystemExit as leaving:
        watcher.event("exited", code=leaving.code if isinstance(leaving.code, int | None) else str(leaving.code))
    except BaseException as error:  # noqa: BLE001 - whatever the script raises is something to report
        watcher.event("raised", type=type(error).__name__, text=str(error)[:2000], where=_innermost(error, plan.script))
        traceback.print_exc()
    watcher.event("done", regions=len(watcher.regions))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _metric(plan: Plan, module: types.ModuleType) -> Any:
    """The user's metric, None where there is none. One that the script itself defines is looked up in it when it is needed, so
    that the script is run once. Raises UsageError."""
    from minify.metric import Metric, named

    where, _, name = plan.metric.rpartition(":")
    if where == plan.script:
        return Metric(plan.metric, lambda *outputs: vars(module)[name](*outputs), plan.metric_tol)
    return named(plan.metric, plan.metric_tol) if plan.metric else None


@contextlib.contextmanager
def _usable(option: str, watcher: Any) -> Iterator[None]:
    """Put what goes wrong down to a value given on the command line."""
    try:
        yield
    except Exception as error:
        watcher.event("unusable", option=option, type=type(error).__name__, text=str(error)[:2000])
        raise


def _innermost(error: BaseException, script: str) -> str:
    """`line N` of the script's own innermost frame."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == script]
    return f"line {lines[-1]}" if lines else ""


def _compile_model(plan: Plan, names: dict[str, Any], watcher: Any) -> None:
    """A script that compiles nothing but defines `model` and `inputs`: compile and run it as a user would."""
    import torch

    from minify import torch_internals

    model, inputs = names.get("model"), names.get("inputs")
    if not callable(model) or not isinstance(inputs, tuple | list | dict):
        watcher.event("nothing", model=callable(model), inputs=type(inputs).__name__)
        return
    arguments: tuple[Any, ...] = () if isinstance(inputs, dict) else tuple(inputs)
    keywords = inputs if isinstance(inputs, dict) else {}
    with torch.set_grad_enabled(plan.train):
        copies, named = torch_internals.map_leaves(_copy, (arguments, keywords))
        try:
            model(*copies, **named)
        except Exception as error:
            watcher.event("eager_raised", type=type(error).__name__, text=str(error)[:2000])
            raise
        with _usable(f"--backend {plan.backend}" + (f" --mode {plan.mode}" if plan.mode else ""), watcher):
            compiled: Any = torch.compile(model, backend=plan.backend, mode=plan.mode, dynamic=plan.dynamic)
        outputs = compiled(*arguments, **keywords)
        if plan.train and plan.kind == "crash":  # AOTAutograd compiles the backward when it is first run
            _run_backward(outputs)


def _run_backward(outputs: Any) -> None:
    """The backward of the sum of all results that have one."""
    import torch

    from minify import interpret, trial

    roots = trial.differentiable(tuple(interpret.leaves(outputs)))
    if roots:
        torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])


def _copy(leaf: Any) -> Any:
    """A tensor of its own, since eager may write to its arguments."""
    import torch

    return leaf.detach().clone().requires_grad_(leaf.requires_grad) if isinstance(leaf, torch.Tensor) else leaf


if __name__ == "__main__":
    main()
