"""A case is data: named by its content, ordered by size, saved whole or not at all."""

from __future__ import annotations

import dataclasses
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from minify import case as cases
from minify.case import (
    Arg,
    Case,
    Const,
    DictArg,
    Graph,
    Input,
    ListArg,
    Op,
    OpaqueMeta,
    Program,
    Recipe,
    Recorded,
    Ref,
    ScalarInput,
    ScalarMeta,
    Settings,
    SliceArg,
    Subgraph,
    digest,
    map_arg,
    op_count,
    op_refs,
    refs,
    rewrite_op,
    size,
)
from tests.cases import build, chain, given, op, several, tensor

R = Ref
ROOT = Path(__file__).parents[2]
PLAIN = chain("x", ("torch.relu",), (".mul", 2.0))
INNER = Graph(("v",), (op("s", "torch.sin", R("v")), op("t", "torch.cos", R("s"))), (R("t"),))


def with_arg(arg: Arg) -> Case:
    return chain("x", ("torch.add", arg))


def with_settings(**changes: object) -> Case:
    return dataclasses.replace(PLAIN, settings=dataclasses.replace(PLAIN.settings, **changes))  # type: ignore[arg-type]


def with_input(item: Input | ScalarInput) -> Case:
    return build([item], [op("a", "torch.relu", R("x"))], ["a"])


DISTINCT: dict[str, list[Arg]] = {
    "numbers": [1, 1.0, True, 1 + 0j, "1"],
    "zeros": [0, 0.0, -0.0, False, 0j, complex(0.0, -0.0), complex(-0.0, 0.0), None],
    "not numbers": [float("nan"), float("inf"), -float("inf"), "nan"],
    "containers": [(1, 2), ListArg((1, 2)), ((1,), 2), (1, (2,)), SliceArg(1, 2, None), "(1,2)", ()],
    "names": ["a", Ref("a"), Const("a"), DictArg((("a", 1),)), DictArg((("a", 1.0),)), DictArg((("b", 1),))],
    "text": ["a,b", ("a", "b"), ("a,b",), "a','b"],
    "bodies": [Subgraph(INNER), Subgraph(dataclasses.replace(INNER, params=("w",))), Subgraph(INNER, bare=True)],
}


@pytest.mark.parametrize("arguments", DISTINCT.values(), ids=DISTINCT)
def test_no_two_arguments_that_differ_share_a_digest(arguments: list[Arg]) -> None:
    assert len({digest(with_arg(arg)) for arg in arguments}) == len(arguments)


DIFFERENT = {
    "the case itself": PLAIN,
    "another op": chain("x", ("torch.sin",), (".mul", 2.0)),
    "another argument": chain("x", ("torch.relu",), (".mul", 3.0)),
    "the level": dataclasses.replace(PLAIN, program=dataclasses.replace(PLAIN.program, level="aten")),
    "the prelude": dataclasses.replace(PLAIN, program=dataclasses.replace(PLAIN.program, prelude="import os")),
    "a setting": with_settings(dynamic=True),
    "a config": with_settings(config=(("torch._inductor.config", "epilogue_fusion", False),)),
    "the seed": with_settings(seed=1),
    "a value": build([given("x", value=Recorded("1" * 32))], PLAIN.graph.ops, ["b"]),
    "a range": build([given("x", value=Recorded("0" * 32, low=-3.0, high=2.0))], PLAIN.graph.ops, ["b"]),
    "a recipe": build([given("x", value=Recipe("full", (1,)))], PLAIN.graph.ops, ["b"]),
    "a recipe's number": build([given("x", value=Recipe("full", (1.0,)))], PLAIN.graph.ops, ["b"]),
    "a stride": build([given("x", tensor((4, 8), stride=(1, 4)))], PLAIN.graph.ops, ["b"]),
    "a storage": build([given("x", tensor(storage=3))], PLAIN.graph.ops, ["b"]),
    "a flag": build([given("x", tensor(flags=("conj",)))], PLAIN.graph.ops, ["b"]),
    "a dynamic dim": build([given("x", dynamic=(0,))], PLAIN.graph.ops, ["b"]),
    "an output": build(["x"], PLAIN.graph.ops, ["a", "b"]),
}


def test_every_part_of_a_case_has_a_say_in_its_digest() -> None:
    assert len({digest(case) for case in DIFFERENT.values()}) == len(DIFFERENT)


