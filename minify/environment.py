"""Environment variables that decide what torch compiles: which are set, and what a module would hold without them.

Lowest layer: imports neither torch nor anything of minify.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import importlib.util
import os
import re
import shutil
import stat
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

_CACHE_DIR = "TORCHINDUCTOR_CACHE_DIR"


def deciding() -> tuple[str, ...]:
    """The names of those that are set, `TORCHINDUCTOR_MAX_AUTOTUNE` say."""
    return tuple(name for name in os.environ if _DECIDING.match(name) and not _OF_THE_PROCESS.search(name))


@contextlib.contextmanager
def probing() -> Iterator[None]:
    """While Inductor tries this machine's vector instructions in a fresh cache folder: half a dozen C++ builds that take 8 s and
    have nothing to do with any program. Done once for all workers; what was built stays, beside the precompiled headers that
    Inductor leaves."""
    shared, private = _probes(), Path(os.environ.get(_CACHE_DIR, ""))
    with _held(shared.parent) as ours:
        if not ours or not os.environ.get(_CACHE_DIR):
            yield
            return
        known = probed_into(private)
        yield
        if not known and private.is_dir():
            part = shared.with_name(f"{shared.name}.{os.getpid()}")
            try:
                shutil.copytree(private, part)
                part.rename(shared)
            except OSError:  # a full disk, say
                shutil.rmtree(part, ignore_errors=True)


def probed_into(cache: Path) -> bool:
    """Copy what a trial of this machine built into the new folder `cache`; whether there was one."""
    if cache.exists() or not _ours(_probes().parent) or not _probes().is_dir():
        return False
    try:
        shutil.copytree(_probes(), cache)
    except OSError:
        shutil.rmtree(cache, ignore_errors=True)
        return False
    return True


def _probes() -> Path:
    try:
        user = re.sub(r"[^\w.-]", "_", getpass.getuser())
    except (KeyError, OSError):  # a container's user without a name
        user = str(os.getuid())
    return Path(tempfile.gettempdir(), f"torchinductor_{user}", f"vector_probes_{metadata.version('torch')}")


def _ours(folder: Path) -> bool:
    """Whether nobody else can put code there that we would load. The temporary folder is open to all."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[bool]:
    """Hold `folder` against others of us, and say whether it is ours."""
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o755)
    if not _ours(folder):
        yield False
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield True
    finally:
        os.close(handle)


def search_path() -> str:
    """PYTHONPATH under which a process of ours finds this very package, whatever its working directory."""
    here, given = str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")
    return f"{here}{os.pathsep}{given}" if given else here


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
