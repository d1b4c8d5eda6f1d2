"""What calls do to memory, read off their names and arguments."""

from __future__ import annotations

import pytest

from minify.case import ListArg, Op, OpaqueMeta, Ref, ScalarMeta
from minify.passes.effects import is_barrier, returned_operand, written

X, Y, Z = Ref("x"), Ref("y"), Ref("z")


def call(target: str, *args: object, **kwargs: object) -> Op:
    return Op("o", target, args, tuple(kwargs.items()))  # type: ignore[arg-type]


WRITES = [
    (call(".add_", X, Y), ("x",), "x"),
    (call("torch.relu_", X), ("x",), "x"),
    (call("torch.ops.aten.add_.Tensor", X, Y), ("x",), "x"),
    (call("operator.iadd", X, Y), ("x",), "x"),
    (call("operator.setitem", X, 0, Y), ("x",), None),
    (call(".__setitem__", X, 0, Y), ("x",), None),
    (call("torch._foreach_div_", ListArg((X, Y)), Z), ("x", "y"), None),
    (call("torch.nn.functional.relu", X, inplace=True), ("x",), "x"),
    (call("torch.nn.functional.dropout", X, 0.5, True, True), ("x",), "x"),
    (call("torch.exp", X, out=Y), ("y",), "y"),
    (call("torch.nn.functional.batch_norm", X, Y, Z, None, None, True), ("y", "z"), None),
    (call("torch.nn.functional.batch_norm", X, running_mean=Y, running_var=Z, training=True), ("y", "z"), None),
]


@pytest.mark.parametrize(("op", "names", "same"), WRITES, ids=[op.target for op, _, _ in WRITES])
def test_it_writes_to(op: Op, names: tuple[str, ...], same: str | None) -> None:
    assert written(op) == names
    assert returned_operand(op) == same


@pytest.mark.parametrize(
    "op",
    [
        call("torch.relu", X),
        call("operator.and_", X, Y),
        call("operator.invert", X),
        call(".__and__", X, Y),
        call("torch.nn.functional.relu", X, inplace=False),
        call("torch.nn.functional.dropout", X, 0.5, True, False),
        call("torch.nn.functional.batch_norm", X, Y, Z, None, None, False),
        call("torch.ops.aten.add.Tensor", X, Y),
    ],
    ids=lambda op: op.target,
)
def test_it_writes_to_nothing(op: Op) -> None:
    assert written(op) == ()
    assert returned_operand(op) is None


def test_calls_that_return_nothing_or_a_context_act_on_something_else() -> None:
    assert is_barrier(Op("o", "torch._C._set_grad_enabled", (False,), meta=ScalarMeta(None)))
    assert is_barrier(Op("o", "torch.amp.autocast_mode._enter_autocast", ("cpu",), meta=OpaqueMeta("autocast")))
    assert not is_barrier(Op("o", "operator.setitem", (X, 0, 1), meta=ScalarMeta(None)))
    assert not is_barrier(Op("o", ".item", (X,), meta=ScalarMeta(1.0)))


def test_a_custom_op_may_write_without_saying_so_and_torchs_own_say_it() -> None:
    assert is_barrier(call("torch.ops.mine.count.default", X))
    assert not is_barrier(call("torch.ops.aten.sum.default", X))
