"""What the tests of the reduction share: programs with a hidden cause, and one reduction of them from start to end."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from minify.case import Case, Derived, Input, Ref, digest, size
from minify.errors import InvalidCandidate
from minify.passes import PASSES, Pass
from minify.reduce import Reduction, Session, reduce
from minify.verdict import Observation, Outcome, Signature
from tests.cases import RECORDED, build, op
from tests.fake_oracle import FakeOracle

WRONG_VALUE = Signature("accuracy", "value", "value")
RAISES = Signature("crash", "exception", "LoweringError", "lowering.py:lower")
HANG_SIGNATURE = Signature("crash", "hang", "hang")
Answer = Callable[[Case], "bool | Outcome | Observation"]


def line(*targets: str) -> Case:
    """A program in which each op reads the one before; op `n3` is the one at place 3."""
    names = [f"n{place}" for place in range(len(targets))]
    calls = [
        op(name, target, Ref(before)) for name, target, before in zip(names, targets, ["x", *names[:-1]], strict=True)
    ]
    return build(["x"], calls, names[-1:])


def tree_sum(leaves: int) -> Case:
    """A balanced tree of additions over `leaves` ops of one input, the ops being `leaf0`, `leaf1`..."""
    calls = [op(f"leaf{place}", "torch.neg", Ref("x")) for place in range(leaves)]
    layer = [call.name for call in calls]
    while len(layer) > 1:
        pairs = list(zip(layer[::2], layer[1::2], strict=True))
        fresh = [
            op(f"sum{leaves}_{len(calls) + place}", "torch.add", Ref(a), Ref(b)) for place, (a, b) in enumerate(pairs)
        ]
        calls += fresh
        layer = [call.name for call in fresh]
    return build(["x"], calls, layer)


def needs(*names: str) -> Callable[[Case], bool]:
    """Fails for as long as all the named ops are there."""
    wanted = frozenset(names)
    return lambda case: wanted <= {call.name for call in case.graph.ops}


def needs_targets(*targets: str) -> Callable[[Case], bool]:
    wanted = frozenset(targets)
    return lambda case: wanted <= {call.target for call in case.graph.ops}


def is_screen(case: Case) -> bool:
    """Whether all ops of `case` are independent one-op programs made by the screen."""
    return any(call.name.endswith("__alone") for call in case.graph.ops)


def unscreened(rule: Callable[[Case], bool]) -> Callable[[Case], bool]:
    """`rule`, with screens that show nothing."""
    return lambda case: not is_screen(case) and rule(case)


def recorded(case: Case) -> Case:
    """What an oracle's `materialise` gives, without running anything."""
    inputs = (
        dataclasses.replace(item, value=RECORDED)
        if isinstance(item, Input) and isinstance(item.value, Derived)
        else item
        for item in case.inputs
    )
    return dataclasses.replace(case, inputs=tuple(inputs))


@dataclasses.dataclass
class Run:
    """One finished reduction and all it left behind."""

    reduction: Reduction
    session: Session
    oracle: FakeOracle
    folder: Path

    @property
    def targets(self) -> list[str]:
        return [call.target for call in self.reduction.case.graph.ops]

    @property
    def journal(self) -> list[dict[str, Any]]:
        path = self.folder / "journal.jsonl"
        return [json.loads(row) for row in path.read_text().splitlines()] if path.exists() else []

    def on_disk(self) -> list[Path]:
        return sorted((self.folder / "accepted").glob("*.case"))


def run_reduction(
    case: Case,
    answer: Answer,
    folder: Path,
    *,
    signature: Signature = WRONG_VALUE,
    passes: Sequence[Pass] = PASSES,
    width: int = 1,
    caching: bool = True,
    stop_after: int | None = None,
) -> Run:
    """Reduce `case`, whose failure is `answer`, and check that every accepted case derives from bases that were saved."""
    oracle = FakeOracle(answer, width=width, caching=caching, stop_after=stop_after)
    folder.mkdir(exist_ok=True)
    bases: set[str] = set()
    session = Session(
        case, Observation("done"), signature, oracle, folder, save_base=lambda base: bases.add(digest(base))
    )
    reduction = reduce(session, passes, recorded)
    asked = [item.value for one in oracle.asked for item in one.inputs if isinstance(item, Input)]
    assert {value.base for value in asked if isinstance(value, Derived)} <= bases
    return Run(reduction, session, oracle, folder)


def smaller_by_one_site(case: Case, rule: Callable[[Case], bool], passes: Sequence[Pass] = PASSES) -> list[str]:
    """Passes that could still take a step: one site edited gives a strictly smaller case that fails."""
    found = []
    for edit in passes:
        for site in edit.find(case):
            try:
                candidate = edit.rewrite(case, (site,))
            except InvalidCandidate:
                continue
            if size(candidate) < size(case) and rule(candidate):
                found.append(f"{edit.name}: {site}")
    return found
