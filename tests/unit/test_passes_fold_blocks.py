"""Folding repeated blocks: bypassing ops from further off than their operands."""

from __future__ import annotations

from pathlib import Path

import pytest

from minify import case as cases
from minify.case import Case, Op, Ref
from minify.passes.contract import Site
from minify.passes.fold_blocks import FOLD_BLOCKS
from minify.passes.wellformed import faults
from tests.cases import build, chain, op, show, tensor
from tests.reducing import run_reduction, unscreened

WIDE = tensor((16, 16))


def bottlenecks(count: int) -> Case:
    """exp, then blocks that go up to another shape, change it, and come down again; then relu."""
    ops: list[Op] = [op("first", "torch.exp", Ref("x"))]
    for number in range(count):
        before = ops[-1].name
        ops += [
            op(f"up{number}", "torch.kron", Ref(before), Ref("w"), meta=WIDE),
            op(f"act{number}", "torch.tanh", Ref(f"up{number}"), meta=WIDE),
            op(f"down{number}", "torch.mm", Ref(f"act{number}"), Ref("v")),
        ]
    return build(["x", "w", "v"], [*ops, op("last", "torch.relu", Ref(ops[-1].name))], ["last"])


def acts_between(case: Case) -> int | None:
    """How many tanh a value goes through from an exp to a relu; None where none gets there."""
    through: dict[str, int] = {}
    for call in case.graph.ops:
        counts = [through[name] for name in cases.op_refs(call) if name in through]
        if call.target == "torch.exp":
            through[call.name] = 0
        elif counts:
            through[call.name] = max(counts) + (call.target == "torch.tanh")
            if call.target == "torch.relu":
                return through[call.name]
    return None


FOLDS: list[tuple[str, Case, tuple[Site, ...]]] = [
    ("the end of a block by that of the one before", bottlenecks(2), (("down1", "down0"), ("act1", "act0"))),
    ("what goes in where there is no block before", bottlenecks(1), (("down0", "first"),)),
]


@pytest.mark.parametrize(("what", "case", "sites"), FOLDS, ids=[what for what, _, _ in FOLDS])
def test_what_is_folded(what: str, case: Case, sites: tuple[Site, ...]) -> None:
    found = FOLD_BLOCKS.find(case)
    assert set(sites) <= set(found)
    for site in sites:
        assert not faults(FOLD_BLOCKS.rewrite(case, (site,)))


def test_a_block_goes_with_all_that_only_it_needed() -> None:
    folded = FOLD_BLOCKS.rewrite(bottlenecks(1), (("down0", "first"),))
    assert show(folded) == "x | first = torch.exp(x); last = torch.relu(first) | last"


def test_what_an_operand_can_bypass_is_left_to_that() -> None:
    assert FOLD_BLOCKS.find(chain("x", ("torch.exp",), ("torch.neg",), ("torch.relu",))) == ()


@pytest.mark.parametrize("needed", [0, 1, 3])
def test_of_many_blocks_as_many_are_left_as_the_failure_needs(needed: int, tmp_path: Path) -> None:
    def fails(case: Case) -> bool:
        acts = acts_between(case)
        return acts is not None and acts >= needed

    run = run_reduction(bottlenecks(12), unscreened(fails), tmp_path)
    assert (acts_between(run.reduction.case), run.reduction.one_minimal) == (needed, True)
    assert run.targets.count("torch.exp") == run.targets.count("torch.relu") == 1
    assert len(run.targets) <= 2 + 3 * needed
