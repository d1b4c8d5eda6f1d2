"""Running a graph op by op: what is let go of and when, what is noted of each value, and the reference one precision up."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

from minify import interpret, reference
from minify import lockstep as lockstep_room
from minify.case import Case, Settings
from minify.graph import (
    Arg,
    Const,
    DictArg,
    Graph,
    ListArg,
    Op,
    OpaqueMeta,
    Ref,
    ScalarMeta,
    SequenceMeta,
    SliceArg,
    Subgraph,
    TensorMeta,
)
from minify.reference import Lockstep, lockstep, raised_inputs, reference_run
from tests.cases import build, given, op, tensor

R = Ref
F16, F32, F64 = torch.float16, torch.float32, torch.float64
ENTER, EXIT = "torch.amp.autocast_mode._enter_autocast", "torch.amp.autocast_mode._exit_autocast"


def graph(ops: Sequence[Op], outputs: Sequence[Arg], params: tuple[str, ...] = ("x",)) -> Graph:
    return Graph(params, tuple(ops), tuple(outputs))


def x32() -> torch.Tensor:
    return torch.arange(1.0, 7.0)


# --- plain runs ---------------------------------------------------------------------------------------------------------


def test_each_argument_becomes_the_python_value_it_stands_for() -> None:
    env = {"a": 1, "b": 2}
    arg = (
        R("a"),
        ListArg((R("b"), 3)),
        DictArg((("k", R("a")),)),
        SliceArg(R("a"), None, 2),
        Const("torch.float16"),
        Const("..."),
        "a",
    )
    assert interpret.argument(arg, env) == (1, [2, 3], {"k": 1}, slice(1, None, 2), torch.float16, ..., "a")
    with pytest.raises(KeyError):
        interpret.argument(R("c"), env)


def test_calls_are_methods_functions_and_operators() -> None:
    ops = [
        op("a", ".view", R("x"), 2, 3),
        op("b", "operator.getitem", R("a"), (SliceArg(None, None, None), 0)),
        op("c", "torch.nn.functional.softmax", R("b"), dim=0),
        op("d", "torch.ops.aten.add.Tensor", R("c"), 1),
        op("e", "builtins.getattr", R("a"), "T"),
    ]
    got = interpret.run(graph(ops, [R("d"), R("e"), None, 3]), (x32(),))
    assert torch.equal(got[0], x32().view(2, 3)[:, 0].softmax(0) + 1)
    assert torch.equal(got[1], x32().view(2, 3).T)
    assert got[2:] == (None, 3)


def test_a_branch_is_taken_without_asking_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = [Subgraph(graph([op("r", f"torch.{name}", R("x"))], [R("r")])) for name in ("neg", "exp")]
    ops = [op("c", "torch.cond", R("p"), *bodies, (R("x"),)), op("y", "operator.getitem", R("c"), 0)]
    monkeypatch.setattr(torch, "compile", None)
    for pred, expected in ((True, -x32()), (False, x32().exp())):
        assert torch.equal(interpret.run(graph(ops, [R("y")], ("p", "x")), (torch.tensor(pred), x32()))[0], expected)


CHAIN = [op(name, "torch.add", R(of), 1) for of, name in zip("xabcde", "abcdef", strict=True)]


class Live:
    """Watches how many results are alive each time the next op is about to run."""

    def __init__(self, run_op: Callable[..., Any]) -> None:
        self.run_op = run_op
        self.made: list[weakref.ref[torch.Tensor]] = []
        self.most = 0

    def __call__(self, called: Op, env: Any, scope: Any) -> Any:
        self.most = max(self.most, sum(made() is not None for made in self.made))
        result = self.run_op(called, env, scope)
        self.made.append(weakref.ref(result))
        return result


def test_a_value_is_let_go_after_its_last_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    live = Live(interpret.run_op)
    monkeypatch.setattr(interpret, "run_op", live)
    interpret.run(graph(CHAIN, [R("f")]), (x32(),))
    assert (len(live.made), live.most) == (6, 1)
    interpret.run(graph(CHAIN, [R("f")]), (x32(),), keep=["a", "b", "c"])
    assert live.most == 4


def test_the_reference_lets_go_as_early_as_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    live = Live(interpret.run_op)
    monkeypatch.setattr(lockstep_room, "run_op", live)
    Lockstep(graph(CHAIN, [R("f")]), "fp64").run((x32(),), (x32().double(),))
    assert (len(live.made), live.most) == (12, 3)  # eager's and the reference's last, and eager's next


def test_values_that_are_returned_or_kept_stay() -> None:
    seen: list[tuple[str, ...]] = []
    ops = [*CHAIN[:2], op("unread", "torch.neg", R("a")), op("z", "torch.neg", R("b"))]
    interpret.run(graph(ops, [R("z"), R("a")]), (x32(),), before=lambda called, env: seen.append(tuple(env)))
    assert seen == [("x",), ("a",), ("a", "b"), ("a", "b"), ("a", "z")]


# --- what is noted ------------------------------------------------------------------------------------------------------


def noted(value: Any) -> Any:
    return interpret.describe(value, interpret.StorageNumbers(), "v")


def test_a_tensor_is_noted_with_its_layout() -> None:
    view = torch.zeros(4, 6, dtype=F16)[1:, ::2].t().requires_grad_()
    assert noted(view) == TensorMeta((3, 3), (2, 6), 6, "float16", "cpu", True, 0, 24)
    assert noted(torch.ones(2, dtype=torch.complex64).conj()).flags == ("conj",)
    assert noted(torch.nn.Parameter(x32())).flags == ("parameter",)


@pytest.mark.parametrize(
    ("value", "meta"),
    [
        (None, ScalarMeta(None)),
        (3, ScalarMeta(3)),
        (True, ScalarMeta(True)),
        ("cpu", ScalarMeta("cpu")),
        (torch.float16, ScalarMeta(Const("torch.float16"))),
        (torch.device("cpu"), ScalarMeta(Const("torch.device('cpu')"))),
        (torch.Size((2, 3)), SequenceMeta((ScalarMeta(2), ScalarMeta(3)))),
        ([None, (1,)], SequenceMeta((ScalarMeta(None), SequenceMeta((ScalarMeta(1),))))),
        (torch.autocast("cpu"), OpaqueMeta("autocast")),
        (torch.eye(2).to_sparse(), OpaqueMeta("Tensor")),
    ],
)  # fmt: skip
def test_other_values_are_noted_by_what_they_are(value: Any, meta: Any) -> None:
    assert noted(value) == meta


def test_values_in_one_memory_have_one_number_and_numbers_are_never_used_twice() -> None:
    numbers = interpret.StorageNumbers()
    x = x32()
    assert [numbers.number(x, "x"), numbers.number(x[2:], "y"), numbers.number(x32(), "z")] == [0, 0, 1]
    numbers.forget("x")
    assert numbers.number(x.view(2, 3), "w") == 0
    for name in "ywz":
        numbers.forget(name)
    assert numbers.number(x, "x") == 2


# --- the reference ------------------------------------------------------------------------------------------------------


def both(
    ops: Sequence[Op], outputs: Sequence[str], *values: torch.Tensor, precision: str = "fp64", params: str = "x"
) -> Lockstep:
    """Eager and reference after a run on `values`."""
    steps = Lockstep(graph(ops, [R(name) for name in outputs], tuple(params)), precision)
    steps.run(
        tuple(value.clone() for value in values), raised_inputs(tuple(value.clone() for value in values), precision)
    )
    return steps


def dtypes(values: tuple[Any, ...] | None) -> list[torch.dtype]:
    assert values is not None
    return [value.dtype for value in values]


@pytest.mark.parametrize(
    ("low", "precision", "high"),
    [
        (torch.float16, "fp32", F32),
        (torch.bfloat16, "fp32", F32),
        (torch.float16, "fp64", F64),
        (F32, "fp64", F64),
        (F32, "fp32", F32),
        (F64, "fp64", F64),
        (torch.complex64, "fp64", torch.complex128),
        (torch.int32, "fp64", torch.int32),
    ],
)
def test_the_reference_runs_one_precision_up(low: torch.dtype, precision: str, high: torch.dtype) -> None:
    steps = both([op("y", "torch.mul", R("x"), R("x"))], ["y"], x32().to(low), precision=precision)
    assert (dtypes(steps.eager), dtypes(steps.reference), steps.notes) == ([low], [high], [])


@pytest.mark.parametrize(
    "call",
    [
        op("y", ".half", R("x")),
        op("y", ".to", R("x"), Const("torch.float16")),
        op("y", ".to", R("x"), dtype=Const("torch.bfloat16")),
        op("y", ".type", R("x"), Const("torch.float16")),
        op("y", "torch.nn.functional.softmax", R("x"), 0, dtype=Const("torch.float16")),
        op("y", ".float", R("x")),
        op("y", "torch.ops.aten._to_copy.default", R("x"), dtype=Const("torch.float16")),
    ],
)
def test_casts_in_the_program_do_not_cost_the_reference_its_precision(call: Op) -> None:
    third = torch.tensor([1.0, 2.0]) / 3
    steps = both([call, op("z", ".mul", R("y"), 1)], ["z"], third)
    assert steps.reference is not None
    fine = torch.tensor([1.0, 2.0], dtype=F64) / 3
    assert dtypes(steps.reference) == [F64]
    if "softmax" not in call.target:
        assert torch.equal(steps.reference[0], third.double())
        assert torch.allclose(steps.reference[0], fine, atol=1e-7)


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    with torch.library._scoped_library("interpret_test", "FRAGMENT") as scoped:
        yield scoped


def only_float32(x: torch.Tensor) -> torch.Tensor:
    if x.dtype != F32:
        raise NotImplementedError("no such kernel")
    return x * 2


def only_float32_in_place(x: torch.Tensor) -> torch.Tensor:
    if x.dtype != F32:
        raise NotImplementedError("no such kernel")
    return x.mul_(2)


def bump(x: torch.Tensor) -> None:
    only_float32_in_place(x)


def test_an_op_without_a_kernel_is_taken_at_its_own_precision_and_noted(library: torch.library.Library) -> None:
    library.define("narrow(Tensor x) -> Tensor")
    library.impl("narrow", only_float32, "CPU")
    steps = both(
        [
            op("a", ".div", R("x"), 3),
            op("y", "torch.ops.interpret_test.narrow.default", R("a")),
            op("z", "torch.add", R("y"), R("a")),
        ],
        ["z"],
        x32(),
    )
    assert steps.notes == ["y: torch.ops.interpret_test.narrow.default taken at its own precision"]
    assert dtypes(steps.reference) == [F64]
    assert steps.reference is not None
    assert torch.equal(steps.reference[0], (x32().double() / 3).float().double() * 2 + x32().double() / 3)


def test_an_in_place_op_without_a_kernel_leaves_no_reference_and_says_so(library: torch.library.Library) -> None:
    library.define("narrow_(Tensor(a!) x) -> Tensor(a!)")
    library.impl("narrow_", only_float32_in_place, "CPU")
    steps = both([op("y", "torch.ops.interpret_test.narrow_.default", R("x"))], ["y"], x32())
    assert torch.equal(steps.eager[0], x32() * 2)
    assert steps.reference is None
    assert "no higher-precision form" in steps.notes[0]


def test_a_write_that_the_name_does_not_tell_is_noticed(library: torch.library.Library) -> None:
    library.define("bump(Tensor(a!) x) -> ()")
    library.impl("bump", bump, "CPU")
    ops = [op("n", "torch.ops.interpret_test.bump.default", R("x")), op("y", "torch.neg", R("x"))]
    assert both(ops, ["y"], x32()).reference is None


def test_running_statistics_are_written_in_the_reference_too() -> None:
    call = op("y", "torch.nn.functional.batch_norm", R("x"), R("m"), R("v"), None, None, True)
    steps = both([call], ["m", "v"], x32().view(3, 2) / 3, torch.zeros(2), torch.ones(2), params="xmv")
    assert steps.reference is not None
    assert dtypes(steps.reference) == [F64, F64]
    assert torch.allclose(steps.reference[0].float(), steps.eager[0])


# --- sharing ------------------------------------------------------------------------------------------------------------


def agree(steps: Lockstep) -> bool:
    assert steps.reference is not None, steps.notes
    return all(torch.allclose(high.to(low.dtype), low) for high, low in zip(steps.reference, steps.eager, strict=True))


@pytest.mark.parametrize(
    ("ops", "outputs"),
    [
        ([op("v", ".view", R("x"), 2, 3), op("w", ".mul_", R("v"), 3)], ["x", "v", "w"]),
        ([op("v", "operator.getitem", R("x"), SliceArg(1, 3, None)), op("w", "operator.iadd", R("v"), 3)], ["x", "w"]),
        ([op("s", "operator.setitem", R("x"), 0, 9.0)], ["x"]),
        ([op("c", ".float", R("x")), op("w", ".mul_", R("c"), 3)], ["x", "c"]),
        ([op("c", ".half", R("x")), op("w", ".mul_", R("c"), 3)], ["x", "c"]),
        ([op("c", ".to", R("x"), Const("torch.bfloat16")), op("w", ".mul_", R("c"), 3)], ["x", "c"]),
        ([op("i", ".int", R("x")), op("w", ".add_", R("i"), 1), op("z", "torch.add", R("i"), R("x"))], ["i", "z"]),
        ([op("r", "torch.nn.functional.relu", R("x"), inplace=True)], ["x", "r"]),
        ([op("a", "torch._foreach_mul_", ListArg((R("x"),)), 2.0)], ["x"]),
        ([op("a", "torch.arange", 3), op("w", ".add_", R("a"), 1)], ["a"]),
        ([op("a", "torch.exp", R("x"), out=R("x"))], ["x", "a"]),
    ],
)
def test_writes_show_in_the_reference_where_they_show_in_eager(ops: list[Op], outputs: list[str]) -> None:
    steps = both(ops, outputs, x32())
    assert agree(steps)
    alone = interpret.run(graph(ops, [R(name) for name in outputs]), (x32(),))
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(steps.eager, alone, strict=True))


def test_inputs_in_one_memory_share_it_in_the_reference() -> None:
    x = x32()
    high = raised_inputs((x, x[2:], x.view(2, 3).t()), "fp64")
    high[0].mul_(2)
    assert torch.equal(high[1], x[2:].double() * 2)
    assert torch.equal(high[2], x.view(2, 3).t().double() * 2)
    assert high[2].stride() == x.view(2, 3).t().stride()


def test_raised_inputs_keep_lazy_bits_and_being_a_leaf_or_not() -> None:
    z = (torch.ones(3) * (1 + 2j)).conj()
    leaf, result = x32().requires_grad_(), x32().requires_grad_() * 1
    conjugate, high_leaf, high_result = raised_inputs((z, leaf, result), "fp64")
    assert (conjugate.is_conj(), conjugate.tolist()) == (True, [1 - 2j] * 3)
    assert (high_leaf.is_leaf, high_leaf.requires_grad) == (True, True)
    assert (high_result.is_leaf, high_result.requires_grad) == (False, True)
    high_result.mul_(2)


def test_a_write_to_memory_read_as_two_dtypes_leaves_no_reference() -> None:
    x = x32()
    steps = Lockstep(graph([op("w", ".add_", R("y"), 1)], [R("x")], ("x", "y")), "fp64")
    steps.run((x, x.view(torch.int32)), raised_inputs((x.clone(), x.clone().view(torch.int32)), "fp64"))
    assert steps.reference is None
    ops = [op("v", ".view", R("x"), Const("torch.int32")), op("w", ".add_", R("v"), 1), op("y", "torch.neg", R("x"))]
    assert both(ops, ["y"], x32()).reference is None
    assert agree(both([ops[0], op("y", "torch.add", R("v"), 1)], ["y"], x32()))


# --- random numbers, modes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        op("r", "torch.rand_like", R("x")),
        op("r", "torch.randn", 6),
        op("r", "torch.randint", 0, 9, (6,)),
        op("r", "torch.nn.functional.dropout", R("x"), 0.5, True),
        op("r", "torch.nn.functional.rrelu", R("x"), training=True),
        op("r", "torch.bernoulli", R("p")),
        op("r", "torch.multinomial", R("p"), 3),
    ],
)
@pytest.mark.parametrize("low", [F32, torch.bfloat16])
def test_random_ops_draw_what_eager_draws(call: Op, low: torch.dtype) -> None:
    torch.manual_seed(5)
    steps = both(
        [call, op("y", "torch.mul", R("r"), 3)], ["r", "y"], (x32() - 3.5).to(low), x32().to(low) / 10, params="xp"
    )
    assert steps.random
    assert steps.reference is not None
    for high, eager in zip(steps.reference, steps.eager, strict=True):
        torch.testing.assert_close(high.to(eager.dtype), eager, rtol=1e-2, atol=1e-3)


def test_random_numbers_are_drawn_as_without_a_reference() -> None:
    ops = [
        op("d", "torch.nn.functional.dropout", R("x"), 0.5, True),
        op("y", "torch.add", R("d"), 1),
        op("r", "torch.rand", 3),
    ]
    torch.manual_seed(5)
    alone = interpret.run(graph(ops, [R("y"), R("r")]), (x32(),))
    after = torch.get_rng_state()
    torch.manual_seed(5)
    steps = both(ops, ["y", "r"], x32())
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(steps.eager, alone, strict=True))
    assert torch.equal(torch.get_rng_state(), after)
    assert not both([op("y", "torch.add", R("x"), 1)], ["y"], x32()).random


def test_a_draw_that_the_reference_cannot_repeat_disturbs_no_later_one() -> None:
    ops = [op("n", ".normal_", R("x")), op("r", "torch.rand", 3)]
    torch.manual_seed(5)
    many = torch.zeros(32)  # from 16 elements on float32 and float64 are filled differently
    alone = interpret.run(graph(ops, [R("r")]), (many.clone(),))
    torch.manual_seed(5)
    steps = both(ops, ["r"], many)
    assert torch.equal(steps.eager[0], alone[0])
    assert steps.reference is None


def case(ops: Sequence[Op], outputs: Sequence[str], meta: TensorMeta | None = None, **settings: Any) -> Case:
    return build([given("x", meta or tensor((6,)))], ops, outputs, Settings(**settings))


def paired(subject: Case, make: Callable[[], torch.Tensor], asked: str = "auto") -> reference.Pair:
    return lockstep(subject, lambda: (make(),), asked, wants_reference=asked != "none")


def test_a_lockstep_run_leaves_generators_and_modes_as_they_were() -> None:
    ops = [
        op("e", ENTER, "cpu", Const("torch.bfloat16"), True, None),
        op("g", "torch.set_grad_enabled", False),
        op("y", "torch.rand_like", R("x")),
    ]
    before = torch.get_rng_state()
    paired(case(ops, ["y"]), x32)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")


def test_an_autocast_region_is_entered_once_and_left() -> None:
    ops = [
        op("e", ENTER, "cpu", Const("torch.bfloat16"), True, None),
        op("a", "operator.matmul", R("x"), R("x")),
        op("l", EXIT, R("e")),
        op("b", "operator.matmul", R("x"), R("x")),
    ]
    steps = both(ops, ["a", "b"], torch.eye(3))
    assert dtypes(steps.eager) == [torch.bfloat16, F32]
    assert dtypes(steps.reference) == [F64, F64]
    assert not torch.is_autocast_enabled("cpu")


def test_the_trace_has_every_op_in_order() -> None:
    ops = [
        op("v", ".view", R("x"), 2, 3),
        op("s", ".split", R("v"), 1),
        op("n", ".size", R("v"), 0),
        op("w", ".add_", R("v"), 1),
    ]
    trace = dict(both(ops, ["w"], x32()).trace)
    assert list(trace) == ["v", "s", "n", "w"]
    assert isinstance(trace["v"], TensorMeta)
    assert isinstance(trace["w"], TensorMeta)
    assert trace["v"].storage == trace["w"].storage
    assert isinstance(trace["s"], SequenceMeta)
    assert trace["n"] == ScalarMeta(2)


# --- a case beside its reference ----------------------------------------------------------------------------------------

HALF = tensor((6,), "float16")
DOUBLED = [op("y", "torch.mul", R("x"), 2)]


@pytest.mark.parametrize(
    ("subject", "dtype", "asked", "expected"),
    [
        (case(DOUBLED, ["y"]), F32, "auto", F64),
        (case(DOUBLED, ["y"], HALF), F16, "auto", F32),
        (case(DOUBLED, ["y"], HALF), F16, "fp64", F64),
        (case(DOUBLED, ["y"]), F32, "fp32", F32),
        (case(DOUBLED, ["y"], HALF, autocast=(("cpu", "bfloat16"),)), F16, "auto", F64),
        (case([op("e", ENTER, "cpu", Const("torch.bfloat16"), True, None), *DOUBLED], ["y"], HALF), F16, "auto", F64),
        (case([op("f", ".float", R("x")), op("y", "torch.exp", R("f"))], ["y"], HALF), F16, "auto", F64),
        (
            case([op("f", "torch.nn.functional.softmax", R("x"), 0, dtype=Const("torch.float32"))], ["f"], HALF),
            F16,
            "auto",
            F64,
        ),
    ],
)
def test_the_reference_is_one_up_from_the_widest_the_program_computes_in(
    subject: Case, dtype: torch.dtype, asked: str, expected: torch.dtype
) -> None:
    pair = paired(subject, lambda: x32().to(dtype), asked)
    assert dtypes(pair.steps.reference) == [expected]


def test_without_a_reference_only_eager_runs() -> None:
    pair = paired(case(DOUBLED, ["y"]), x32, "none")
    assert (pair.high, pair.steps.reference, reference_run(pair)) == (None, None, None)
    assert torch.equal(pair.steps.eager[0], x32() * 2)


TRAINING = {"grad_mode": "grad", "backward": "randn"}
LEAF = tensor((6,), requires_grad=True)


def leaf() -> torch.Tensor:
    return (x32() / 7).requires_grad_()


def test_gradients_of_the_reference_are_those_of_eager_one_precision_up() -> None:
    ops = [
        op("d", "torch.nn.functional.dropout", R("x"), 0.5, True),
        op("y", "torch.exp", R("d")),
        op("z", "torch.mul", R("y"), R("x")),
    ]
    pair = paired(case(ops, ["z"], LEAF, **TRAINING), leaf)
    assert pair.steps.random
    assert pair.high_grads["x"].dtype == F64
    torch.testing.assert_close(pair.high_grads["x"].float(), pair.low_grads["x"])
    assert not torch.equal(pair.high_grads["x"].float().double(), pair.high_grads["x"])


def test_a_reference_cut_off_from_its_inputs_has_no_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lockstep_room, "same_draw", lambda value, eager: False)
    ops = [op("d", "torch.nn.functional.dropout", R("x"), 0.5, True), op("y", "torch.add", R("d"), R("x"))]
    pair = paired(case(ops, ["y"], LEAF, **TRAINING), leaf)
    assert pair.steps.reference is not None
    assert pair.high_grads == {}
    assert any("no reference gradient" in note for note in pair.steps.notes)


def test_results_that_are_written_to_have_gradients_in_the_reference() -> None:
    meta = tensor((6,), requires_grad=True, flags=("nonleaf",))
    ops = [op("w", ".mul_", R("x"), 3), op("y", "torch.exp", R("w"))]
    pair = paired(case(ops, ["y"], meta, **TRAINING), lambda: leaf() * 1)
    torch.testing.assert_close(pair.high_grads["x"].float(), pair.low_grads["x"])


def test_what_eager_raises_is_raised() -> None:
    with pytest.raises(RuntimeError, match="size"):
        paired(case([op("y", ".view", R("x"), 5)], ["y"]), x32)
