"""Two ops at a time, of the few that are left."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from minify.case import Case, Op
from minify.errors import InvalidCandidate
from minify.passes.contract import Pass
from minify.passes.cut_ops import CUT_OPS
from minify.passes.cut_pairs import CUT_PAIRS
from minify.reduce import Session, _round
from minify.verdict import Observation
from tests.fake_oracle import FakeOracle
from tests.reducing import WRONG_VALUE, line, recorded

NAMES = ("torch.relu", "torch.exp", "torch.neg", "torch.abs", "torch.sin", "torch.cos", "torch.tan")


@pytest.mark.parametrize("count", range(1, 8))
def test_every_pair_is_offered_from_three_ops_to_six(count: int) -> None:
    case = line(*NAMES[:count])
    wanted = list(combinations([f"n{place}" for place in range(count)], 2)) if 3 <= count <= 6 else []
    assert list(CUT_PAIRS.find(case)) == wanted


def test_a_pair_is_cut_and_what_read_it_reads_an_input() -> None:
    case = line(*NAMES[:4])
    smaller = CUT_PAIRS.rewrite(case, (("n1", "n2"),))
    assert [call.target for call in smaller.graph.ops] == ["torch.relu", "torch.abs"]


def test_cutting_all_there_is_makes_no_sense() -> None:
    with pytest.raises(InvalidCandidate):
        CUT_PAIRS.rewrite(line(*NAMES[:2]), (("n0", "n1"),))


def test_two_ops_that_go_only_together_go(tmp_path: Path) -> None:
    def together(case: Case) -> bool:
        names = {call.name for call in case.graph.ops}
        return {"n0", "n2"} <= names and ("n1" in names) == ("n3" in names)

    session = Session(
        line(*NAMES[:4]), Observation("done"), WRONG_VALUE, FakeOracle(together), tmp_path, lambda base: None
    )
    assert [call.name for call in _rounds(session, (CUT_OPS,))] == ["n0", "n1", "n2", "n3"]
    assert [call.name for call in _rounds(session, (CUT_OPS, CUT_PAIRS))] == ["n0", "n2"]


def _rounds(session: Session, passes: tuple[Pass, ...]) -> tuple[Op, ...]:
    while _round(session, passes, recorded):
        pass
    return session.best.graph.ops
