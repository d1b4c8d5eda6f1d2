"""What the compiler is asked through, application by application, once it has been made to ask: `Switch`."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import re
from collections.abc import Callable, Iterator
from typing import Any

from minify.ablation import Ablation, Application

_SEPARATORS = re.compile(r"[\s,:]+")  # what stands between names where they are written down


class Switch:
    """Says which applications of one kind stay, and keeps which there were. `devices` are the types of those that the program runs
    on; `watches` says that all stay, `only` that no others do than those named."""

    def __init__(self, ablation: Ablation, devices: frozenset[str]) -> None:
        self.devices = devices
        self.watches = ablation.lists_all
        self.only = ablation.only
        self._ablation = ablation
        self._found: dict[str, Application] = {}

    def __call__(self, name: str, about: str = "") -> bool:
        """Whether the application stays, which is also noted."""
        self.note(name, about)
        return self.keeps(name)

    def keeps(self, name: str) -> bool:
        return self.watches or self._ablation.keeps(plain(name))

    def note(self, name: str, about: str = "", *, idle: bool = False) -> None:
        """There is such an application; what was noted of it last holds."""
        name = plain(name)
        self._found[name] = Application(name, about, idle)

    @property
    def found(self) -> tuple[Application, ...]:
        return tuple(self._found.values())


@dataclasses.dataclass(frozen=True, slots=True)
class Handle:
    """How torch is made to ask for the applications of one `kind`. `needs` are the places it takes, as `module:attribute`; where a
    release lacks one, the kind cannot be switched."""

    kind: str
    needs: tuple[str, ...]
    install: Callable[[Switch], contextlib.AbstractContextManager[None]]

    def missing(self) -> str:
        """What this torch lacks, "" if nothing."""
        lacking = [place for place in self.needs if not exists(place)]
        return f"no {' and no '.join(lacking)}" if lacking else ""


def plain(name: str) -> str:
    """`name` without what separates names."""
    return _SEPARATORS.sub("_", name)


def owner(place: str) -> tuple[Any, str]:
    """The object and the attribute of it that `module:Class.attribute` names. Raises ImportError and AttributeError."""
    module, _, path = place.partition(":")
    *parts, last = path.split(".")
    holder = importlib.import_module(module)
    for part in parts:
        holder = getattr(holder, part)
    return holder, last


def exists(place: str) -> bool:
    try:
        return hasattr(*owner(place))
    except (ImportError, AttributeError):
        return False


@contextlib.contextmanager
def replaced(place: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """What stands at `place` is wrapped meanwhile."""
    holder, name = owner(place)
    before = vars(holder)[name]
    setattr(holder, name, wrap(before))
    try:
        yield
    finally:
        setattr(holder, name, before)
