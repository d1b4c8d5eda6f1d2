"""Environment variables that decide what torch compiles: which are set, and what a module would hold without them.

Lowest layer: imports neither torch nor anything of minify.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from types import ModuleType

_DECIDING = re.compile(r"TORCH_?INDUCTOR_|TORCH_?DYNAMO_|TORCH_COMPILE")
# Where a process keeps its caches, how many others it starts, what it tells of itself: no part of a program.
_OF_THE_PROCESS = re.compile(
    r"CACHE(_DIR|_DEFAULT)?$|COMPILE_THREADS|WORKER|LOG(S|G|PATH|_|$)|PGO|DEBUG|TRACE|PROFIL|VERBOSE|REPRO_|REPLAY|METRIC|SAVE_ARGS|TIMEOUT"
)


def deciding() -> tuple[str, ...]:
    """The names of those that are set, `TORCHINDUCTOR_MAX_AUTOTUNE` say."""
    return tuple(name for name in os.environ if _DECIDING.match(name) and not _OF_THE_PROCESS.search(name))


def copy_without(module: ModuleType, names: Sequence[str]) -> ModuleType:
    """A second copy of `module`, run anew with these environment variables unset; `sys.modules` does not keep it."""
    name = f"{__name__}.copy_of_{module.__name__.replace('.', '_')}"
    spec = importlib.util.spec_from_file_location(name, module.__file__)
    assert spec is not None and spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    unset = {key: os.environ.pop(key) for key in names if key in os.environ}
    sys.modules[name] = copy  # a config module looks itself up there
    try:
        spec.loader.exec_module(copy)
    finally:
        del sys.modules[name]
        os.environ.update(unset)
    return copy
