"""Environment variables that decide what torch compiles: which are set, and what a module would hold without them.

Lowest layer: imports neither torch nor anything of minify.
"""

from __future__ import annotations

import contextlib
import getpass
import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from types import ModuleType

_DECIDING = re.compile(r"TORCH_?INDUCTOR_|TORCH_?DYNAMO_|TORCH_COMPILE")
# Where a process keeps its caches, how many others it starts, what it tells of itself: no part of a program.
_OF_THE_PROCESS = re.compile(
    r"CACHE(_DIR|_DEFAULT)?$|COMPILE_THREADS|WORKER|LOG(S|G|PATH|_|$)|PGO|DEBUG|TRACE|PROFIL|VERBOSE|REPRO_|REPLAY|METRIC|SAVE_ARGS|TIMEOUT"
)

_CACHE_DIR, _COMPLETE = "TORCHINDUCTOR_CACHE_DIR", "complete"


def deciding() -> tuple[str, ...]:
    """The names of those that are set, `TORCHINDUCTOR_MAX_AUTOTUNE` say."""
    return tuple(name for name in os.environ if _DECIDING.match(name) and not _OF_THE_PROCESS.search(name))


@contextlib.contextmanager
def probing() -> Iterator[None]:
    """While Inductor tries this machine's vector instructions: half a dozen C++ builds that take 8 s and have nothing to do with
    any program. Their cache folder stays, beside the precompiled headers that Inductor leaves."""
    folder, private = _probes(), os.environ.get(_CACHE_DIR)
    os.environ[_CACHE_DIR] = str(folder)
    try:
        yield
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _COMPLETE).touch()
    finally:
        del os.environ[_CACHE_DIR]
        if private is not None:
            os.environ[_CACHE_DIR] = private


def probed() -> Path | None:
    """The cache folder of a trial that was finished, if there was one. The folder that it lies in is open to all users of the
    machine, so that only one of our own counts."""
    folder = _probes()
    with contextlib.suppress(OSError):
        if (folder / _COMPLETE).stat().st_uid == folder.stat().st_uid == os.getuid():
            return folder
    return None


def _probes() -> Path:
    try:
        user = re.sub(r"[^\w.-]", "_", getpass.getuser())
    except (KeyError, OSError):  # a container's user without a name
        user = str(os.getuid())
    return Path(tempfile.gettempdir(), f"torchinductor_{user}", f"vector_probes_{metadata.version('torch')}")


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
