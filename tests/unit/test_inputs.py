"""`make_inputs()`: fresh inputs with exactly the layout, flags, sharing and values that a case says, and how they are written."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from minify import interpret, replay, store, torch_internals
from minify.capture import snapshot
from minify.capture.convert import Converted, Param
from minify.case import (
    Case,
    Derived,
    Graph,
    Input,
    Op,
    Program,
    Recipe,
    Recorded,
    Ref,
    ScalarInput,
    Settings,
    TensorMeta,
    Window,
)
from minify.inputs import make_inputs
from minify.render import text
from tests.cases import build, given, op, tensor

R = Ref
GRAD = Settings(grad_mode="grad")


def facts(values: Sequence[Any]) -> list[Any]:
    """What matters of inputs: layout, flags, being a leaf, sharing, and every element that can be seen."""
    numbers = interpret.StorageNumbers()
    rows: list[Any] = []
    for position, value in enumerate(values):
        if not isinstance(value, torch.Tensor):
            rows.append((type(value), value))
            continue
        meta = interpret.describe(value, numbers, str(position))
        assert isinstance(meta, TensorMeta)
        zero = torch_internals.is_zerotensor(value)
        elements = 0 if zero else value.detach().resolve_conj().resolve_neg().tolist()
        rows.append((meta, value.is_leaf, str(elements)))
    return rows


def recorded_case(values: Sequence[Any], root: Path) -> tuple[Case, snapshot.Snapshot]:
    """A case with no ops whose inputs are `values`, as capture would save it."""
    names = tuple(f"x{position}" for position in range(len(values)))
    params = tuple(
        Param(name, position, is_scalar=not isinstance(value, torch.Tensor))
        for position, (name, value) in enumerate(zip(names, values, strict=True))
    )
    graph = Graph(names, (), tuple(Ref(name) for name in names))
    taken = snapshot.take(Converted(graph, params, frozenset()), values, GRAD)
    return taken.case(root), taken


def base() -> torch.Tensor:
    return torch.arange(1.0, 25.0)


def complex_base() -> torch.Tensor:
    return torch.arange(1.0, 13.0).to(torch.complex64) * (1 + 2j)


def grown(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.requires_grad_() * 1


def shared_views() -> tuple[torch.Tensor, ...]:
    x = base()
    return x.view(4, 6), x[3:9], x.view(4, 6).t(), torch.ones(2)


def shared_dtypes() -> tuple[torch.Tensor, ...]:
    x = base()
    return x, x.view(torch.int32), x.view(torch.int16)[3:]


def shared_dtypes_large_last() -> tuple[torch.Tensor, ...]:
    x = torch.arange(1.0, 8.0)
    return x, x[:6].view(torch.float64)


def chunks_of_a_result() -> tuple[torch.Tensor, ...]:
    return grown(base().view(2, 12)).chunk(3, dim=1)


def result_and_its_detached_self() -> tuple[torch.Tensor, ...]:
    x = grown(base())
    return x, x.detach(), x[::2]


def leaf_and_its_view() -> tuple[torch.Tensor, ...]:
    x = base().requires_grad_()
    return x, x.view(4, 6)


INPUTS = {
    "contiguous": lambda: (base().view(4, 6),),
    "transposed": lambda: (base().view(4, 6).t(),),
    "channels last": lambda: (base().view(1, 2, 3, 4).contiguous(memory_format=torch.channels_last),),
    "sliced with steps": lambda: (base().view(4, 6)[1::2, ::3],),
    "with an offset": lambda: (base()[5:],),
    "expanded": lambda: (torch.arange(1.0, 4.0).view(3, 1).expand(3, 4),),
    "expanded scalar": lambda: (torch.tensor(2.5).expand(2, 3),),
    "overlapping": lambda: (base().as_strided((4, 4), (2, 1), 3),),
    "empty": lambda: (torch.empty(0), torch.empty(3, 0, 2), torch.empty(0, 4).t()),
    "scalar": lambda: (torch.tensor(1.5), torch.tensor(True), torch.tensor(3)),
    "size-1 dims with odd strides": lambda: (torch.ones(4).as_strided((1, 4, 1), (7, 1, 9)),),
    "many dtypes": lambda: tuple(
        base().to(dtype)
        for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.uint8, torch.int64, torch.bool)
    ),
    "float8": lambda: (base().to(torch.float8_e4m3fn),),
    "complex": lambda: (complex_base(), complex_base().to(torch.complex128).view(3, 4).t()),
    "conjugated": lambda: (complex_base().conj(), complex_base().view(3, 4).t().conj()),
    "negated": lambda: (complex_base().conj().imag, torch_internals.neg_view(base().view(4, 6).t())),
    "zero tensors": lambda: (torch_internals.zerotensor((2, 3), torch.float32, "cpu"), base()),
    "nan and inf": lambda: (torch.tensor([float("nan"), float("inf"), -0.0, -float("inf")]),),
    "numbers": lambda: (3, 2.5, True, base(), 1 + 2j),
    "parameters": lambda: (
        torch.nn.Parameter(base().view(4, 6)),
        torch.nn.Parameter(base(), requires_grad=False),
        torch.nn.Parameter(base().view(4, 6).t()),
    ),
    "leaves that require grad": lambda: (base().requires_grad_(), base().view(4, 6).t().requires_grad_()),
    "a conjugated leaf": lambda: (complex_base().conj().requires_grad_(),),
    "results that require grad": lambda: (grown(base().view(4, 6)), grown(base().view(4, 6).t())),
    "a slice of a result": lambda: (grown(base().view(4, 6))[:, 1:3],),
    "an expanded result": lambda: (grown(torch.ones(3, 1)).expand(3, 4),),
    "chunks of a result": chunks_of_a_result,
    "a result and its detached self": result_and_its_detached_self,
    "a leaf and its view": leaf_and_its_view,
    "views of one memory": shared_views,
    "one memory read as other dtypes": shared_dtypes,
    "one memory read as a larger dtype": shared_dtypes_large_last,
    "a conjugate and its base": lambda: (lambda x: (x, x.conj(), torch.view_as_real(x)))(complex_base()),
    "the same tensor twice": lambda: (lambda x: (x, x))(base()),
}


@pytest.mark.parametrize("make", INPUTS.values(), ids=INPUTS)
def test_inputs_come_back_as_they_were_recorded(make: Any, tmp_path: Path) -> None:
    given_values = make()
    before = facts(given_values)
    case, taken = recorded_case(given_values, tmp_path)
    assert facts(taken.values()) == before
    live = replay.replay(case, tmp_path)
    first = live.make_inputs()
    assert facts(first) == before
    with torch.no_grad():
        for value in first:
            if isinstance(value, torch.Tensor) and not torch_internals.is_zerotensor(value):
                store.storage_of(value).zero_()
    assert facts(live.make_inputs()) == before
    assert facts(given_values) == before


@pytest.mark.parametrize("make", INPUTS.values(), ids=INPUTS)
def test_recipes_have_the_recorded_layout_too(make: Any, tmp_path: Path) -> None:
    given_values = make()
    case, _ = recorded_case(given_values, tmp_path)
    recipe = Recipe("ones")
    inputs = tuple(dataclasses.replace(item, value=recipe) if isinstance(item, Input) else item for item in case.inputs)
    made = replay.replay(dataclasses.replace(case, inputs=inputs), tmp_path).make_inputs()
    assert [layout(row) for row in facts(made)] == [layout(row) for row in facts(given_values)]


def layout(row: Any) -> Any:
    meta = row[0]
    if not isinstance(meta, TensorMeta):
        return row
    return (
        *(getattr(meta, name) for name in ("shape", "stride", "offset", "dtype", "requires_grad", "storage", "flags")),
        row[1],
    )


def test_inputs_that_are_no_leaves_can_be_written_to(tmp_path: Path) -> None:
    for make in (chunks_of_a_result, INPUTS["a slice of a result"], INPUTS["results that require grad"]):
        case, taken = recorded_case(make(), tmp_path)
        for values in (taken.values(), replay.replay(case, tmp_path).make_inputs()):
            assert all(not value.is_leaf for value in values)
            (gradient,) = torch.autograd.grad(values[0].mul_(2).sum(), [values[0]])
            assert torch.equal(gradient, torch.ones_like(gradient))


def test_a_sparse_input_cannot_be_recorded(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"torch\.sparse_coo"):
        recorded_case((torch.eye(3).to_sparse(),), tmp_path)


# --- how they are written -----------------------------------------------------------------------------------------------


def line(item: Input) -> str:
    """The expression of one input."""
    written = text(make_inputs(Case(Program(Graph((item.name,), (), ())), (item,))))
    return next(row for row in written.splitlines() if row.startswith("    x = ")).removeprefix("    x = ")


NHWC = tensor((2, 3, 4, 5), stride=(60, 1, 15, 3))
ONES, ZEROS, RANDN = Recipe("ones"), Recipe("zeros"), Recipe("randn")


@pytest.mark.parametrize(
    ("meta", "value", "expected"),
    [
        (tensor((4, 8)), RANDN, "torch.randn((4, 8))"),
        (tensor(()), ONES, "torch.ones(())"),
        (tensor((2,), "int64"), ZEROS, "torch.zeros((2,), dtype=torch.int64)"),
        (tensor((2,)), Recipe("full", (0.5,)), "torch.full((2,), 0.5)"),
        (tensor((2,), "bool"), Recipe("full", (True,)), "torch.full((2,), True, dtype=torch.bool)"),
        (tensor((2, 3)), Recipe("arange"), "torch.arange(6, dtype=torch.float32).reshape((2, 3))"),
        (tensor((6,), "int64"), Recipe("arange"), "torch.arange(6)"),
        (tensor((6,), "int64"), Recipe("randint", (0, 9)), "torch.randint(0, 9, (6,))"),
        (tensor((6,), "int8"), Recipe("randint", (0, 9)), "torch.randint(0, 9, (6,), dtype=torch.int8)"),
        (tensor((2,)), Recipe("literal", (1.0, -0.0)), "torch.tensor([1.0, -0.0], dtype=torch.float32)"),
        (tensor(()), Recipe("literal", (float("nan"),)), 'torch.tensor(float("nan"), dtype=torch.float32)'),
        (tensor((2,), "float8_e4m3fn"), RANDN, "torch.randn((2,)).to(torch.float8_e4m3fn)"),
        (tensor((4, 8), stride=(1, 4)), RANDN, "torch.randn((8, 4)).t()"),
        (NHWC, RANDN, "torch.randn((2, 4, 5, 3)).permute((0, 3, 1, 2))"),
        (tensor((3, 4), stride=(1, 0)), RANDN, "torch.randn((3, 1)).expand((3, 4))"),
        (tensor((2, 2), stride=(4, 2)), RANDN, "torch.as_strided(torch.randn((7,)), (2, 2), (4, 2))"),
        (tensor((2,), offset=3), RANDN, "torch.as_strided(torch.randn((5,)), (2,), (1,), 3)"),
        (tensor((2,), requires_grad=True), ONES, "torch.ones((2,)).requires_grad_()"),
        (tensor((2,), requires_grad=True, flags=("nonleaf",)), ONES, "torch.ones((2,)).requires_grad_().clone()"),
        (tensor((2,), requires_grad=True, flags=("parameter",)), ONES, "torch.nn.Parameter(torch.ones((2,)))"),
        (tensor((2,), flags=("parameter",)), ONES, "torch.nn.Parameter(torch.ones((2,)), requires_grad=False)"),
        (tensor((2,), "complex64", flags=("conj",)), ONES, "torch.ones((2,), dtype=torch.complex64).conj()"),
        (tensor((2,), flags=("neg",)), ONES, "torch._neg_view(torch.ones((2,)))"),
        (tensor((2,), flags=("zerotensor",)), ZEROS, "torch._efficientzerotensor((2,))"),
        (tensor((2,)), Recorded("0" * 32), 'recorded["x"]'),
    ],
)
def test_an_input_is_written_as_plainly_as_its_layout_allows(meta: TensorMeta, value: Any, expected: str) -> None:
    assert line(Input("x", meta, value)) == expected


def test_inputs_in_one_memory_are_views_of_one_tensor() -> None:
    case = build(
        [
            given("x", tensor((2, 3), storage=1), ONES),
            ScalarInput("n", 4),
            given("y", tensor((3,), "int32", storage=1), ONES),
        ],
        [],
        [],
    )
    assert text(make_inputs(case)).splitlines()[1:] == [
        "    storage1 = torch.ones((6,))",
        "    x = torch.as_strided(storage1, (2, 3), (3, 1))",
        "    n = 4",
        "    y = torch.as_strided(storage1[:6].view(torch.int32), (3,), (1,))".replace("[:6]", ""),
        "    return (x, n, y)",
    ]


def test_only_random_recipes_are_seeded_and_dynamic_dims_marked() -> None:
    random = build([given("x", tensor((2,)), RANDN, dynamic=(0,))], [], [], Settings(seed=7))
    assert text(make_inputs(random)).splitlines()[1:] == [
        "    torch.manual_seed(7)",
        "    x = torch.randn((2,))",
        "    torch._dynamo.mark_dynamic(x, 0)",
        "    return (x,)",
    ]
    plain = build([given("x", tensor((2,)), ONES)], [], [])
    assert "seed" not in text(make_inputs(plain))
    assert text(make_inputs(build([], [], []))).splitlines()[1:] == ["    return ()"]


def test_elements_of_a_recipe_follow_memory_order(tmp_path: Path) -> None:
    item = given("x", tensor((4, 8), stride=(1, 4)), Recipe("arange"))
    (x,) = replay.replay(build([item], [], ["x"]), tmp_path).make_inputs()
    assert store.storage_of(x).tolist() == list(range(32))


def test_recorded_data_is_moved_into_another_layout_element_by_element(tmp_path: Path) -> None:
    data = base().view(4, 6)
    window = Window((4, 6), (6, 1), 0)
    digest = store.save_storage(tmp_path, store.storage_of(data))
    for meta in (tensor((4, 6), stride=(1, 4)), tensor((4, 6), stride=(12, 2), offset=3)):
        case = build([given("x", meta, Recorded(digest, window))], [], ["x"])
        (x,) = replay.replay(case, tmp_path).make_inputs()
        assert torch.equal(x, data)
        assert (x.stride(), x.storage_offset()) == (meta.stride, meta.offset)


# --- derived values -----------------------------------------------------------------------------------------------------


def derived(
    candidate_inputs: dict[str, str],
    ops: Sequence[Op],
    outputs: Sequence[str],
    base_case: Case,
    root: Path,
    **metas: TensorMeta,
) -> Any:
    """The inputs of a candidate whose `inputs` are values of `base_case` under their own names."""
    digest = store.save_base(root, base_case)
    items = [given(name, metas.get(name, tensor((3,))), Derived(digest, of)) for name, of in candidate_inputs.items()]
    return replay.replay(build(items, ops, outputs), root).make_inputs()


WRITES = build(
    [given("x", tensor((3,)), Recipe("arange"))],
    [
        op("a", "torch.add", R("x"), 1),
        op("r", "torch.neg", R("a")),
        op("v", ".view", R("a"), 3),
        op("w", ".mul_", R("a"), 10),
        op("s", ".sub", R("a"), 1),
        op("t", "torch.split", R("s"), 1),
        op("u", "torch.cat", R("t")),
    ],
    ["w", "s"],
)


def test_a_value_is_taken_just_before_its_first_reader(tmp_path: Path) -> None:
    neg, sub = op("r", "torch.neg", R("a")), op("s", ".sub", R("a"), 1)
    assert derived({"a": "a"}, [neg], ["r"], WRITES, tmp_path)[0].tolist() == [1, 2, 3]
    assert derived({"a": "a"}, [sub], ["s"], WRITES, tmp_path)[0].tolist() == [10, 20, 30]
    assert derived({"a": "a"}, [neg, sub], ["s"], WRITES, tmp_path)[0].tolist() == [1, 2, 3]


def test_a_value_is_taken_when_it_exists_where_nothing_of_the_base_reads_it(tmp_path: Path) -> None:
    assert derived({"a": "a"}, [op("new", "torch.neg", R("a"))], ["new"], WRITES, tmp_path)[0].tolist() == [1, 2, 3]
    assert derived({"x": "x"}, [], ["x"], WRITES, tmp_path)[0].tolist() == [0, 1, 2]


def test_a_value_can_be_asked_for_at_a_moment_or_out_of_a_sequence(tmp_path: Path) -> None:
    assert derived({"a": "a@s"}, [op("r", "torch.neg", R("a"))], ["r"], WRITES, tmp_path)[0].tolist() == [10, 20, 30]
    one = {"t": tensor((1,), offset=1)}
    assert derived({"t": "t[1]"}, [op("u", "torch.cat", R("t"))], ["u"], WRITES, tmp_path, **one)[0].tolist() == [19]


def test_two_inputs_can_be_the_same_value(tmp_path: Path) -> None:
    ops = [op("r", "torch.add", R("a"), R("b"))]
    first, second = derived({"a": "a", "b": "a"}, ops, ["r"], WRITES, tmp_path)
    assert first.tolist() == second.tolist() == [1, 2, 3]


def test_two_values_in_one_memory_are_taken_at_the_same_moment_and_stay_together(tmp_path: Path) -> None:
    ops = [op("w", ".mul_", R("a"), 10), op("new", "torch.neg", R("v"))]
    together = {"a": tensor((3,), storage=1), "v": tensor((3,), storage=1)}
    for order in ({"a": "a", "v": "v"}, {"v": "v", "a": "a"}):
        values = dict(zip(order, derived(order, ops, ["new"], WRITES, tmp_path, **together), strict=True))
        assert values["v"].tolist() == [1, 2, 3]
        values["a"].mul_(10)
        assert values["v"].tolist() == [10, 20, 30]


def test_a_random_base_draws_the_same_numbers_for_every_candidate(tmp_path: Path) -> None:
    noisy = build(
        [given("x", tensor((3,)), RANDN)],
        [op("a", "torch.nn.functional.dropout", R("x"), 0.5, True), op("r", "torch.neg", R("a"))],
        ["r"],
        Settings(seed=3),
    )
    live = replay.replay(noisy, tmp_path)
    torch.manual_seed(11)
    values = live.make_inputs()
    with replay.seeded(noisy):
        due = live.fn(*values)
    ops = [op("r", "torch.neg", R("a"))]
    for _ in range(2):
        (a,) = derived({"a": "a"}, ops, ["r"], noisy, tmp_path)
        assert torch.equal(-a, due)


def test_a_conjugated_value_keeps_its_lazy_bit(tmp_path: Path) -> None:
    complex_meta = tensor((3,), "complex64")
    conjugated = build(
        [given("x", complex_meta, Recipe("full", (1 + 2j,)))],
        [op("a", ".conj", R("x"), meta=complex_meta), op("r", "torch.neg", R("a"), meta=complex_meta)],
        ["r"],
    )
    meta = tensor((3,), "complex64", flags=("conj",))
    (a,) = derived({"a": "a"}, [op("r", "torch.neg", R("a"))], ["r"], conjugated, tmp_path, a=meta)
    assert (a.is_conj(), a.tolist()) == (True, [1 - 2j] * 3)


def test_materialised_values_need_their_base_no_more(tmp_path: Path) -> None:
    digest = store.save_base(tmp_path, WRITES)
    metas = (tensor((3,), storage=1), tensor((2,), offset=1, storage=1), tensor((3,)))
    case = build(
        [
            given("a", metas[0], Derived(digest, "a")),
            given("v", metas[1], Derived(digest, "v")),
            given("r", metas[2], Derived(digest, "r")),
        ],
        [op("s", ".sub", R("a"), R("r"))],
        ["s", "v"],
    )
    before = facts(replay.replay(case, tmp_path).make_inputs())
    alone = replay.materialised(case, tmp_path)
    (tmp_path / "cases" / f"{digest}.case").unlink()
    assert facts(replay.replay(alone, tmp_path).make_inputs()) == before
    values = [item.value for item in alone.inputs if isinstance(item, Input)]
    assert all(isinstance(value, Recorded) for value in values)
    assert [(value.low, value.high) for value in values if isinstance(value, Recorded)] == [
        (10, 30),
        (20, 30),
        (-3, -1),
    ]


def test_a_program_that_enters_what_it_does_not_leave_disturbs_nothing(tmp_path: Path) -> None:
    off = leaves_grad_off()
    assert derived({"a": "a"}, [op("r", "torch.neg", R("a"))], ["r"], off, tmp_path)[0].tolist() == [1, 1, 1]
    assert torch.is_grad_enabled()


def leaves_grad_off() -> Case:
    return build(
        [given("x", tensor((3,)), ONES)],
        [op("g", "torch.set_grad_enabled", False), op("a", "torch.abs", R("x")), op("r", "torch.neg", R("a"))],
        ["r"],
    )
