"""What torch's `CompilerBisector` may rightly answer of a program, by the stage and the application that are to blame.

Judges answers; asks nothing. It has fewer names than there are places for a fault: where it has none, the backend alone is right.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from scripts.corpus_judge import Expected

RIGHT, WRONG, NO_ANSWER = "right", "wrong", "no answer"
HEALTHY = "no divergence"
ANY = None  # whatever subsystem, or none


@dataclass(frozen=True)
class Place:
    """Where a fault lies, by patterns of the two keys of `expected.toml`, and the answers that name it: the backend, and the
    subsystems, `""` for none."""

    stage: str
    inside: str
    backend: str
    subsystems: tuple[str, ...] | None


_PASSES = tuple(f"{stage}_passes" for stage in ("pre_grad", "joint_graph", "post_grad"))
PLACES: tuple[Place, ...] = (
    Place(r"Dynamo", "", "eager", ANY),
    Place(r"AOTAutograd", "", "aot_eager", ANY),
    Place(r"decompositions", r"\bcse\b", "aot_eager_decomp_partition", ("aot_eager_decomp_partition_cse",)),
    Place(r"decompositions", r"partitioning", "aot_eager_decomp_partition", ("",)),
    Place(r"decompositions", "", "aot_eager_decomp_partition", ("decomposition",)),
    Place(r"Inductor", r"\bpre_grad", "inductor", ("pre_grad_passes",)),
    Place(r"Inductor", r"\bjoint", "inductor", ("joint_graph_passes",)),
    Place(r"Inductor", r"\bpost_grad", "inductor", ("post_grad_passes",)),
    Place(
        r"Inductor", r"\b(pass|pattern match)\b", "inductor", _PASSES
    ),  # which pass looks for a pattern is not written down
    Place(r"Inductor", r"precision", "inductor", ("inductor_emulate_precision_casts",)),
    Place(r"Inductor", r"layout_optimization", "inductor", ("inductor_layout_optimization",)),
    Place(r"Inductor", r"comprehensive_padding", "inductor", ("inductor_comprehensive_padding",)),
    Place(r"Inductor", r"lowering", "inductor", ("lowerings",)),
    # It has no name for how kernels are fused, inlined, given memory and written; what it knows of these is what is lowered.
    Place(r"Inductor", r"inlining|fusion|memory|code generation", "inductor", ("", "lowerings")),
    Place(r"Inductor", r"partitioning", "inductor", ("",)),
    Place(r"Inductor.*", "", "inductor", ANY),
    Place(r"max-autotune|CUDA graphs", "", "inductor", ANY),
)


def place_of(expected: Expected) -> Place | None:
    """None for a backend of the user's own and for a healthy program: it has no name for these."""
    inside = " ".join(expected.inside)
    return next(
        (place for place in PLACES if re.fullmatch(place.stage, expected.stage) and re.search(place.inside, inside)),
        None,
    )


def verdict(expected: Expected, answer: dict[str, Any]) -> str:
    """RIGHT, WRONG or NO_ANSWER: nothing is found, or the backend alone where it has a name for the subsystem. That a healthy
    program has nothing to find is an answer."""
    backend, subsystem = str(answer.get("backend") or ""), str(answer.get("subsystem") or "")
    if answer.get("error"):
        return NO_ANSWER
    if not backend:
        return RIGHT if expected.stage == HEALTHY else NO_ANSWER
    place = place_of(expected)
    if place is None or backend != place.backend:
        return WRONG
    if place.subsystems is ANY or subsystem in place.subsystems:
        return RIGHT
    return WRONG if subsystem else NO_ANSWER


def told(answer: dict[str, Any]) -> str:
    """The answer in a few words."""
    if answer.get("error"):
        return str(answer["error"])[:80]
    words = (str(answer.get(key) or "") for key in ("backend", "subsystem", "debug_info"))
    return ": ".join(dict.fromkeys(filter(None, words))) or "nothing found"
