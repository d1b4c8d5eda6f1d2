"""ATen calls written as torch calls must mean the same: each row is run both ways, eagerly."""

from __future__ import annotations

import pytest
import torch

from minify.case import Arg, Const, ListArg, Op, Ref, size
from minify.interpret import run_op
from minify.passes.aten_names import FUNCTIONAL_FUNCTIONS, METHODS, RENAMED, TORCH_FUNCTIONS
from minify.passes.effects import base_name
from minify.passes.idiomatic_calls import IDIOMATIC_CALLS, SPECIAL, idiomatic
from tests.cases import build, show, show_call

X, W, INDEX = Ref("x"), Ref("w"), Ref("i")
F = "torch.nn.functional."


def aten(name: str, *args: Arg, **kwargs: Arg) -> Op:
    return Op("o", f"torch.ops.aten.{name}", args, tuple(kwargs.items()))


def ints(*items: int) -> ListArg:
    return ListArg(items)


PAIRS = [
    (aten("add.Tensor", X, X, alpha=2), "torch.add(x, x, alpha=2)"),
    (aten("mm.default", X, W), "torch.mm(x, w)"),
    (aten("addmm.default", W, X, W), None),
    (aten("relu.default", X), "torch.relu(x)"),
    (aten("sum.dim_IntList", X, ints(1), True), "torch.sum(x, ListArg(items=(1,)), True)"),
    (aten("mean.dim", X, ints(0, 1)), "torch.mean(x, ListArg(items=(0, 1)))"),
    (aten("max.dim", X, 1), "torch.max(x, 1)"),
    (aten("cat.default", ListArg((X, X)), 1), None),
    (aten("var.correction", X, ints(1), correction=1, keepdim=True), None),
    (aten("native_layer_norm.default", X, ints(4), None, None, 1e-5), None),
    (aten("select.int", X, 0, 1), "torch.select(x, 0, 1)"),
    (aten("gelu.default", X, approximate="tanh"), F + "gelu(x, approximate='tanh')"),
    (aten("view.default", X, ints(2, 2, 4)), ".view(x, ListArg(items=(2, 2, 4)))"),
    (aten("permute.default", X, ints(1, 0)), ".permute(x, ListArg(items=(1, 0)))"),
    (aten("t.default", X), ".t(x)"),
    (aten("transpose.int", X, 0, 1), ".transpose(x, 0, 1)"),
    (aten("expand.default", X, ints(2, 4, 4)), None),
    (aten("unsqueeze.default", X, 0), ".unsqueeze(x, 0)"),
    (aten("add_.Tensor", X, 1), ".add_(x, 1)"),
    (aten("copy_.default", X, W), ".copy_(x, w)"),
    (aten("_unsafe_view.default", X, ints(16)), ".view(x, ListArg(items=(16,)))"),
    (aten("_softmax.default", X, -1, False), "torch.softmax(x, -1)"),
    (aten("_log_softmax.default", X, 1, False), "torch.log_softmax(x, 1)"),
    (
        aten("_to_copy.default", X, dtype=Const("torch.float16"), layout=Const("torch.strided")),
        ".to(x, dtype=torch.float16, copy=True)",
    ),
    (aten("embedding.default", X, INDEX), F + "embedding(i, x)"),
    (aten("embedding.default", X, INDEX, 1), F + "embedding(i, x, 1)"),
    (aten("embedding.default", X, INDEX, -1, False, False), F + "embedding(i, x)"),
    (aten("index.Tensor", X, ListArg((INDEX,))), "operator.getitem(x, i)"),
    (aten("index.Tensor", X, ListArg((None, INDEX))), None),
    (aten("index_put.default", X, ListArg((INDEX,)), Ref("one")), ".index_put(x, (i), one)"),
    (aten("mse_loss.default", X, W), F + "mse_loss(x, w)"),
    (aten("mse_loss.default", X, W, 2), F + "mse_loss(x, w, reduction='sum')"),
    (
        aten(
            "convolution.default",
            Ref("image"),
            Ref("kernel"),
            None,
            ints(1, 1),
            ints(0, 0),
            ints(1, 1),
            False,
            ints(0, 0),
            1,
        ),
        None,
    ),
    (
        aten(
            "convolution.default",
            Ref("image"),
            Ref("kernel"),
            None,
            ints(1, 1),
            ints(0, 0),
            ints(1, 1),
            True,
            ints(0, 0),
            1,
        ),
        None,
    ),
    (
        aten("max_pool2d_with_indices.default", Ref("image"), ints(2, 2)),
        F + "max_pool2d(image, ListArg(items=(2, 2)), return_indices=True)",
    ),
    (aten("slice.Tensor", X, 0, 1, 3), None),
    (aten("slice.Tensor", X, 1, 0, 2**63 - 1, 2), None),
    (aten("slice.Tensor", X), None),
    (aten("linalg_vector_norm.default", X), "torch.linalg.vector_norm(x)"),
]


