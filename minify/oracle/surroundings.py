"""What a verdict depends on apart from the case and how it is asked: the compiler's version, its switches, the device.

Runs in the parent, which must touch neither CUDA nor the compiler to know. Owns no verdicts.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from importlib import metadata

from minify import environment

_PACKAGES = ("torch", "triton", "pytorch-triton", "pytorch-triton-rocm", "torch-minify")
_OF_TRITON = re.compile(r"TRITON_(?!.*_(DIR|HOME)$)")  # where something is written, caches above all, decides nothing
_GPU_NAMES = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")


def surroundings() -> str:
    """A text that differs where a verdict of yesterday may no longer hold: after an upgrade, on another GPU, under other
    environment variables of the compiler."""
    names = {*environment.deciding(), *filter(_OF_TRITON.match, os.environ)}
    switches = [f"{name}={os.environ[name]}" for name in sorted(names)]
    return "\n".join([*_versions(), *_gpu_names(), *switches])


def _versions() -> list[str]:
    found = []
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append(f"{name}={metadata.version(name)}")
    return found


def _gpu_names() -> list[str]:
    """The models of the machine's GPUs, asked of the driver's own program: torch would need a CUDA context to tell."""
    try:
        told = subprocess.run(_GPU_NAMES, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return sorted(told.stdout.splitlines()) if told.returncode == 0 else []
