"""What every pass promises, checked over `PASSES` on a handful of cases that between them have every kind of site."""

from __future__ import annotations

import ast
import dataclasses
import pickle
from pathlib import Path

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

import minify.passes
from minify.case import (
    Case,
    Const,
    Derived,
    Graph,
    Input,
    Op,
    Recipe,
    Ref,
    ScalarInput,
    ScalarMeta,
    Settings,
    Subgraph,
    digest,
    size,
)
from minify.errors import InvalidCandidate
from minify.passes import PASSES, Pass, Site
from minify.passes.cut_ops import keep, op_names
from minify.passes.wellformed import faults, well_formed
from tests.cases import build, chain, given, nothing, op, several, tensor

R = Ref
SMALL = tensor((2, 8))
BRANCH = Subgraph(Graph(("t",), (op("y", "torch.relu", R("t")),), (R("y"),)))
CALLS = build(["x"], [op("a", ".apply", Const("Used"), R("x")), op("b", "torch.exp", R("a"))], ["b"])
EXAMPLES = {
    "a chain": chain("x", ("torch.relu",), (".mul", 2.0), ("torch.exp",)),
    "two outputs, an unread input": build(
        ["x", "w", "unread"],
        [op("a", "torch.relu", R("x")), op("b", "torch.mm", R("a"), R("w")), op("c", "torch.exp", R("a"))],
        ["b", "c"],
    ),
    "in-place writes": build(
        [given("x", tensor(storage=3)), given("i", tensor((4,), "int64"))],
        [
            op("a", ".index_fill_", R("x"), 0, R("i"), 3.0, meta=tensor(storage=3)),
            op("b", ".clone", R("x")),
            op("c", ".clamp_", R("x"), 0, 8, meta=tensor(storage=3)),
            op("s", "operator.setitem", R("b"), 0, 1.0, meta=nothing()),
            op("d", "torch.add", R("b"), R("c")),
        ],
        ["d"],
    ),
    "several results and shapes": build(
        [ScalarInput("n", 4, dynamic=True), given("x", dynamic=(0,))],
        [
            op("s", ".split", R("x"), 2, meta=several(SMALL, SMALL)),
            op("g", "operator.getitem", R("s"), 0, meta=SMALL),
            op("z", ".size", R("g"), 1, meta=ScalarMeta(8)),
            op("c", "torch.cat", R("s")),
            op("v", ".view", R("c"), (R("n"), R("z"))),
        ],
        ["g", "v"],
    ),
    "views of one storage": build(
        [
            given("x", tensor(storage=3)),
            given("y", tensor((8, 4), stride=(1, 8), storage=3)),
            given("w", tensor((3, 5))),
        ],
        [op("a", "torch.relu", R("x")), op("b", "torch.mm", R("a"), R("y")), op("c", "torch.sum", R("w"))],
        ["b", "c"],
    ),
    "a branch": build(
        ["x", "p"],
        [
            op("c", "torch.cond", R("p"), BRANCH, BRANCH, (R("x"),), meta=several(tensor())),
            op("g", "operator.getitem", R("c"), 0),
            op("b", "torch.exp", R("g")),
        ],
        ["b"],
    ),
    "a prelude": dataclasses.replace(
        CALLS, program=dataclasses.replace(CALLS.program, prelude="class Used: ...\nclass Unused: ...\n")
    ),
    "several dtypes": build(
        [
            given("x", tensor(dtype="float16")),
            given("y", tensor(dtype="float16")),
            given("z", tensor(dtype="complex128"), Recipe("randn")),
            given("i", tensor((4,), "int32")),
        ],
        [
            op("a", ".half", R("x")),
            op("b", "torch.add", R("a"), R("y")),
            op("c", ".to", R("b"), Const("torch.int32")),
            op("d", "torch.add", R("c"), R("z")),
            op("e", "torch.gather", R("d"), 0, R("i")),
        ],
        ["e"],
    ),
    "complex calls": build(
        ["x", "w", "m", given("n", tensor(), Recipe("randn"), dynamic=(1,))],
        [
            op("a", "torch.nn.functional.layer_norm", R("x"), (8,), R("w"), R("w"), 1e-5),
            op("b", "torch.max", R("a"), 1, meta=several(tensor((4,)), tensor((4,), "int64"))),
            op("c", "operator.getitem", R("b"), 0, meta=tensor((4,))),
            op("d", "torch.nn.functional.linear", R("c"), R("n"), bias=R("m")),
            op("e", "operator.iadd", R("d"), 1.0),
        ],
        ["d"],
    ),
    "ATen calls, settings, gradients": build(
        [
            given("x", tensor(requires_grad=True, flags=("parameter",)), Recipe("randn")),
            given("y", value=Derived("b", "y")),
        ],
        [op("a", "torch.ops.aten.add.Tensor", R("x"), R("y")), op("b", "torch.ops.aten.view.default", R("a"), (8, 4))],
        ["b"],
        Settings(
            mode="max-autotune",
            options=(("a", 1),),
            config=(("torch._inductor.config", "b", True),),
            grad_mode="grad",
            backward="randn",
            autocast=(("cpu", "bfloat16"),),
            switches=(("deterministic", True),),
            seed=3,
        ),
        level="aten",
    ),
}
EACH_PASS = pytest.mark.parametrize("edit", PASSES, ids=[edit.name for edit in PASSES])
EACH_CASE = pytest.mark.parametrize("case", EXAMPLES.values(), ids=EXAMPLES.keys())


