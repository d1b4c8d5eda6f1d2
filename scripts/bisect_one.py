"""Ask torch's own `CompilerBisector` of one script, and print its answer as a line of JSON. Meant for a process of its own.

    python scripts/bisect_one.py corpus/div_floor_inf/model.py

The script is run as `__main__` up to the first call of what it compiled, which is then compiled again and compared with eager
for each question. An exception is a failure too. The bisector keeps its state in the folder of Inductor's caches and deletes it
there, so that these must be nobody else's.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import runpy
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch._dynamo
import torch._inductor.config
from torch._inductor.compiler_bisector import CompilerBisector
from torch.utils import _pytree as pytree

RTOL, ATOL = 1e-3, 1e-3  # what the programs of the corpus mostly compare with
SEED = 0


@dataclass(frozen=True)
class Compiled:
    """What a script compiled: the first thing that it called, how, with what, and the settings that were in force."""

    function: Any
    how: dict[str, Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    grad: bool
    random: bool


class Called(BaseException):
    """Ends the script once it calls what it compiled."""


def compiled_by(script: str) -> Compiled:
    """Raises LookupError where the script compiles nothing and defines no `model` and `inputs`."""
    found: list[Compiled] = []
    original = torch.compile

    def stand_in(model: Any = None, **how: Any) -> Any:
        if model is None:
            return lambda function: stand_in(function, **how)

        def call(*args: Any, **kwargs: Any) -> Any:
            settings = torch.is_grad_enabled(), bool(torch._inductor.config.fallback_random)
            found.append(Compiled(model, how, copied(args), copied(kwargs), *settings))
            raise Called

        return call

    torch.compile = stand_in  # type: ignore[assignment]
    try:
        with contextlib.suppress(Called):
            namespace = runpy.run_path(script, run_name="__main__")
            found.append(Compiled(namespace["model"], {}, namespace["inputs"], {}, False, False))
    finally:
        torch.compile = original
    if not found:
        raise LookupError(f"{script} compiles nothing")
    return found[0]


def copied(value: Any) -> Any:
    """Tensors of their own, with the same strides and the same memory in common."""
    shared: dict[int, Any] = {}
    detached = pytree.tree_map(lambda leaf: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf, value)
    fresh = copy.deepcopy(detached, shared)
    return pytree.tree_map(
        lambda old, new: new.requires_grad_(old.requires_grad) if isinstance(old, torch.Tensor) else new, value, fresh
    )


def results(function: Callable[..., Any], asked: Compiled) -> list[Any]:
    """All that a run leaves behind: what is returned, what is written to the inputs, and gradients of these."""
    args, kwargs = copied(asked.args), copied(asked.kwargs)
    torch.manual_seed(SEED)
    with torch.set_grad_enabled(asked.grad):
        returned = pytree.tree_leaves(function(*args, **kwargs))
        given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        loss = [leaf.sum() for leaf in returned if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        if loss:
            torch.stack(loss).sum().backward()
    return [*returned, *given, *(leaf.grad for leaf in given)]


def same(got: Any, expected: Any) -> bool:
    """Close numbers, and the same strides."""
    if not isinstance(expected, torch.Tensor):
        return bool(got == expected)
    torch.testing.assert_close(got, expected, rtol=RTOL, atol=ATOL, equal_nan=True)
    return bool(got.stride() == expected.stride())


def main() -> None:
    """Print `backend`, `subsystem`, `debug_info`, `calls` and `seconds`; no backend where nothing was found."""
    with contextlib.redirect_stdout(sys.stderr):
        asked = compiled_by(sys.argv[1])
    calls = 0

    def agrees() -> bool:
        nonlocal calls
        calls += 1
        torch._dynamo.reset()
        # The bisector puts backends of its own in place of the script's, and they have no modes; options are the backend's own.
        inductor = CompilerBisector.get_backend() == asked.how.get("backend", "inductor") == "inductor"
        how = {key: value for key, value in asked.how.items() if inductor or key not in ("mode", "options")}
        try:
            with torch._inductor.config.patch(fallback_random=asked.random, force_disable_caches=True):
                expected = results(copy.deepcopy(asked.function), asked)
                got = results(torch.compile(copy.deepcopy(asked.function), **how), asked)
            return len(got) == len(expected) and all(map(same, got, expected))
        except Exception as error:  # noqa: BLE001 - whatever is raised is a failure to the bisector
            print(f"{type(error).__name__}: {error}"[:300], file=sys.stderr)
            return False

    start = time.monotonic()
    answer, error = None, ""
    with contextlib.redirect_stdout(sys.stderr):
        try:
            answer = CompilerBisector.do_bisect(agrees)
        except Exception as raised:  # noqa: BLE001 - the bisector gives up so
            error = f"{type(raised).__name__}: {raised}"
    row = {"backend": "", "subsystem": None, "debug_info": None} if answer is None else vars(answer)
    row |= {"calls": calls, "seconds": round(time.monotonic() - start, 1), "error": error}
    print(json.dumps(row), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
