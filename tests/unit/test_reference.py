"""Eager that rounds otherwise: which values it moves, and by how much."""

from __future__ import annotations

import pytest
import torch

from minify.case import Ref
from minify.reference import forward_run
from tests.cases import build, given, op, tensor

R = Ref
X = torch.linspace(-2, 2, 32).reshape(4, 8)
ROUNDS = {
    "tanh": op("y", "torch.tanh", R("x")),
    "a sum": op("y", "torch.sum", R("x"), 1, meta=tensor((4,))),
    "a product": op("y", "operator.mul", R("x"), 0.3),
}
EXACT = {
    "relu": op("y", "torch.relu", R("x")),
    "a view": op("y", ".t", R("x"), meta=tensor((8, 4))),
    "a copy": op("y", ".clone", R("x")),
    "a maximum": op("y", "torch.amax", R("x"), 1, meta=tensor((4,))),
    "a gather": op("y", "torch.flip", R("x"), (0,)),
    "a write": op("y", ".mul_", R("x"), 0.3),
    "an integer": op("y", "torch.argmax", R("x"), 1, meta=tensor((4,), "int64")),
}


def coin(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def outcome(call: object, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """The result of one call rounded otherwise, and as it is."""
    case = build([given("x", tensor((4, 8)))], [call], ["y"])  # type: ignore[list-item]
    run = forward_run(case, lambda: (X.clone(),), coin(seed))
    plain = forward_run(case, lambda: (X.clone(),), coin(seed + 1))
    assert run is not None and plain is not None
    return run.outputs[0], plain.outputs[0]


@pytest.mark.parametrize("call", ROUNDS.values(), ids=ROUNDS)
def test_what_an_op_computes_moves_by_two_units_in_the_last_place(call: object) -> None:
    one, other = outcome(call)
    assert not torch.equal(one, other)
    unit = torch.finfo(torch.float32).eps * one.abs().double()
    assert bool(((one.double() - other.double()).abs() <= 4.01 * unit).all())


@pytest.mark.parametrize("call", EXACT.values(), ids=EXACT)
def test_what_an_op_only_picks_or_writes_stays(call: object) -> None:
    assert torch.equal(*outcome(call))


def test_the_same_seed_rounds_the_same_way() -> None:
    case = build([given("x", tensor((4, 8)))], [ROUNDS["tanh"]], ["y"])
    runs = [forward_run(case, lambda: (X.clone(),), coin(3)) for _ in range(2)]
    assert runs[0] is not None and runs[1] is not None
    assert torch.equal(runs[0].outputs[0], runs[1].outputs[0])


def test_a_program_that_raises_then_says_nothing() -> None:
    case = build([given("x", tensor((4, 8)))], [op("y", "torch.mm", R("x"), R("x"))], ["y"])
    assert forward_run(case, lambda: (X.clone(),), coin(0)) is None
