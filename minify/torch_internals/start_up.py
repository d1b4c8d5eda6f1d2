"""What belongs to a process and no program: its first imports, being forked, waiting for its GPU."""

from __future__ import annotations

import importlib
import warnings

import torch

from minify import environment


def warm_up() -> None:
    """Import what the first compile would import, so that its time is not counted as the compile's."""
    importlib.import_module("torch._inductor.compile_fx")
    try:
        with environment.probing():
            importlib.import_module("torch._inductor.cpu_vec_isa").pick_vec_isa()
    except Exception as error:  # noqa: BLE001 - no compiler, say: the first real compile will report it better
        warnings.warn(f"no vector instructions: {error}", stacklevel=2)


def survived_fork() -> bool:
    """Whether a fork of a process that imported torch can use the GPU: not where that process looked for one itself."""
    return not torch.cuda._is_in_bad_fork()


def synchronise() -> None:
    """Wait for the GPU, so that an error of what was launched is raised here and not at some later call."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
