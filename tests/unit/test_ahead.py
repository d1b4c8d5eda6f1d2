"""What is asked of a region while the script still compiles it is what a search asks of it first."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from minify import case as cases
from minify.ahead import asking_ahead
from minify.attempt import Attempt
from minify.case import Case
from minify.errors import Stopped, WorkerBug
from minify.reduce import Session, find_alone
from minify.runs import Request, RunFolder
from minify.verdict import Observation, Signature
from tests.cases import build, given, tensor
from tests.fake_oracle import FakeOracle
from tests.reducing import line

WRONG = Signature("accuracy", "value", "value")
CHAIN = line(*["torch.neg"] * 8, "torch.relu")


class Ahead(FakeOracle):
    def __init__(self, *raised: BaseException) -> None:
        super().__init__(lambda case: False)
        self.raised = list(raised)
        self.ahead: list[Case] = []

    def trace(self, case: Case) -> Observation:
        if self.raised:
            raise self.raised.pop()
        return Observation("reference")

    def ask_ahead(self, case: Case) -> None:
        self.ahead.append(case)


def asked(folder: Path, oracle: Ahead, *regions: Case) -> list[Case]:
    request = Request("accuracy", "model.py")
    this = Attempt(request, RunFolder(folder), cast(Any, oracle), cast(Any, None), cast(Any, SimpleNamespace()))
    with asking_ahead(this) as compiles:
        for number, region in enumerate(regions):
            cases.save(region, folder / f"{number}.case")
            compiles(folder / f"{number}.case")
    return oracle.ahead


def test_it_is_the_first_question_of_the_search(tmp_path: Path) -> None:
    (ahead,) = asked(tmp_path, Ahead(), CHAIN)
    oracle = FakeOracle(lambda case: False)
    find_alone(Session(CHAIN, Observation(""), WRONG, oracle, tmp_path, lambda base: None))
    assert cases.digest(ahead) == cases.digest(oracle.asked[0])


def test_of_few_ops_or_of_a_program_in_half_precision_nothing_is_asked(tmp_path: Path) -> None:
    half = build([given("x", tensor((4,), "bfloat16"))], CHAIN.graph.ops, ["n8"])
    assert asked(tmp_path, Ahead(), line("torch.neg", "torch.relu"), half) == []


@pytest.mark.parametrize("raised", [Stopped("budget"), WorkerBug("lost")])
def test_a_guess_that_comes_to_nothing_harms_nobody(raised: BaseException, tmp_path: Path) -> None:
    assert len(asked(tmp_path, Ahead(raised), CHAIN, CHAIN)) == 1
