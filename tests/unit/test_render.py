"""Programs as Python text: how each call, constant and subgraph is written, and that the text means what the data means."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
import torch

from minify import interpret
from minify.graph import Arg, Const, DictArg, Graph, ListArg, Op, Ref, SliceArg, Subgraph
from minify.render import function, identifier, literal, text, text_of
from tests.cases import op

X, Y, N = Ref("x"), Ref("y"), Ref("n")
ALL = SliceArg(None, None, None)
ELLIPSIS = Const("...")


def line(target: str, *args: Arg, **kwargs: Arg) -> str:
    """The expression of one call."""
    graph = Graph(("x", "y"), (op("a", target, *args, **kwargs),), (Ref("a"),))
    return text(function(graph)).splitlines()[-1].removeprefix("    return ")


@pytest.mark.parametrize(
    ("target", "args", "kwargs", "expected"),
    [
        ("torch.relu", (X,), {}, "torch.relu(x)"),
        ("torch.nn.functional.gelu", (X,), {"approximate": "tanh"}, "F.gelu(x, approximate='tanh')"),
        ("torch.ops.aten.relu.default", (X,), {}, "torch.ops.aten.relu.default(x)"),
        ("torch.ops.mine.twice", (X, 2), {}, "torch.ops.mine.twice(x, 2)"),
        (".view", (X, -1, 2), {}, "x.view(-1, 2)"),
        (".to", (X, Const("torch.float16")), {}, "x.to(torch.float16)"),
        (".size", (X, 1), {}, "x.shape[1]"),
        (".size", (X,), {}, "x.size()"),
        ("operator.add", (X, 1), {}, "x + 1"),
        ("operator.sub", (1, X), {}, "1 - x"),
        ("operator.pow", (-2.0, X), {}, "(-2.0) ** x"),
        ("operator.pow", (X, 0.5), {}, "x ** 0.5"),
        ("operator.mul", (X, complex(1, 2)), {}, "x * (1+2j)"),
        ("operator.matmul", (X, Y), {}, "x @ y"),
        ("operator.floordiv", (X, 2), {}, "x // 2"),
        ("operator.and_", (X, Y), {}, "x & y"),
        ("operator.neg", (X,), {}, "-x"),
        ("operator.invert", (X,), {}, "~x"),
        ("operator.le", (X, Y), {}, "x <= y"),
        ("operator.truth", (X,), {}, "operator.truth(x)"),
        ("operator.add", (), {"a": X}, "operator.add(a=x)"),
        ("math.sqrt", (2,), {}, "math.sqrt(2)"),
        ("builtins.max", (N, 2), {}, "max(n, 2)"),
        ("builtins.getattr", (X, "T"), {}, "x.T"),
        ("builtins.getattr", (X, "mT"), {}, "x.mT"),
        ("operator.getitem", (X, 0), {}, "x[0]"),
        ("operator.getitem", (X, -1), {}, "x[-1]"),
        ("operator.getitem", (X, (1,)), {}, "x[1,]"),
        ("operator.getitem", (X, ()), {}, "x[()]"),
        ("operator.getitem", (X, (0, 1)), {}, "x[0, 1]"),
        ("operator.getitem", (X, (ALL, (0, 2))), {}, "x[:, (0, 2)]"),
        ("operator.getitem", (X, ListArg((0, 2))), {}, "x[[0, 2]]"),
        ("operator.getitem", (X, (ELLIPSIS, None)), {}, "x[..., None]"),
        ("operator.getitem", (X, None), {}, "x[None]"),
        ("operator.getitem", (X, True), {}, "x[True]"),
        ("operator.getitem", (X, SliceArg(1, N, 2)), {}, "x[1:n:2]"),
        ("operator.getitem", (X, (SliceArg(None, -1, None),)), {}, "x[:-1,]"),
        ("operator.getitem", (X, (SliceArg(None, None, 2), Y)), {}, "x[::2, y]"),
        ("torch.cat", (ListArg((X, Y)), -1), {}, "torch.cat([x, y], -1)"),
        ("torch.stack", ((X,),), {}, "torch.stack((x,))"),
        ("torch._foreach_add", (ListArg((X, Y)), 1.5), {}, "torch._foreach_add([x, y], 1.5)"),
        ("torch.full", ((2,), math.inf), {}, 'torch.full((2,), float("inf"))'),
        ("f", (SliceArg(0, 2, None),), {}, "f(slice(0, 2, None))"),
        ("f", (DictArg((("a", X), ("b", 1))),), {}, "f({'a': x, 'b': 1})"),
        ("f", (), {"device": Const("torch.device('cpu')")}, "f(device=torch.device('cpu'))"),
    ],
)  # fmt: skip
def test_a_call_is_written_as_a_user_would(
    target: str, args: tuple[Arg, ...], kwargs: dict[str, Arg], expected: str
) -> None:
    assert line(target, *args, **kwargs) == expected


LITERALS = [
    None, True, False, 0, 1, -7, 2**70, 0.0, -0.0, 1e-45, 1.5, 1e300, math.inf, -math.inf, math.nan, 2j, 1 - 2j, -2j,
    complex(-0.0, 0.0), complex(0.0, -0.0), complex(-0.0, -0.0), complex(-1.5, -0.0), complex(math.nan, math.inf), complex(0.0, -math.inf),
    "", "it's", 'a "b"', "new\nline",
]  # fmt: skip


def bits(value: object) -> object:
    """Tells 1, 1.0 and True apart, and -0.0 from 0.0; one NaN is like another."""
    if isinstance(value, complex):
        return ("complex", bits(value.real), bits(value.imag))
    return (type(value), struct.pack("d", value) if isinstance(value, float) else value)


@pytest.mark.parametrize("value", LITERALS, ids=repr)
def test_a_literal_evaluates_to_itself(value: Any) -> None:
    assert bits(eval(literal(value))) == bits(value)
    assert bits(eval(text_of((value, 0)))[0]) == bits(value)


@pytest.mark.parametrize("value", [value for value in LITERALS if isinstance(value, float | int | complex)], ids=repr)
def test_a_literal_keeps_its_value_as_an_operand(value: Any) -> None:
    assert bits(eval(line("operator.mul", value, value))) == bits(value * value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("L_x_", "x"),
        ("l_x_", "x"),
        ("l_self_modules_fc_parameters_weight_", "fc_weight"),
        ("L_self_modules_layers_modules_0_buffers_mean_", "layers_0_mean"),
        ("l_args_0_", "x0"),
        ("l_fn_modules_0_parameters_weight_", "x0_weight"),
        ("l_fn_x_", "fn_x"),
        ("primals_3", "p3"),
        ("tangents_1", "t1"),
        ("sum_1", "sum_1"),
        ("lambda", "lambda_"),
        ("L_lambda_", "lambda_"),
        ("L_input_", "input"),
        ("torch", "torch_"),
        ("fn", "fn_"),
        ("L_F_", "F_"),
        ("l_float_", "float_"),
        ("L_slice_", "slice_"),
        ("L_recorded_", "recorded_"),
        ("storage0", "storage0_"),
        ("a.b-c", "a_b_c"),
        ("___", "x"),
        ("0", "x0"),
    ],
)
def test_a_name_becomes_a_short_python_name(name: str, expected: str) -> None:
    assert identifier(name) == expected
    assert expected.isidentifier()


def test_names_stay_apart() -> None:
    taken: set[str] = set()
    for name in ("L_x_", "l_x_", "x", "L_self_x_", "lambda", "L_lambda_"):
        taken.add(identifier(name, taken))
    assert taken == {"x", "x_1", "x_2", "x_3", "lambda_", "lambda_1"}


# --- whole functions ----------------------------------------------------------------------------------------------------


def written(ops: list[Op], outputs: list[Arg], params: tuple[str, ...] = ("x", "y")) -> str:
    return text(function(Graph(params, tuple(ops), tuple(outputs))))


def test_one_output_is_returned_bare_and_several_side_by_side() -> None:
    call = op("a", "torch.relu", X)
    assert written([call], [Ref("a")]) == "def fn(x, y):\n    return torch.relu(x)\n"
    assert written([call], [Ref("a"), None, X]) == "def fn(x, y):\n    a = torch.relu(x)\n    return a, None, x\n"
    assert written([], []) == "def fn(x, y):\n    return None\n"
    assert written([op("a", ".add_", X, 1)], []) == "def fn(x, y):\n    x.add_(1)\n"


def test_writes_keep_their_own_syntax() -> None:
    ops = [
        op("s", "operator.setitem", X, (ALL, 0), Y),
        op("i", "operator.iadd", X, 1),
        op("m", "operator.imatmul", Y, X),
        op("z", "torch.neg", Ref("i")),
    ]
    assert written(ops, [Ref("z")]).splitlines()[1:] == [
        "    x[:, 0] = y",
        "    x += 1",
        "    i = x",
        "    y @= x",
        "    return torch.neg(i)",
    ]


ENTER, EXIT = "torch.amp.autocast_mode._enter_autocast", "torch.amp.autocast_mode._exit_autocast"
BF16 = Const("torch.bfloat16")


def test_autocast_calls_become_with_blocks() -> None:
    ops = [
        op("e", ENTER, "cpu", BF16, True, None),
        op("a", "operator.matmul", X, Y),
        op("f", ENTER, "cpu", BF16, False, None),
        op("b", "operator.matmul", X, Ref("a")),
        op("g", EXIT, Ref("f")),
        op("h", EXIT, Ref("e")),
        op("c", "torch.neg", Ref("b")),
    ]
    assert written(ops, [Ref("c")]).splitlines()[1:] == [
        '    with torch.autocast("cpu", dtype=torch.bfloat16):'.replace('"', "'"),
        "        a = x @ y",
        "        with torch.autocast('cpu', dtype=torch.bfloat16, enabled=False):",
        "            b = x @ a",
        "    return torch.neg(b)",
    ]


def test_an_autocast_region_that_is_empty_or_never_left_is_still_python() -> None:
    compile(written([op("e", ENTER, "cpu", BF16, True, None), op("h", EXIT, Ref("e"))], [X]), "", "exec")
    open_ended = written([op("e", ENTER, "cpu", BF16, True, None), op("a", "torch.neg", X)], [Ref("a")])
    assert "        a = torch.neg(x)\n    return a" in open_ended


TRUE = Graph(("v",), (op("s", "torch.sin", Ref("v")),), (Ref("s"),))
FALSE = Graph(("v",), (op("c", "torch.cos", Ref("v")),), (Ref("c"),))


def test_subgraphs_become_nested_functions_that_return_tuples() -> None:
    ops = [
        op("p", "operator.gt", Y, 0),
        op("r", "torch.cond", Ref("p"), Subgraph(TRUE), Subgraph(FALSE), (X,)),
        op("g", "operator.getitem", Ref("r"), 0),
    ]
    assert written(ops, [Ref("g")]).splitlines()[1:] == [
        "    p = y > 0",
        "    def r_body_0(v):",
        "        s = torch.sin(v)",
        "        return (s,)",
        "    def r_body_1(v):",
        "        c = torch.cos(v)",
        "        return (c,)",
        "    r = torch.cond(p, r_body_0, r_body_1, (x,))",
        "    return r[0]",
    ]


def test_a_body_that_is_bare_returns_its_only_value() -> None:
    assert "        return torch.cos(v)" in written([op("a", "f", Subgraph(FALSE, bare=True))], [Ref("a")]).splitlines()


def test_a_subgraph_deep_inside_an_argument_is_found() -> None:
    lines = written([op("a", "f", (X, Subgraph(TRUE)), g=ListArg((Subgraph(FALSE),)))], [Ref("a")]).splitlines()
    assert lines[-1] == "    return f((x, a_body_0), g=[a_body_1])"


def test_a_function_with_two_branches_runs_in_eager() -> None:
    graph = Graph(
        ("p", "x"),
        (
            op("r", "torch.cond", Ref("p"), Subgraph(TRUE), Subgraph(FALSE), (X,)),
            op("g", "operator.getitem", Ref("r"), 0),
        ),
        (Ref("g"),),
    )
    run, x = interpret.python_function(graph), torch.arange(3.0)
    assert torch.equal(run(torch.tensor(True), x), x.sin())
    assert torch.equal(run(torch.tensor(False), x), x.cos())
    assert torch.equal(interpret.run(graph, (torch.tensor(False), x))[0], x.cos())
