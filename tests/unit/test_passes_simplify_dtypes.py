"""Plainer dtypes, for all inputs of one and for some, and what becomes of recorded elements."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from minify import store
from minify.case import (
    DTYPE_RANK,
    Arg,
    Case,
    Const,
    Derived,
    Graph,
    Input,
    Recipe,
    Recorded,
    Ref,
    Settings,
    Subgraph,
    Value,
    Window,
    size,
    tensor_inputs,
)
from minify.emit.literals import inline_values
from minify.passes.autocast import ENTER, EXIT
from minify.passes.contract import Site
from minify.passes.simplify_dtypes import CASTS, SIMPLIFY_DTYPES, half_types, in_float32, plainer
from minify.passes.simplify_layouts import SIMPLIFY_LAYOUTS
from minify.replay import replay
from tests.cases import build, given, op, show, tensor

R, C = Ref, Const
RANDN = Recipe("randn")
HALF, BOTH = ("float16", "float32"), ("complex128", "float32")


def typed(name: str, dtype: str, value: Value = RANDN) -> Input:
    return given(name, tensor((4,), dtype), value)


def holding(*dtypes: str) -> Case:
    """Inputs `a`, `b`... of some dtypes, all read."""
    inputs = [typed(letter, dtype) for letter, dtype in zip("abcdefghij", dtypes, strict=False)]
    meta = tensor((4,), dtypes[0])
    return build(inputs, [op("r", "torch.cat", tuple(R(item.name) for item in inputs), meta=meta)], ["r"])


def dtypes(case: Case) -> str:
    return " ".join(item.meta.dtype for item in tensor_inputs(case))


CLASSES: list[tuple[str, Case, list[Site]]] = [
    ("one half", holding("float16"), [HALF]),
    ("two halves", holding("float16", "float16"), [HALF]),
    ("two halves and indices", holding("float16", "float16", "int64"), [HALF]),
    ("two integers and a mask", holding("int32", "int32", "bool"), [("int32", "int64")]),
    ("a half beside a float", holding("float16", "float32"), [HALF]),
    (
        "two halves beside a float",
        holding("float16", "float16", "float32"),
        [HALF, (*HALF, "a"), (*HALF, "b")],
    ),
    (
        "two halves that become a float inside",
        build(
            [typed("a", "float16"), typed("b", "float16")],
            [op("c", ".float", R("a"), meta=tensor((4,))), op("d", "torch.add", R("c"), R("b"))],
            ["d"],
        ),
        [HALF, (*HALF, "a"), (*HALF, "b")],
    ),
    ("two dtypes", holding("bfloat16", "int32"), [("bfloat16", "float32"), ("int32", "int64")]),
    ("a complex number", holding("complex64"), [("complex64", "float32")]),
    ("a wide complex number", holding("complex128"), [BOTH, ("complex128", "complex64")]),
    (
        "many of one dtype",
        holding(*["int8"] * 9, "int64"),
        [
            ("int8", "int64"),
            *(("int8", "int64", *names) for names in (("a", "b"), ("c", "d"), ("e", "f"), ("g", "h", "i"))),
        ],
    ),
    (
        "a dtype that the program names too",
        build([typed("x", "float16")], [op("a", ".to", R("x"), C("torch.float16"))], ["a"]),
        [HALF, (*HALF, "x")],
    ),
]


@pytest.mark.parametrize(("case", "sites"), [row[1:] for row in CLASSES], ids=[row[0] for row in CLASSES])
def test_what_is_offered_for(case: Case, sites: list[Site]) -> None:
    assert list(SIMPLIFY_DTYPES.find(case)) == sites
    for some in (*((site,) for site in sites), tuple(sites)):
        assert size(SIMPLIFY_DTYPES.rewrite(case, some)) < size(case)


NO_OPS = [
    ("plain floats", holding("float32", "float32")),
    ("plain integers and masks", holding("int64", "bool")),
    ("a quantised tensor", holding("quint8")),
    ("a cast of plain floats", build(["x"], [op("a", ".to", R("x"), C("torch.float16"))], ["a"])),
    ("values that are not recorded yet", build([typed("x", "float16", Derived("b", "y"))], [], ["x"])),
    (
        "one memory read as two dtypes",
        build(
            [given("x", tensor((4,), "float16", storage=3)), given("y", tensor((4,), "int16", storage=3))], [], ["x"]
        ),
    ),
]


@pytest.mark.parametrize("case", [row[1] for row in NO_OPS], ids=[row[0] for row in NO_OPS])
def test_nothing_is_plainer_than(case: Case) -> None:
    assert SIMPLIFY_DTYPES.find(case) == ()


REWRITES: list[tuple[str, Case, tuple[Site, ...], str]] = [
    ("all of a class", holding("float16", "float32", "float16"), (HALF,), "float32 float32 float32"),
    ("one of a class", holding("float16", "float32", "float16"), ((*HALF, "c"),), "float16 float32 float32"),
    ("two classes", holding("float16", "uint8"), (HALF, ("uint8", "int64")), "float32 int64"),
    ("the first of two sites wins", holding("complex128"), (BOTH, ("complex128", "complex64")), "float32"),
]


@pytest.mark.parametrize(("case", "sites", "expected"), [row[1:] for row in REWRITES], ids=[row[0] for row in REWRITES])
def test_the_dtypes_become(case: Case, sites: tuple[Site, ...], expected: str) -> None:
    assert set(sites) <= set(SIMPLIFY_DTYPES.find(case))
    assert dtypes(SIMPLIFY_DTYPES.rewrite(case, sites)) == expected


@pytest.mark.parametrize("dtype", [*CASTS, "float8_e4m3fn", "uint16", "uint64", "bool"])
def test_every_offer_is_of_a_smaller_rank(dtype: str) -> None:
    assert all(DTYPE_RANK[new] < DTYPE_RANK.get(dtype, 9) for new in plainer(dtype))


BODY = Subgraph(Graph(("t",), (op("b", ".to", R("t"), C("torch.float16")),), (R("b"),)))
NAMED: list[tuple[str, str, tuple[Arg, ...], str]] = [
    ("an argument", ".to", (C("torch.float16"),), ".to(x, torch.float32)"),
    ("a list", "f", ((C("torch.float16"), C("torch.int8")),), "f(x, (torch.float32, torch.int8))"),
    ("a method", ".half", (), ".float(x)"),
    ("another dtype", ".double", (C("torch.bfloat16"),), ".double(x, torch.bfloat16)"),
    ("what is no dtype", "f", (C("float16"), "torch.float16"), "f(x, float16, 'torch.float16')"),
    (
        "the dtype of an autocast region",
        "torch.amp.autocast_mode._enter_autocast",
        (C("torch.float16"),),
        "torch.amp.autocast_mode._enter_autocast(x, torch.float16)",
    ),
]


@pytest.mark.parametrize(("target", "args", "expected"), [row[1:] for row in NAMED], ids=[row[0] for row in NAMED])
def test_the_program_follows_with(target: str, args: tuple[Arg, ...], expected: str) -> None:
    case = build([typed("x", "float16")], [op("a", target, R("x"), *args)], ["a"])
    assert show(SIMPLIFY_DTYPES.rewrite(case, (HALF,))) == f"x | a = {expected} | a"


def test_a_keyword_and_the_body_of_a_branch_follow() -> None:
    ops = [op("a", "torch.sum", R("x"), dtype=C("torch.float16")), op("b", "torch.cond", R("a"), BODY, BODY, (R("x"),))]
    plain = SIMPLIFY_DTYPES.rewrite(build([typed("x", "float16")], ops, ["b"]), (HALF,)).graph.ops
    assert plain[0].kwargs == (("dtype", C("torch.float32")),)
    body = plain[1].args[1]
    assert isinstance(body, Subgraph) and body.graph.ops[0].args[1] == C("torch.float32")
    assert plain[1].args[2] == body


def test_inputs_alone_leave_the_program_as_it_is() -> None:
    case = build([typed("x", "float16")], [op("a", ".half", R("x"))], ["a"])
    plain = SIMPLIFY_DTYPES.rewrite(case, ((*HALF, "x"),))
    assert (dtypes(plain), plain.graph) == ("float32", case.graph)


# --- elements ------------------------------------------------------------------------------------------------------------

STORED = {
    "float16": torch.tensor([1.5, -2.0, float("inf"), -0.0, 3.0], dtype=torch.float16),
    "float64": torch.tensor([0.1, 1e300, -1.0, 2.0, 3.0], dtype=torch.float64),
    "int8": torch.tensor([-128, 0, 7, 127, 1], dtype=torch.int8),
    "complex64": torch.tensor([1 + 2j, -3j, 4 + 0j, 5 + 1j, 0j]),
}


def real(values: torch.Tensor) -> torch.Tensor:
    return values.real if values.is_complex() else values


@pytest.mark.parametrize("window", [None, Window((2, 2), (1, 2), 1)])
@pytest.mark.parametrize("dtype", STORED)
def test_recorded_elements_are_converted(dtype: str, window: Window | None, tmp_path: Path) -> None:
    """Five elements: no whole number of the new dtype's would fit their bytes."""
    recorded = Recorded(store.save_storage(tmp_path, STORED[dtype]), window)
    case = build([given("x", tensor((2, 2), dtype, stride=(1, 2), offset=1), recorded)], [], ["x"])
    plain = SIMPLIFY_DTYPES.rewrite(case, SIMPLIFY_DTYPES.find(case)[:1])
    dense = SIMPLIFY_LAYOUTS.rewrite(plain, SIMPLIFY_LAYOUTS.find(plain))
    expected = real(torch.as_strided(STORED[dtype], (2, 2), (1, 2), 1)).to(getattr(torch, plainer(dtype)[0]))
    for changed in (plain, dense, inline_values(plain, tmp_path), inline_values(dense, tmp_path)):
        (x,) = replay(changed, tmp_path).make_inputs()
        assert x.dtype == expected.dtype
        assert torch.equal(x, expected)
        meta = tensor_inputs(changed)[0].meta
        assert (x.stride(), x.storage_offset()) == (meta.stride, meta.offset)


