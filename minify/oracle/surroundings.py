"""What a verdict depends on apart from the case and how it is asked: the compiler's version, its switches, the device.

Runs in the parent, which must touch neither CUDA nor the compiler to know. Owns no verdicts.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Collection
from importlib import metadata

_PACKAGES = ("torch", "triton", "pytorch-triton", "pytorch-triton-rocm", "torch-minify")
_SWITCH = re.compile(r"TORCHINDUCTOR_|TORCHDYNAMO_|TORCH_COMPILE|TRITON_")
_PLACE = re.compile(r"_(DIR|HOME)$")  # where something is written, caches above all, decides nothing
_GPU_NAMES = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")


def surroundings(ours: Collection[str] = ()) -> str:
    """A text that differs where a verdict of yesterday may no longer hold: after an upgrade, on another GPU, under other
    environment variables of the compiler. `ours` are those that a worker gets from us whatever the user's say."""
    switches = [f"{name}={value}" for name, value in sorted(os.environ.items()) if _decides(name) and name not in ours]
    return "\n".join([*_versions(), *_gpu_names(), *switches])


def _versions() -> list[str]:
    found = []
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append(f"{name}={metadata.version(name)}")
    return found


def _decides(name: str) -> bool:
    return bool(_SWITCH.match(name)) and not _PLACE.search(name)


def _gpu_names() -> list[str]:
    """The models of the machine's GPUs, asked of the driver's own program: torch would need a CUDA context to tell."""
    try:
        told = subprocess.run(_GPU_NAMES, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return sorted(told.stdout.splitlines()) if told.returncode == 0 else []
