"""What it costs to say what a failure needs of the compiler, and that it ends when the run has to."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from minify.ablation import Ablation
from minify.attempt import Attempt
from minify.case import Case
from minify.diagnosis import diagnose
from minify.errors import Stopped
from minify.localize.inside import KINDS, QUESTIONS
from minify.localize.stages import STAGES
from minify.runs import Request, RunFolder, StopFlag
from minify.verdict import Divergence, GraphSeen, Signature, Verdict
from tests.fake_oracle import FakeCompiler, FakeOracle
from tests.reducing import RAISES, WRONG_VALUE, line

MOST_COMPILES, MOST_OF_THE_LADDER = 40, 12
MANY = {kind.name: tuple(f"n{place}" for place in range(60)) for kind in KINDS if "Inductor" in kind.stages}
# Each feature that a rung is there for.
CASE = line("torch.neg", "torch.exp")
CASE = dataclasses.replace(CASE, settings=dataclasses.replace(CASE.settings, mode="max-autotune"))


class Everything(FakeOracle):
    """An oracle of a program that fails at Inductor and needs `names` of its parts; `compiles` are all, those ahead included."""

    def __init__(self, names: Iterable[str], width: int, stop_after: int = 1000, **how: Any) -> None:
        super().__init__(lambda case: case.settings.backend == "inductor" and case.settings.mode != "lite", width)
        self.looks = 0
        needed = set(names)

        def rule(on: frozenset[str]) -> bool:
            if self.compiles >= stop_after:
                raise Stopped("budget")
            return needed <= on

        self.compiler = FakeCompiler(MANY, rule, width=width, **how)

    @property
    def compiles(self) -> int:
        return self.computed + self.compiler.computed + self.looks

    def graphs(self, case: Case) -> tuple[GraphSeen, ...]:
        self.looks += 2  # as it is, and with every value returned
        return (GraphSeen("forward", Divergence("neg", "value"), "exp", "aten.exp.default"),)

    def wrong_kernel(self, case: Case) -> None:
        self.looks += 1

    def write_artifacts(self, case: Case, ablation: Ablation | None, folder: Path) -> None:
        self.looks += 1
        folder.mkdir(parents=True)

    def judge_ablated(self, case: Case, ablations: Iterable[Ablation], signature: Signature) -> Iterator[Verdict]:
        return self.compiler.judge_ablated(case, ablations, signature)


class Quiet:
    def step(self, text: str) -> None:
        return None

    def searching(self, session: object) -> None:
        return None


def attempt(oracle: Everything, folder: Path) -> Attempt:
    return Attempt(Request("accuracy", "/s.py"), RunFolder(folder), cast(Any, oracle), StopFlag(), Quiet())


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize(
    "names",
    [
        ["fusion:n7"],
        ["codegen:n1", "codegen:n30", "codegen:n59"],
        [f"lowering:n{place}" for place in range(0, 60, 3)],
        [f"{kind}:n{place}" for kind in MANY for place in (5, 50)],
    ],
)
def test_the_ladder_and_the_look_inside_take_40_compiles_at_most_those_ahead_included(
    names: list[str], width: int, tmp_path: Path
) -> None:
    for signature, how in ((WRONG_VALUE, {}), (RAISES, {"dies": "running"}), (RAISES, {"dies": "compiling"})):
        oracle = Everything(names, width, **how)
        found = diagnose(attempt(oracle, tmp_path), CASE, signature)
        assert found.inside and found.located.stage == "Inductor" and len(found.located.rungs) == len(STAGES)
        assert oracle.computed <= MOST_OF_THE_LADDER and oracle.compiles <= MOST_COMPILES
        assert oracle.compiler.computed <= QUESTIONS


@pytest.mark.parametrize("width", [1, 4])
def test_one_of_60_parts_is_named_within_the_bound(width: int, tmp_path: Path) -> None:
    found = diagnose(attempt(Everything(["fusion:n47"], width), tmp_path), CASE, WRONG_VALUE)
    assert found.culprit == "fusion n47 (about n47)"


def test_a_run_out_of_budget_asks_no_more_and_keeps_the_stage(tmp_path: Path) -> None:
    oracle = Everything(["fusion:n7"], 1, stop_after=15)
    found = diagnose(attempt(oracle, tmp_path), CASE, WRONG_VALUE)
    assert (found.located.stage, found.inside, found.stopped) == ("Inductor", None, "budget")
    assert oracle.compiles == 15
