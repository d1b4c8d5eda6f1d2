"""What of the compiler one question leaves out (`Ablation`), and what there was to leave out (`Listing`).

Plain data, lowest layer. A kind is one sort of thing that the compiler does many times (`fusion`), an application one of
them (`op1+op2`), by a name that it has in each compile of the same case. Kinds: `localize.inside`; how torch is made to leave one
out: `torch_internals.ablations`.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection, Sequence

OFF, ONLY = "--off", "--only"
RUN = "run"  # not a kind of application: whether what was compiled is run at all


@dataclasses.dataclass(frozen=True, slots=True)
class Ablation:
    """Which applications of one kind stay: all but `names` or, if `only`, those alone. Of no kind: nothing is left out. `also` are
    those of other kinds that are left out of the same question.

    A question with an ablation is answered with what could be left out: of its kinds, or of every kind if it `lists_all`."""

    kind: str = ""
    names: tuple[str, ...] = ()
    only: bool = False
    also: tuple[Ablation, ...] = ()

    @property
    def parts(self) -> tuple[Ablation, ...]:
        """One for each kind."""
        return dataclasses.replace(self, also=()), *self.also

    def of(self, kind: str) -> Ablation | None:
        """The part of that kind."""
        return next((part for part in self.parts if part.kind == kind), None)

    @property
    def lists_all(self) -> bool:
        return any(part.kind in ("", RUN) for part in self.parts)

    def keeps(self, name: str) -> bool:
        return (name in self.names) == self.only

    def __str__(self) -> str:
        return " ".join(self.options()) or "nothing off"

    def options(self) -> tuple[str, ...]:
        """Its words on a command line, that `parse` reads: `--off fusion:op1+op2`; `--off fusion` is all of the kind."""
        if not self.kind:
            return ()
        flag = ONLY if self.only and self.names else OFF
        words = flag, f"{self.kind}:{','.join(self.names)}" if self.names else self.kind
        return words + tuple(word for part in self.also for word in part.options())


WATCHED = Ablation()
COMPILED = Ablation(
    RUN, only=True
)  # compiled and not run, so that what a program that kills its process was made of is known


def without(kind: str, names: Collection[str]) -> Ablation:
    return Ablation(kind, tuple(names))


def alone(kind: str, names: Collection[str] = ()) -> Ablation:
    """Nothing of the kind is left but `names`: without any, all of it is off."""
    return Ablation(kind, tuple(names), only=True)


def parse(flag: str, text: str) -> Ablation:
    """The ablation that `options` wrote. Raises ValueError for a flag that is not ours, and for a text that names no kind, or none
    to keep alone."""
    kind, _, listed = text.partition(":")
    names = tuple(filter(None, listed.split(",")))
    if flag not in (OFF, ONLY) or not kind or (flag == ONLY and not names):
        raise ValueError(f"{flag} {text}: give --off KIND, --off KIND:NAME,NAME or --only KIND:NAME,NAME")
    return Ablation(kind, names, only=flag == ONLY or not names)


def combined(ablations: Sequence[Ablation]) -> Ablation:
    """All of it left out of one question. Raises ValueError where one names what is to stay of a kind and another what is not."""
    kinds: dict[str, Ablation] = {}
    for ablation in ablations:
        before = kinds.setdefault(ablation.kind, ablation)
        if before.only != ablation.only:
            raise ValueError(f"{before} {ablation}: of one kind give all, or what is off, or what alone is on")
        names = tuple(dict.fromkeys((*before.names, *ablation.names)))
        kinds[ablation.kind] = dataclasses.replace(before, names=names)
    first, *others = kinds.values() or (WATCHED,)
    return dataclasses.replace(first, also=tuple(others))


def digest(case: str, ablation: Ablation) -> str:
    """32 hex digits that name the question: the case of that digest, compiled with this left out."""
    return hashlib.sha256(f"{case} {ablation}".encode()).hexdigest()[:32] if ablation.kind else case


@dataclasses.dataclass(frozen=True, slots=True)
class Application:
    """One thing that the compiler did. `about` says more of it to a reader; an `idle` one is known to have changed nothing."""

    name: str
    about: str = ""
    idle: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Listing:
    """The applications of one kind, in the order in which they were first met. `missing` says what this torch lacks for the kind
    to be switched at all."""

    kind: str
    applications: tuple[Application, ...] = ()
    missing: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(application.name for application in self.applications)
