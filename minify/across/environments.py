"""An environment for each release of torch: found, or made by uv or by venv and pip, and taken away again.

Owns the processes that install, and the folders they fill. Knows nothing of what is asked there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from minify.across.releases import Release, parsed
from minify.errors import Stopped, UsageError
from minify.oracle.nest import Nest

# Of the user's shell, by which an installer or an interpreter would take another place than the one it is told.
_MISLEADING = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_USER", "PIP_TARGET", "PIP_PREFIX")
# Inductor's C++ builder imports setuptools. Older releases ask for it from Python 3.12 on only, since venv brought it before.
_BESIDE = ("setuptools",)
_LISTED = "Available versions:"
_VERSION = "from importlib.metadata import version; print(version('torch'))"
_COMPLETE = ".complete"  # written last: without it, an environment is what a kill has left
_MOST_SAID = 160


class NotInstalled(Exception):
    """A release cannot be had here; says why."""


@dataclasses.dataclass(frozen=True)
class Environment:
    """`python` has `torch`, a version with its build: `2.13.0+cpu`."""

    python: str
    torch: str


@dataclasses.dataclass(frozen=True)
class Installer:
    """Makes environments for `base`, an interpreter, from `index_url` or the installer's own. Those kept lie in `keep`, where that is
    given; all else lies in the nest, and goes with it. `uv` is its path, "" to do with venv and pip.

    `own` are interpreters of the user's for releases that need none made. Each method raises Stopped when `should_stop()` turns
    true, and OSError."""

    nest: Nest
    base: str
    index_url: str = ""
    uv: str = ""
    keep: Path | None = None
    own: Mapping[Release, str] = dataclasses.field(default_factory=dict)
    should_stop: Callable[[], object] = lambda: False

    def releases(self) -> tuple[Release, ...]:
        """All that this Python can install, by its pip, or by one that venv brings. Raises UsageError where neither can tell."""
        folder = self.nest.root / "listing"
        try:
            with contextlib.suppress(NotInstalled):
                self._run(self.base, "-m", "pip", "--version")
                return self._listed_by(self.base)
            self._run(self.base, "-m", "venv", folder)
            return self._listed_by(str(_python_of(folder)))
        except NotInstalled as error:
            raise UsageError(f"torch's releases cannot be listed: {error}", "name them with --versions") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def environment(self, release: Release) -> Iterator[Environment]:
        """One that has `release`, for as long as the context lasts, or longer where it is kept. Raises NotInstalled."""
        if release in self.own:
            yield self._checked(self.own[release], release)
            return
        folder = (self.keep or self.nest.root) / f"torch-{release}-{self._sort}"
        try:
            if not (folder / _COMPLETE).exists():
                shutil.rmtree(folder, ignore_errors=True)
                self._make(folder, release)
                (folder / _COMPLETE).touch()
            yield self._checked(str(_python_of(folder)), release)
        finally:
            if self.keep is None or not (folder / _COMPLETE).exists():
                shutil.rmtree(folder, ignore_errors=True)

    @property
    def _sort(self) -> str:
        """What else decides what an environment holds, in short."""
        return hashlib.sha256(f"{self.base}\0{self.index_url}".encode()).hexdigest()[:8]

    def _make(self, folder: Path, release: Release) -> None:
        python = _python_of(folder)
        index = ["--index-url", self.index_url] if self.index_url else []
        wanted = [*index, f"torch=={release}", *_BESIDE]
        if self.uv:
            self._run(self.uv, "venv", "--python", self.base, folder)
            self._run(self.uv, "pip", "install", "--python", python, *wanted)
        else:
            self._run(self.base, "-m", "venv", folder)
            self._run(python, "-m", "pip", "install", *wanted)

    def _checked(self, python: str, release: Release) -> Environment:
        torch = version_of(python, self._run)
        if parsed(torch) != release:
            raise NotInstalled(f"it has torch {torch}")
        return Environment(python, torch)

    def _listed_by(self, python: str) -> tuple[Release, ...]:
        index = ["--index-url", self.index_url] if self.index_url else []
        said = self._run(python, "-m", "pip", "index", "versions", "torch", *index)
        listed = next((line for line in said.splitlines() if line.startswith(_LISTED)), _LISTED)
        return tuple(filter(None, map(parsed, listed.removeprefix(_LISTED).split(","))))

    def _run(self, *command: str | Path) -> str:
        """What a command said. What it unpacks and caches lies beside what it fills, and is gone when it ends; an installer's own
        cache is used, and filled, only for what is kept."""
        scratch = self.nest.root / "scratch"
        scratch.mkdir()
        environment = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
        environment |= {"TMPDIR": str(scratch), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
        if self.keep is None:
            environment |= {"PIP_NO_CACHE_DIR": "1", "UV_CACHE_DIR": str(scratch / "uv")}
        log = scratch / "log"
        try:
            code = self.nest.run(command, log, cwd=scratch, env=environment, should_stop=self.should_stop)
            said = log.read_text(errors="replace")
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        if code is None:
            raise Stopped(str(self.should_stop()))
        if code:
            raise NotInstalled(_why(said) or f"{Path(command[0]).name} ended with {code}")
        return said


def version_of(python: str, run: Callable[..., str]) -> str:
    """The version of the torch that `python` would import. Raises what `run` raises."""
    return (run(python, "-I", "-c", _VERSION).strip().splitlines() or [""])[-1]


def _python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


def _why(said: str) -> str:
    """The one line of an installer's output that says what went wrong."""
    lines = [line.strip(" ×╰─▶│") for line in said.splitlines()]
    lines = [line for line in lines if line]
    errors: Sequence[str] = [line for line in lines if line.lower().startswith("error")]
    last = (errors or lines or [""])[-1]
    return last if len(last) <= _MOST_SAID else f"{last[:_MOST_SAID]}..."
