"""The files that a compile leaves its artifacts in: what each is called, and how the name is read back.

Plain data, lowest layer. `torch_internals.artifacts` writes them, `localize.evidence` compares them.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

PROGRAM = "program"
DYNAMO = "Dynamo graph"
BACKEND = "graph of the backend"
BEFORE_PRE_GRAD, PRE_GRAD = "graph before pre-grad passes", "graph after pre-grad passes"
TRACED_JOINT = "joint ATen graph"
BEFORE_JOINT, JOINT = "graph before joint passes", "graph after joint passes"
ATEN = "ATen graph"
BEFORE_POST_GRAD, POST_GRAD = "graph before post-grad passes", "graph after post-grad passes"
UNFUSED, FUSED = "scheduler IR before fusion", "scheduler IR after fusion"
CODE = "output code"
GRAPHS = (
    DYNAMO,
    BACKEND,
    BEFORE_PRE_GRAD,
    PRE_GRAD,
    TRACED_JOINT,
    BEFORE_JOINT,
    JOINT,
    ATEN,
    BEFORE_POST_GRAD,
    POST_GRAD,
)
KINDS = (PROGRAM, *GRAPHS, UNFUSED, FUSED, CODE)
PARTS = ("forward", "backward")
PER_PART = (ATEN, BEFORE_POST_GRAD, POST_GRAD, UNFUSED, FUSED, CODE)
_KIND = {re.sub(r"\W+", "_", kind): kind for kind in KINDS}
_NAME = re.compile(rf"(\d+)\.({'|'.join(_KIND)})(?:\.(\w+))?\.txt")


@dataclasses.dataclass(frozen=True, slots=True)
class Artifact:
    """What a compile made of a program at one point, in `path`. `part` says of which graph: `forward` or `backward` of a program
    with both, a number where there are several for another reason, "" for the first or only one."""

    number: int
    kind: str
    part: str
    path: Path

    def __str__(self) -> str:
        return f"{self.kind}, {self.part}" if self.part else self.kind

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.part


def file_name(number: int, kind: str, part: str) -> str:
    slug = re.sub(r"\W+", "_", kind)
    return f"{number:02}.{slug}{f'.{part}' if part else ''}.txt"


def written_in(folder: Path) -> tuple[Artifact, ...]:
    """The artifacts in `folder`, in the order in which the compiler came to them."""
    found = []
    for path in folder.glob("*.txt") if folder.is_dir() else ():
        if match := _NAME.fullmatch(path.name):
            number, slug, part = match.groups()
            found.append(Artifact(int(number), _KIND[slug], part or "", path))
    return tuple(sorted(found, key=lambda artifact: artifact.number))
