"""Where in the compile chain does the failure first show? `STAGES` is the ladder, as data; `first_stage` climbs it.

One rung per row so far, down to Inductor as a whole; what lies inside Inductor is not taken apart yet.
"""

from __future__ import annotations

import dataclasses

from minify.case import Arg, Case
from minify.oracle import Oracle
from minify.verdict import Outcome, Signature


@dataclasses.dataclass(frozen=True, slots=True)
class Stage:
    """A rung: the program compiled with `backend`, which goes through the chain up to and including stage `name`."""

    name: str
    backend: str


STAGES: tuple[Stage, ...] = (
    Stage("Dynamo", "eager"),
    Stage("AOTAutograd", "aot_eager"),
    Stage("decompositions", "aot_eager_decomp_partition"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Rung:
    """What one rung showed."""

    stage: str
    backend: str
    outcome: str


@dataclasses.dataclass(frozen=True, slots=True)
class Localised:
    """The first divergent stage and every rung asked on the way; the last rung is the case's own backend."""

    stage: str
    rungs: tuple[Rung, ...]


def first_stage(case: Case, signature: Signature, oracle: Oracle) -> Localised:
    """The first rung that shows the same failure, of those below the case's own backend, which does. Raises Stopped."""
    own = _name(case.settings.backend)
    stages = _below(own)
    rungs = []
    verdicts = oracle.judge_in_order([_on(case, stage) for stage in stages], signature)
    for stage, verdict in zip(stages, verdicts, strict=True):
        rungs.append(Rung(stage.name, stage.backend, verdict.outcome.value))
        if verdict.outcome is Outcome.FAILS:
            return Localised(stage.name, tuple(rungs))
    rungs.append(Rung(_last(own), own, Outcome.FAILS.value))
    return Localised(_last(own), tuple(rungs))


def _below(own: str) -> tuple[Stage, ...]:
    """The rungs that a backend stands on. What a backend of the user's own goes through is known only up to Dynamo."""
    if own == "inductor":
        return STAGES
    place = next((place for place, stage in enumerate(STAGES) if stage.backend == own), 1)
    return STAGES[:place]


def _on(case: Case, stage: Stage) -> Case:
    """`case` compiled by another backend; Inductor's own mode and options mean nothing to it."""
    return dataclasses.replace(
        case, settings=dataclasses.replace(case.settings, backend=stage.backend, mode=None, options=())
    )


def _name(backend: Arg) -> str:
    return backend if isinstance(backend, str) else str(getattr(backend, "text", backend))


def _last(own: str) -> str:
    known = {stage.backend: stage.name for stage in STAGES} | {"inductor": "Inductor"}
    return known.get(own, f"backend {own}")