def test_what_a_run_noted_of_an_op_has_none() -> None:
    bare = dataclasses.replace(
        PLAIN,
        program=Program(
            dataclasses.replace(
                PLAIN.graph, ops=tuple(dataclasses.replace(call, meta=OpaqueMeta("x")) for call in PLAIN.graph.ops)
            )
        ),
    )
    assert digest(bare) == digest(PLAIN)
    body = Graph(("v",), tuple(dataclasses.replace(call, meta=None) for call in INNER.ops), (R("t"),))
    assert digest(with_arg(Subgraph(body))) == digest(with_arg(Subgraph(INNER)))


def test_a_digest_is_the_same_in_every_process() -> None:
    asked = "from minify.case import digest; from tests.unit.test_case import PLAIN; print(digest(PLAIN))"
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        answer = subprocess.run(
            [sys.executable, "-c", asked], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        assert answer.stdout.strip() == digest(PLAIN)


# --- size ---------------------------------------------------------------------------------------------------------------

SMALL_TO_LARGE = [
    ("an op less", chain("x", ("torch.relu",)), PLAIN),
    (
        "a simpler op, whatever it returns",
        build(["x", "y"], [op("a", "torch.exp", R("x"))], ["a", "y"]),
        chain("x", ("torch.softmax",)),
    ),
    ("no write", chain("x", (".add", 1)), chain("x", (".add_", 1))),
    ("an operand less", chain("x", ("torch.foo", None)), chain("x", ("torch.foo", R("x")))),
    ("an output less", build(["x"], PLAIN.graph.ops, ["b"]), build(["x"], PLAIN.graph.ops, ["a", "b"])),
    ("an input less", build(["x"], PLAIN.graph.ops, ["b"]), build(["x", "y"], PLAIN.graph.ops, ["b"])),
    ("fewer elements", with_input(given("x", tensor((2, 8)))), with_input(given("x", tensor((4, 8))))),
    ("no backend option", PLAIN, with_settings(options=(("max_autotune", True),))),
    ("no config", PLAIN, with_settings(config=(("torch._inductor.config", "epilogue_fusion", False),))),
    ("a config less", with_settings(config=(("m", "a", 1),)), with_settings(config=(("m", "a", 1), ("m", "b", 1)))),
    ("no mode", PLAIN, with_settings(mode="max-autotune")),
    ("no grad mode", PLAIN, with_settings(grad_mode="grad")),
    ("no backward", with_settings(grad_mode="grad"), with_settings(grad_mode="grad", backward="ones")),
    (
        "plain cotangents",
        with_settings(grad_mode="grad", backward="ones"),
        with_settings(backward="randn", grad_mode="grad"),
    ),
    ("no autocast", PLAIN, with_settings(autocast=(("cpu", "bfloat16"),))),
    ("no switch", PLAIN, with_settings(switches=(("deterministic", True),))),
    ("no seed", PLAIN, with_settings(seed=3)),
    ("a plainer dtype", with_input(given("x")), with_input(given("x", tensor(dtype="bfloat16")))),
    ("a plainer layout", with_input(given("x")), with_input(given("x", tensor((4, 8), stride=(1, 4))))),
    ("no offset", with_input(given("x")), with_input(given("x", tensor(offset=2)))),
    ("no gradient", with_input(given("x")), with_input(given("x", tensor(requires_grad=True)))),
    ("no flag", with_input(given("x")), with_input(given("x", tensor(flags=("parameter",))))),
    ("a static dim", with_input(given("x")), with_input(given("x", dynamic=(0,)))),
    (
        "memory of its own",
        build(["x", "y"], [], []),
        build([given("x", tensor(storage=1)), given("y", tensor(storage=1))], [], []),
    ),
    ("a recipe", with_input(given("x", value=Recipe("randn"))), with_input(given("x"))),
    ("zeros", with_input(given("x", value=Recipe("zeros"))), with_input(given("x", value=Recipe("randn")))),
    ("an idiomatic call", chain("x", ("torch.relu",)), chain("x", ("torch.ops.aten.relu.default",))),
    ("a shorter number", chain("x", (".mul", 2)), chain("x", (".mul", 2.125))),
]


@pytest.mark.parametrize(
    ("smaller", "larger"), [row[1:] for row in SMALL_TO_LARGE], ids=[row[0] for row in SMALL_TO_LARGE]
)
def test_a_plainer_case_is_smaller(smaller: Case, larger: Case) -> None:
    assert size(smaller) < size(larger)


def test_ops_weigh_more_than_all_that_comes_after_them() -> None:
    one_op = build(
        [given(name, tensor((100, 100), "bfloat16")) for name in "xyz"], PLAIN.graph.ops[:1], ["a", "x", "y"]
    )
    assert size(one_op) < size(PLAIN)


def test_tuple_indexing_and_shape_reads_are_no_ops_of_their_own() -> None:
    case = build(
        ["x"],
        [
            op("m", "torch.max", R("x"), 0, meta=several(tensor((8,)), tensor((8,), "int64"))),
            op("g", "operator.getitem", R("m"), 0, meta=tensor((8,))),
            op("h", "operator.getitem", R("g"), 0, meta=tensor(())),
            op("n", ".size", R("x"), 0, meta=ScalarMeta(4)),
            op("s", ".sum", R("x"), 0),
        ],
        ["h"],
    )
    assert op_count(case.graph) == 3


def test_ops_inside_a_subgraph_count() -> None:
    assert op_count(with_arg(Subgraph(INNER)).graph) == 3


# --- arguments ----------------------------------------------------------------------------------------------------------

NESTED = (R("a"), ListArg((R("b"), 1)), DictArg((("k", R("c")),)), SliceArg(R("d"), None, R("a")), ("e", (R("f"),)))


def test_names_are_read_wherever_they_are() -> None:
    assert tuple(refs(NESTED)) == ("a", "b", "c", "d", "a", "f")
    assert op_refs(Op("y", "f", (NESTED, Subgraph(INNER)), (("key", R("g")),))) == ("a", "b", "c", "d", "a", "f", "g")


def test_arguments_are_rebuilt_leaf_by_leaf() -> None:
    def louder(leaf: Arg) -> Arg:
        return Ref(leaf.name.upper()) if isinstance(leaf, Ref) else leaf

    changed = (
        R("A"),
        ListArg((R("B"), 1)),
        DictArg((("k", R("C")),)),
        SliceArg(R("D"), None, R("A")),
        ("e", (R("F"),)),
    )
    assert map_arg(NESTED, louder) == changed
    before = op("y", "f", NESTED, key=R("g"))
    after = rewrite_op(before, louder)
    assert (after.args, after.kwargs, after.meta) == ((changed,), (("key", R("G")),), before.meta)


# --- on disk ------------------------------------------------------------------------------------------------------------


def test_a_saved_case_comes_back_the_same(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "folder" / "a.case"
    case = with_arg(Subgraph(INNER))
    cases.save(case, path)
    assert cases.load(path) == case
    assert cases.load(path).graph.ops[0].meta == case.graph.ops[0].meta
    assert [entry.name for entry in path.parent.iterdir()] == ["a.case"]


def test_a_save_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.case"
    cases.save(PLAIN, path)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        cases.save(with_settings(seed=1), path)
    assert cases.load(path) == PLAIN
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.case"]


GARBAGE = {
    "nothing": b"",
    "text": b"hello, this is no case at all",
    "half of one": pickle.dumps((cases.SCHEMA, PLAIN))[:100],
    "another object": pickle.dumps({"a": 1}),
    "a pair of others": pickle.dumps((cases.SCHEMA, "no case")),
    "another schema": pickle.dumps((cases.SCHEMA + 1, PLAIN)),
    "a class that is gone": b"cminify.case\nNoSuchClass\n.",
    "a module that is gone": b"cminify.no_such_module\nCase\n.",
    "an unknown opcode": b"\xff\xff",
    "a memo that is not there": b"h\x05.",
    "an empty stack": b".",
    "a bad number": b"Iabc\n.",
    "bad text": b"X\x02\x00\x00\x00\xff\xff.",
}


@pytest.mark.parametrize("content", GARBAGE.values(), ids=GARBAGE)
def test_a_file_that_is_no_case_is_a_value_error(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.case"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.case"):
        cases.load(path)


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        cases.load(tmp_path / "none.case")


def test_a_case_is_told_apart_from_its_settings_default() -> None:
    assert Case(PLAIN.program, PLAIN.inputs).settings == Settings()
