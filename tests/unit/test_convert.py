"""From a graph module to plain data: names, arguments, symbolic sizes, bodies, and what cannot be written down."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx
from torch._higher_order_ops import triton_kernel_wrap, while_loop
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from minify import interpret
from minify.capture import snapshot
from minify.capture.convert import Converted, Unrepresentable, convert, python_arg
from minify.graph import Arg, Const, DictArg, ListArg, Ref, SliceArg, Subgraph, rewrite_op
from tests.cases import show_call

X, W = torch.arange(12.0).view(3, 4), torch.ones(4, 2)


def captured(fn: Callable[..., Any], *inputs: Any, **how: Any) -> Converted:
    """The one graph that Dynamo makes of `fn`."""
    found: list[Converted] = []

    def record(module: fx.GraphModule, _: Any) -> Any:
        found.append(convert(module))
        return module

    torch.compiler.reset()
    try:
        torch.compile(fn, backend=record, **how)(*inputs)
    finally:
        torch.compiler.reset()
    (converted,) = found
    return converted


def calls(converted: Converted) -> list[str]:
    return [f"{op.name} = {op.target}({show_call(op)})" for op in converted.graph.ops]


def params(converted: Converted) -> list[Any]:
    return [
        (param.name, param.source, param.is_scalar, param.dynamic, param.dynamic_dims) for param in converted.params
    ]


def made(build: Callable[[fx.Graph, fx.Node], Any], **attributes: Any) -> Converted:
    """A hand-made graph of one placeholder `x`; `build` returns its outputs."""
    graph = fx.Graph()
    outputs = build(graph, graph.placeholder("x"))
    graph.output(outputs)
    return convert(fx.GraphModule(attributes, graph))


def test_methods_functions_and_operators_keep_the_names_users_know() -> None:
    converted = captured(lambda x, w: F.relu((x @ w).view(-1) + 1), X, W)
    assert calls(converted) == [
        "matmul = operator.matmul(x, w)",
        "view = .view(matmul, -1)",
        "add = operator.add(view, 1)",
        "relu = torch.nn.functional.relu(add)",
    ]
    assert params(converted) == [("x", 0, False, False, ()), ("w", 1, False, False, ())]
    assert converted.graph.outputs == (Ref("relu"),)


def test_parameters_have_short_names() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 2))
    assert captured(model, X).graph.params == ("x0_weight", "x0_bias", "x0")


def test_sizes_become_reads_of_a_shape_and_unread_ones_nothing() -> None:
    converted = captured(lambda x: x.view(x.size(1), -1), X, dynamic=True)
    assert params(converted) == [("x", 2, False, False, (0, 1))]
    assert [call.split(" = ")[1] for call in calls(converted)] == [
        ".size(x, 1)",
        f".view(x, {converted.graph.ops[0].name}, -1)",
    ]


def test_a_size_that_no_tensor_shows_becomes_a_dynamic_number() -> None:
    converted = captured(lambda x, y: x * y.size(0), X, torch.ones(7), dynamic=True)
    assert [row[2:4] for row in params(converted)] == [(True, True), (False, False)]
    assert len(converted.graph.ops) == 1


def test_an_int_stays_a_number_and_a_float_that_dynamo_wraps_becomes_one_again() -> None:
    converted = captured(lambda x, n, s: x * n + s, X, 3, 0.5, dynamic=True)
    assert [(row[0], *row[2:4]) for row in params(converted)] == [
        ("x", False, False),
        ("n", True, True),
        ("s", True, True),
    ]
    assert calls(converted) == ["mul = operator.mul(x, n)", "add = operator.add(mul, s)"]


def test_an_augmented_operator_on_a_number_makes_a_new_number() -> None:
    def grows(x: torch.Tensor, n: int) -> Any:
        m = n
        m += 1
        m *= 2
        x += m
        return x * n

    targets = [op.target for op in captured(grows, X.clone(), 3, dynamic=True).graph.ops]
    assert targets == ["operator.add", "operator.mul", "operator.iadd", "operator.mul"]


def test_both_branches_of_a_cond_are_bodies_without_sizes() -> None:
    def branch(x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda v: v * v.size(0), lambda v: v * 2, (x,))

    converted = captured(branch, X, dynamic=True)
    cond = next(op for op in converted.graph.ops if op.target == "torch.cond")
    bodies = [arg.graph for arg in cond.args if isinstance(arg, Subgraph)]
    assert [len(body.params) for body in bodies] == [1, 1]
    assert cond.args[3] == (Ref("x"),)
    assert [op.target for op in bodies[0].ops] == [".size", "operator.mul"]


MASK = create_block_mask(lambda b, h, q, k: q >= k, 1, 1, 8, 8, device="cpu")


def attends(q: torch.Tensor, bias: torch.Tensor) -> Any:
    return flex_attention(q, q, q, score_mod=lambda score, b, h, q, k: score + bias[h], block_mask=MASK)


def loops(x: torch.Tensor) -> Any:
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))


def branches(x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda v: v * 2, lambda v: v - 1, (x,))


@pytest.mark.parametrize(
    ("fn", "inputs", "bare"),
    [
        (attends, (torch.arange(128.0).view(1, 2, 8, 8) / 64, torch.ones(2)), [True, True]),
        (loops, (X,), [True, False]),
        (branches, (X,), [False, False]),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_body_returns_a_tuple_or_a_bare_value_as_its_op_wants_it(fn: Any, inputs: Any, bare: list[bool]) -> None:
    compared: list[bool] = []

    def record(module: fx.GraphModule, _: Any) -> Callable[..., Any]:
        converted = convert(module)

        def run(*args: Any) -> Any:
            expected = module(*args)
            values = [snapshot.given(param, args) for param in converted.params]
            printed = interpret.python_function(converted.graph)(*values)
            for got in (interpret.run(converted.graph, values), printed):
                flat = got if isinstance(got, tuple) else (got,)
                compared.extend(torch.equal(one, other) for one, other in zip(flat, expected, strict=True))
            found: list[bool] = []
            for op in converted.graph.ops:
                rewrite_op(op, lambda arg: found.append(arg.bare) if isinstance(arg, Subgraph) else arg)
            assert found == bare
            return expected

        return run

    torch.compiler.reset()
    torch.compile(fn, backend=record)(*inputs)
    torch.compiler.reset()
    assert compared and all(compared)


def test_a_body_with_a_constant_of_its_own_cannot_be_written_down() -> None:
    inner = fx.Graph()
    inner.output((inner.get_attr("table"),))
    body = fx.GraphModule({"table": X}, inner)
    with pytest.raises(Unrepresentable, match="constant tensor"):
        made(
            lambda graph, x: graph.call_function(
                torch.ops.higher_order.tag_activation_checkpoint, (graph.get_attr("body"), x)
            ),
            body=body,
        )


def test_constants_become_parameters() -> None:
    converted = made(
        lambda graph, x: (graph.call_function(torch.add, (x, graph.get_attr("table"))),), table=X.requires_grad_()
    )
    X.requires_grad_(False)
    assert converted.graph.params == ("x", "table")
    constant = converted.params[1].constant
    assert constant is not None
    assert not constant.requires_grad
    assert constant.data_ptr() == X.data_ptr()


def test_outputs_may_be_anything_a_graph_can_hold() -> None:
    converted = made(lambda graph, x: (x, None, 3, [x, 1.5]))
    assert converted.graph.outputs == (Ref("x"), None, 3, ListArg((Ref("x"), 1.5)))
    assert made(lambda graph, x: x).graph.outputs == (Ref("x"),)
    assert made(lambda graph, x: ()).graph.outputs == ()


def test_custom_ops_are_noted_by_namespace() -> None:
    library = torch.library.Library("convert_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    target = torch.ops.convert_test.twice.default
    converted = made(
        lambda graph, x: (graph.call_function(target, (x,)), graph.call_function(torch.ops.aten.relu.default, (x,)))
    )
    assert converted.namespaces == {"convert_test"}
    assert [op.target for op in converted.graph.ops] == [
        "torch.ops.convert_test.twice.default",
        "torch.ops.aten.relu.default",
    ]


def test_names_stay_apart_even_where_shortening_makes_them_equal() -> None:
    graph = fx.Graph()
    graph.output((graph.placeholder("L_x_"), graph.placeholder("l_x_"), graph.placeholder("lambda_")))
    assert len(set(convert(fx.GraphModule({}, graph)).graph.params)) == 3


def unnamed(x: torch.Tensor) -> torch.Tensor:
    return x


KERNEL = triton_kernel_wrap.triton_kernel_wrapper_mutation


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda graph, x: graph.call_function(lambda v: v, (x,)), "no importable name"),
        (lambda graph, x: graph.call_function(torch.relu, (range(3),)), "an argument of type range"),
        (lambda graph, x: graph.call_function(torch.relu, (x,), {"key": {1: x}}), "an argument of type immutable_dict"),
        (lambda graph, x: graph.call_module("inner", (x,)), "call_module inner"),
        (lambda graph, x: graph.get_attr("number"), "attribute number of type int"),
        (lambda graph, x: graph.call_function(KERNEL, kwargs={"kernel_idx": 0, "kwargs": {"x": x}}), "a Triton kernel"),
    ],
)
@pytest.mark.filterwarnings("ignore:Attempted to insert a")
def test_what_cannot_be_written_down_is_named(build: Callable[[fx.Graph, fx.Node], Any], told: str) -> None:
    with pytest.raises(Unrepresentable, match=told):
        made(build, inner=torch.nn.ReLU(), number=3)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (1.5, 1.5),
        (1 - 2j, 1 - 2j),
        ("cpu", "cpu"),
        (torch.float16, Const("torch.float16")),
        (torch.strided, Const("torch.strided")),
        (torch.channels_last, Const("torch.channels_last")),
        (torch.device("cuda", 1), Const("torch.device('cuda:1')")),
        (Ellipsis, Const("...")),
        (slice(1, None, 2), SliceArg(1, None, 2)),
        ((1, (2,)), (1, (2,))),
        (torch.Size((2, 3)), (2, 3)),
        ([1, 2], ListArg((1, 2))),
        ({"a": 1}, DictArg((("a", 1),))),
        (int, Const("int")),
        (bool, Const("bool")),
    ],
)
def test_a_python_value_becomes_an_argument(value: Any, expected: Arg) -> None:
    assert python_arg(value) == expected
    assert type(python_arg(value)) is type(expected)


@pytest.mark.parametrize("value", [X, object(), {1: 2}, operator.add, str, {1, 2}])
def test_a_value_without_a_written_form_is_refused(value: Any) -> None:
    with pytest.raises(Unrepresentable, match="an argument of type"):
        python_arg(value)


class Doubling(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, by: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.by = by
        return x * by

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * ctx.by * (ctx.saved_tensors[0] > 0), None


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_an_autograd_function_becomes_a_class_and_a_call() -> None:
    x = X.clone().requires_grad_()
    converted = captured(lambda x: Doubling.apply(Doubling.apply(x, 2.0), 3.0), x)
    assert [call for call in calls(converted) if ".apply" in call] == [
        "autograd_function_apply = .apply(Function0, x)",
        "autograd_function_apply_1 = .apply(Function1, getitem)",
    ]
    assert converted.definitions[0] == (
        "class Function0(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, x):\n"
        "        outs = x * 2.0\n"
        "        ctx.save_for_backward(x)\n"
        "        return (outs,)\n"
        "\n"
        "    @staticmethod\n"
        "    def backward(ctx, gradient):\n"
        "        x, = ctx.saved_tensors\n"
        "        mul = gradient * 2.0\n"
        "        gt = x > 0\n"
        "        mul_1 = mul * gt\n"
        "        return (mul_1,)\n"
    )