def test_inputs_in_one_memory_change_together(tmp_path: Path) -> None:
    recorded = Recorded(store.save_storage(tmp_path, STORED["int8"]))
    first = dataclasses.replace(tensor((4,), "int8", storage=3), storage_size=5)
    second = tensor((2,), "int8", storage=3, offset=3)
    case = build([given("x", first, recorded), given("y", second, recorded)], [], ["x", "y"])
    assert SIMPLIFY_DTYPES.find(case) == (("int8", "int64"),)
    plain = SIMPLIFY_DTYPES.rewrite(case, SIMPLIFY_DTYPES.find(case))
    for changed in (plain, inline_values(plain, tmp_path)):
        x, y = replay(changed, tmp_path).make_inputs()
        assert (x.tolist(), y.tolist()) == ([-128, 0, 7, 127], [127, 1])
        assert x.data_ptr() + 24 == y.data_ptr()


def test_a_dtype_changes_twice_and_its_elements_once(tmp_path: Path) -> None:
    stored = torch.tensor([1 + 2j, 3 - 1j], dtype=torch.complex128)
    case = build([given("x", tensor((2,), "complex128"), Recorded(store.save_storage(tmp_path, stored)))], [], ["x"])
    for _ in range(2):
        case = SIMPLIFY_DTYPES.rewrite(case, SIMPLIFY_DTYPES.find(case)[-1:])
    (x,) = replay(case, tmp_path).make_inputs()
    assert (x.dtype, x.tolist()) == (torch.float32, [1.0, 3.0])