def values() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(4, 4)
    return {
        "x": x,
        "w": torch.randn(4, 4),
        "i": torch.tensor([2, 0]),
        "one": torch.tensor(1.0),
        "image": torch.randn(1, 1, 6, 6),
        "kernel": torch.randn(1, 1, 2, 2),
    }


@pytest.mark.parametrize(
    ("op", "expected"), PAIRS, ids=[f"{op.target[15:]}-{row}" for row, (op, _) in enumerate(PAIRS)]
)
def test_it_means_the_same(op: Op, expected: str | None) -> None:
    plain = idiomatic(op)
    assert plain is not None
    assert expected in (None, f"{plain.target}({show_call(plain)})")
    before, after = values(), values()
    torch.testing.assert_close(run_op(plain, after), run_op(op, before), rtol=0, atol=0, check_stride=True)
    torch.testing.assert_close(after, before, rtol=0, atol=0)


STAY = [
    Op("o", "torch.relu", (X,)),
    Op("o", ".view", (X, 4)),
    Op("o", "torch.ops.prims.convert_element_type.default", (X, Const("torch.float16"))),
    aten("slice.Tensor", X, -1, 1, 2),
    aten("add.out", X, X, out=X),
    aten("_to_copy.default", X, pin_memory=True),
    aten("embedding.default", X, INDEX, -1, True, False),
    aten("huber_loss.default", X, W, 1, 2.0),
    aten("index_put.default", X, ListArg((None, INDEX)), X),
    aten("native_layer_norm_backward.default", X),
]


@pytest.mark.parametrize("op", STAY, ids=[f"{op.target}-{row}" for row, op in enumerate(STAY)])
def test_it_stays(op: Op) -> None:
    assert idiomatic(op) is None


def test_every_name_in_the_tables_exists_on_both_sides() -> None:
    for name in (*TORCH_FUNCTIONS, *FUNCTIONAL_FUNCTIONS, *METHODS, *RENAMED, *SPECIAL):
        assert hasattr(torch.ops.aten, name), name
    for name in TORCH_FUNCTIONS:
        assert hasattr(torch, name), name
    for name in FUNCTIONAL_FUNCTIONS:
        assert hasattr(torch.nn.functional, name), name
    for name in (*METHODS, *(target[1:] for target in RENAMED.values() if target.startswith("."))):
        assert hasattr(torch.Tensor, name), name


def test_only_the_chosen_calls_change() -> None:
    ops = [Op("a", "torch.ops.aten.relu.default", (X,)), Op("b", "torch.ops.aten.exp.default", (Ref("a"),))]
    case = build(["x"], ops, ["b"], level="aten")
    assert IDIOMATIC_CALLS.find(case) == (("a",), ("b",))
    plainer = IDIOMATIC_CALLS.rewrite(case, (("b",),))
    assert show(plainer) == "x | a = torch.ops.aten.relu.default(x); b = torch.exp(a) | b"
    assert size(plainer) < size(case)


def test_a_base_name_leaves_the_overload_out() -> None:
    assert base_name("torch.ops.aten.add_.Tensor") == "add_"
    assert base_name("torch.ops.aten.add_") == "add_"
    assert base_name(".view") == "view"