def candidates(edit: Pass, case: Case) -> list[tuple[tuple[Site, ...], Case]]:
    """Each single site's candidate, and that of all sites where they add up."""
    sites = edit.find(case)
    chosen = [(site,) for site in sites] + ([] if edit.alternatives or len(sites) < 2 else [sites])
    found = []
    for some in chosen:
        try:
            found.append((some, edit.rewrite(case, some)))
        except InvalidCandidate:
            continue
    return found


@EACH_CASE
def test_the_examples_are_well_formed(case: Case) -> None:
    assert faults(case) == ()


def test_a_body_inside_a_tuple_is_looked_into() -> None:
    stray = Subgraph(Graph(("t",), (), (R("nowhere"),)), bare=True)
    (fault,) = faults(chain("x", ("f", (64, stray))))
    assert "nowhere" in fault


@EACH_PASS
@EACH_CASE
def test_a_pass_leaves_its_case_untouched(edit: Pass, case: Case) -> None:
    before = pickle.dumps(case)
    candidates(edit, case)
    assert pickle.dumps(case) == before


@EACH_PASS
@EACH_CASE
def test_the_same_case_has_the_same_sites_and_no_site_twice(edit: Pass, case: Case) -> None:
    sites = edit.find(case)
    assert sites == edit.find(pickle.loads(pickle.dumps(case)))
    assert len(set(sites)) == len(sites)


@EACH_PASS
@EACH_CASE
def test_the_same_edit_gives_the_same_case(edit: Pass, case: Case) -> None:
    for sites, candidate in candidates(edit, case):
        assert digest(edit.rewrite(case, sites)) == digest(candidate)


@EACH_PASS
@EACH_CASE
def test_every_candidate_is_well_formed(edit: Pass, case: Case) -> None:
    for sites, candidate in candidates(edit, case):
        assert faults(candidate) == (), sites


@EACH_PASS
@EACH_CASE
def test_every_candidate_is_smaller(edit: Pass, case: Case) -> None:
    for sites, candidate in candidates(edit, case):
        assert size(candidate) < size(case), sites


@EACH_PASS
def test_every_pass_applies_somewhere(edit: Pass) -> None:
    assert any(candidates(edit, case) for case in EXAMPLES.values())


@EACH_PASS
def test_repeating_a_pass_comes_to_an_end(edit: Pass) -> None:
    for case in EXAMPLES.values():
        for _ in range(200):
            found = candidates(edit, case)
            if not found:
                break
            case = found[0][1]
        else:
            pytest.fail(f"{edit.name} still finds sites after 200 rounds")


def test_the_order_of_the_passes_removes_structure_first() -> None:
    assert [edit.polish for edit in PASSES] == sorted(edit.polish for edit in PASSES)
    assert len({edit.name for edit in PASSES}) == len(PASSES)


def test_passes_import_no_torch() -> None:
    for path in Path(minify.passes.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "torch" for name in names), path


@st.composite
def programs(draw: st.DrawFn) -> Case:
    """Random programs with sharing, in-place writes, views, several results and shape reads."""
    inputs: list[Input] = [given(name, tensor(storage=number)) for number, name in enumerate("xy")]
    metas = {"x": tensor(storage=0), "y": tensor(storage=1)}
    ops: list[Op] = []
    for number in range(draw(st.integers(1, 8))):
        name = f"v{number}"
        source = draw(st.sampled_from(sorted(metas)))
        kind = draw(st.sampled_from(["pure", "in place", "view", "setitem", "split", "size"]))
        storage = metas[source].storage
        if kind == "pure":
            other = draw(st.sampled_from(sorted(metas)))
            ops.append(op(name, "torch.add", R(source), R(other), meta=tensor(storage=10 + number)))
            metas[name] = tensor(storage=10 + number)
        elif kind in ("in place", "view"):
            target = ".add_" if kind == "in place" else ".view"
            ops.append(op(name, target, R(source), (4, 8), meta=tensor(storage=storage)))
            metas[name] = tensor(storage=storage)
        elif kind == "setitem":
            ops.append(op(name, "operator.setitem", R(source), 0, 1.0, meta=nothing()))
        elif kind == "split":
            ops.append(op(name, ".split", R(source), 2, meta=several(tensor(storage=storage), tensor(storage=storage))))
            ops.append(op(f"{name}g", "operator.getitem", R(name), 1, meta=tensor(storage=storage)))
            metas[f"{name}g"] = tensor(storage=storage)
        else:
            ops.append(op(name, ".size", R(source), 0, meta=ScalarMeta(4)))
            ops.append(op(f"{name}e", ".expand", R(source), R(name), 8, meta=tensor(storage=storage)))
            metas[f"{name}e"] = tensor(storage=storage)
    outputs = draw(st.lists(st.sampled_from(sorted(metas)), min_size=1, unique=True))
    return build(inputs, ops, outputs)


@for_all(programs(), st.data())
def test_any_subset_of_any_program_is_a_case_of_just_these_ops(case: Case, data: st.DataObject) -> None:
    names = op_names(case)
    if not names:
        return
    chosen = data.draw(st.sets(st.sampled_from(names), min_size=1))
    for consumers in ("sinks", "outputs", "all_used"):
        candidate = keep(case, frozenset(chosen), "base", consumers)
        assert faults(candidate) == ()
        assert set(op_names(candidate)) == chosen
        assert len(set(candidate.graph.outputs)) == len(candidate.graph.outputs)


@for_all(programs())
def test_every_pass_gives_well_formed_cases_on_any_program(case: Case) -> None:
    for edit in PASSES:
        for sites, candidate in candidates(edit, case):
            assert well_formed(candidate), (edit.name, sites)
            assert size(candidate) < size(case), (edit.name, sites)