def test_a_real_number_is_no_conjugate_and_is_filled_with_none(tmp_path: Path) -> None:
    meta = dataclasses.replace(tensor((2,), "complex64"), flags=("conj",))
    case = build([given("x", meta, Recipe("full", (2 - 1j,)))], [], ["x"])
    plain = SIMPLIFY_DTYPES.rewrite(case, SIMPLIFY_DTYPES.find(case))
    (item,) = tensor_inputs(plain)
    assert (item.meta.flags, item.value) == ((), Recipe("full", (2.0,)))
    (x,) = replay(plain, tmp_path).make_inputs()
    assert x.tolist() == [2.0, 2.0]


# --- the whole program in float32 -----------------------------------------------------------------------------------------


def test_a_program_in_float32_has_no_half_precision_left_anywhere() -> None:
    case = build(
        [typed("x", "bfloat16"), typed("w", "float32")],
        [
            op("enter", ENTER, "cpu", C("torch.bfloat16"), True, None),
            op("a", ".half", R("w")),
            op("b", ".to", R("a"), C("torch.bfloat16")),
            op("exit", EXIT, R("enter")),
            op("c", "torch.add", R("b"), R("x")),
        ],
        ["c"],
        Settings(autocast=(("cpu", "float16"),)),
    )
    assert half_types(case) == ("float16", "bfloat16")
    wide = in_float32(case)
    assert wide is not None and half_types(wide) == () and wide.settings.autocast == ()
    assert dtypes(wide) == "float32 float32"
    assert [(call.name, call.target) for call in wide.graph.ops] == [("a", ".float"), ("b", ".to"), ("c", "torch.add")]


def test_a_program_without_half_precision_has_no_float32_form() -> None:
    assert in_float32(holding("float32", "int64")) is None
