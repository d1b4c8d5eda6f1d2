"""Parts of the real compiler left out one by one: each handle switches what it says, and an injected fault is found by it."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config

from minify import worker
from minify.ablation import WATCHED, Ablation, alone, without
from minify.case import Case, Const, Recipe, Ref, Settings
from minify.localize.inside import KINDS, Inside, look_inside
from minify.oracle.local import LocalOracle, Manner
from minify.verdict import Observation, Question, Signature, Verdict, accuracy_signature, classify
from tests.cases import build, given, op, tensor

R = Ref
RANDN = Recipe("randn")
INDUCTOR = "torch._inductor.config"


class InProcess:
    """Judges in this very process: no start-up to pay for."""

    def __init__(self, root: Path, check: str = "accuracy") -> None:
        self.root = root
        self.check = check
        self.queries = 0

    def judge_ablated(self, case: Case, ablations: Iterable[Ablation], signature: Signature) -> Iterator[Verdict]:
        for ablation in ablations:
            self.queries += 1
            yield classify(self.observe(case, ablation), signature)

    def observe(self, case: Case, ablation: Ablation | None) -> Observation:
        question = Question("judge", case, self.check, str(self.root), noise=1, ablation=ablation)
        return worker.judge(question, lambda phase: None)


def square(*calls: Any, prelude: str = "", settings: Settings | None = None) -> Case:
    """A program on two 8x8 matrices x and w, which returns the last call's result."""
    inputs = [given("x", tensor((8, 8)), RANDN), given("w", tensor((8, 8)), RANDN)]
    case = build(inputs, calls, [calls[-1].name], settings)
    return dataclasses.replace(case, program=dataclasses.replace(case.program, prelude=prelude))


def with_config(**changes: Any) -> Settings:
    return Settings(config=tuple((INDUCTOR, key, value) for key, value in changes.items()))


def looked(case: Case, root: Path, stage: str = "Inductor", check: str = "accuracy") -> Inside:
    oracle = InProcess(root, check)
    seen = oracle.observe(case, None)
    signature = seen.crash or accuracy_signature(seen.divergences)
    assert signature is not None, (seen.invalid, seen.drift)
    return look_inside(case, signature, oracle, stage)


def named(found: Inside) -> tuple[str, tuple[tuple[str, ...], ...]]:
    """The kind and the groups of names; every culprit has been confirmed pairwise."""
    culprit = found.culprit
    assert culprit is not None, (found.notes, found.table)
    watched, gone, *lone = culprit.confirmations
    assert watched.ablation == WATCHED and watched.fails
    groups = tuple(tuple(application.name for application in group) for group in culprit.groups)
    assert gone.passes and not any(gone.ablation.keeps(name) for group in groups for name in group)
    assert [row.ablation for row in lone] == [alone(culprit.kind, group) for group in groups]
    assert all(row.fails for row in lone) and culprit.minimal
    return culprit.kind, groups


# Nothing but matrix products: no C++ is generated, and a compile takes a fraction of a second.
PRODUCTS = (
    op("a", "torch.mm", R("x"), R("w")),
    op("b", "torch.mm", R("a"), R("x")),
    op("y", "torch.mm", R("b"), R("w")),
)
SWAPS = """
def swap(graph):
    node = list(graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default))[1]
    node.args = node.args[::-1]
"""
MARKS_AND_SWAPS = """
def mark(graph):
    list(graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default))[1].meta["odd"] = True

def swap(graph):
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default):
        if node.meta.get("odd"):
            node.args = node.args[::-1]
"""
SWAPS_BY_PATTERN = """
from torch._inductor import pattern_matcher as pm

patterns = pm.PatternMatcherPass()

@pm.register_graph_pattern(
    pm.CallFunction(torch.ops.aten.mm.default, pm.KeywordArg("a"), pm.KeywordArg("b")), pass_dict=patterns
)
def again(match, a, b):
    node, wrong = match.output_node(), a.op == "placeholder"
    fresh = match.graph.call_function(torch.ops.aten.mm.default, (b, a) if wrong else (a, b))
    fresh.meta.update(node.meta, done=True)
    node.replace_all_uses_with(fresh)
    match.erase_nodes()

def rewrite(graph):
    patterns.apply(graph)
"""


@pytest.mark.parametrize("hook", ["post_grad_custom_post_pass", "joint_custom_post_pass"])
def test_a_wrong_pass_is_named(hook: str, tmp_path: Path) -> None:
    found = looked(square(*PRODUCTS, prelude=SWAPS, settings=with_config(**{hook: Const("swap")})), tmp_path)
    kind, ((name,),) = named(found)
    assert (kind, name.split(".")[-1]) == ("pass", hook)
    assert found.culprit and "swap" in str(found.culprit)


def test_two_passes_that_are_wrong_only_together_are_both_named(tmp_path: Path) -> None:
    settings = with_config(post_grad_custom_pre_pass=Const("mark"), post_grad_custom_post_pass=Const("swap"))
    found = looked(square(*PRODUCTS, prelude=MARKS_AND_SWAPS, settings=settings), tmp_path)
    kind, (group,) = named(found)
    assert kind == "pass"
    assert [name.split(".")[-1] for name in group] == ["post_grad_custom_pre_pass", "post_grad_custom_post_pass"]


def test_a_wrong_match_of_a_pattern_is_named_and_not_the_pass_that_looks_for_it(tmp_path: Path) -> None:
    settings = with_config(post_grad_custom_post_pass=Const("rewrite"))
    found = looked(square(*PRODUCTS, prelude=SWAPS_BY_PATTERN, settings=settings), tmp_path)
    assert named(found) == ("pattern", (("again@mm",),))
    assert found.culprit and any("without any pass" in note for note in found.culprit.notes)


# --- lowering, and what stands behind it --------------------------------------------------------------------------------

SUMS = (op("a", "torch.cumsum", R("x"), 0), op("y", "torch.mm", R("a"), R("w")))
WRONG_LOWERING = """
from torch._inductor import lowering

right = lowering.lowerings[torch.ops.aten.cumsum.default]
if not hasattr(right, "right"):
    def wrong(x, axis=None, **kwargs):
        return right(x, 1 - axis, **kwargs)
    wrong.right = right
    lowering.lowerings[torch.ops.aten.cumsum.default] = wrong
"""
RAISING_LOWERING = WRONG_LOWERING.replace(
    "return right(x, 1 - axis, **kwargs)", "raise NotImplementedError('no such axis')"
)


@pytest.fixture
def lowerings_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lowering of cumsum is afterwards what it was, whatever a prelude does to it."""
    lowerings = importlib.import_module("torch._inductor.lowering").lowerings
    target = torch.ops.aten.cumsum.default
    monkeypatch.setitem(lowerings, target, lowerings[target])


@pytest.mark.usefixtures("lowerings_kept")
def test_a_wrong_lowering_is_named(tmp_path: Path) -> None:
    found = looked(square(*SUMS, prelude=WRONG_LOWERING), tmp_path)
    assert named(found) == ("lowering", (("cumsum",),))
    assert str(found.culprit) == "lowering cumsum (aten.cumsum.default)"


@pytest.mark.usefixtures("lowerings_kept")
def test_a_lowering_that_raises_is_named_and_what_it_never_came_to_is_not_asked(tmp_path: Path) -> None:
    found = looked(square(*SUMS, prelude=RAISING_LOWERING), tmp_path, check="crash")
    assert named(found) == ("lowering", (("cumsum",),))
    assert {row.ablation.kind: row.answer for row in found.table}["fusion"] == "none met"


def test_what_only_a_fallback_cures_is_a_lowering_that_may_stand_for_its_code(tmp_path: Path) -> None:
    """The fault is in the text that is generated for relu, vectorised or not."""
    settings = with_config(**{"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"})
    found = looked(
        square(op("a", "torch.relu", R("x")), op("y", "torch.mm", R("a"), R("w")), settings=settings), tmp_path
    )
    assert named(found) == ("lowering", (("relu",),))
    assert found.culprit and any("code generated for it" in note for note in found.culprit.notes)


# --- code generation ----------------------------------------------------------------------------------------------------

WRONG_VECTORS = """
from torch._inductor.codegen.cpp import CppVecOverrides

CppVecOverrides.exp = staticmethod(lambda x: f"{x}.exp() + decltype({x})(1)")
"""


def test_a_fault_of_vectorised_code_is_one_of_code_generation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors: Any = importlib.import_module("torch._inductor.codegen.cpp").CppVecOverrides
    monkeypatch.setattr(vectors, "exp", vars(vectors)["exp"])
    found = looked(square(op("y", "torch.exp", R("x")), prelude=WRONG_VECTORS), tmp_path)
    assert named(found) == ("codegen", (("cpp.simdlen",),))
    assert found.culprit and any("without any lowering" in note for note in found.culprit.notes)


# --- fusion -------------------------------------------------------------------------------------------------------------

# Kernels of `{most}` operations and more get relu wrong.
WRONG_WHEN_FUSED = """
import torch._inductor.config
from torch._inductor.codegen.cpp import CppScheduling

right = CppScheduling.codegen_node
if not hasattr(right, "right"):
    def wrong(self, node):
        bug = "accuracy" if len(node.get_nodes()) >= {most} else None
        with torch._inductor.config.patch({{"cpp.inject_relu_bug_TESTING_ONLY": bug}}):
            return right(self, node)
    wrong.right = right
    CppScheduling.codegen_node = wrong
"""
# Three loops that read one input, and so become one.
FANS = tuple(
    call
    for name, inner in (("p", "neg"), ("q", "sin"), ("y", "cos"))
    for call in (op(inner, f"torch.{inner}", R("x")), op(name, "torch.relu", R(inner)))
)


@pytest.fixture
def scheduling_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduling is afterwards as it was; and only those kinds are asked that can make a difference, each with C++ to compile."""
    kinds = tuple(kind for kind in KINDS if kind.name in ("lowering", "fusion", "memory"))
    monkeypatch.setattr("minify.localize.inside.KINDS", kinds)
    scheduling = importlib.import_module("torch._inductor.codegen.cpp").CppScheduling
    monkeypatch.setattr(scheduling, "codegen_node", vars(scheduling)["codegen_node"])


def fans(most: int) -> Case:
    case = square(*FANS, prelude=WRONG_WHEN_FUSED.format(most=most))
    outputs = (R("p"), R("q"), R("y"))
    graph = dataclasses.replace(case.graph, outputs=outputs)
    return dataclasses.replace(case, program=dataclasses.replace(case.program, graph=graph))


@pytest.mark.usefixtures("scheduling_kept")
def test_two_fusions_that_are_wrong_only_together_are_both_named(tmp_path: Path) -> None:
    kind, (group,) = named(looked(fans(3), tmp_path))
    assert kind == "fusion" and len(group) == 2


@pytest.mark.usefixtures("scheduling_kept")
def test_fusions_of_which_each_is_wrong_are_told_as_such(tmp_path: Path) -> None:
    kind, groups = named(looked(fans(2), tmp_path))
    assert kind == "fusion" and [len(group) for group in groups] == [1, 1]


# --- each handle switches -----------------------------------------------------------------------------------------------


def met(case: Case, ablation: Ablation, root: Path) -> dict[str, tuple[str, ...]]:
    seen = InProcess(root).observe(case, ablation)
    assert not seen.invalid and not seen.crash and not seen.divergences, seen
    return {listing.kind: listing.names for listing in seen.applications}


def test_each_fusion_can_be_left_out_by_itself(tmp_path: Path) -> None:
    metrics = importlib.import_module("torch._inductor.metrics")
    case = dataclasses.replace(fans(3), program=dataclasses.replace(fans(3).program, prelude=""))

    def kernels(ablation: Ablation) -> int:
        metrics.reset()
        assert met(case, ablation, tmp_path)
        return int(metrics.generated_kernel_count)

    names = met(case, WATCHED, tmp_path)["fusion"]
    assert len(names) == 2
    assert [kernels(each) for each in (WATCHED, alone("fusion"))] == [1, 3]
    assert [kernels(without("fusion", [name])) for name in names] == [2, 2]
    assert [kernels(alone("fusion", [name])) for name in names] == [2, 2]


def test_each_inlining_can_be_left_out_by_itself(tmp_path: Path) -> None:
    metrics = importlib.import_module("torch._inductor.metrics")
    case = square(op("a", "torch.neg", R("x")), op("b", "torch.exp", R("a")), op("y", "torch.sin", R("b")))

    def loops(ablation: Ablation) -> int:
        metrics.reset()
        assert met(case, ablation, tmp_path)
        return int(metrics.ir_nodes_pre_fusion)

    assert met(case, WATCHED, tmp_path)["inlining"] == ("neg", "exp")
    asked = (WATCHED, without("inlining", ["neg"]), alone("inlining", ["exp"]), alone("inlining"))
    assert [loops(each) for each in asked] == [1, 2, 2, 3]


def test_a_program_with_a_backward_has_names_of_its_own_for_it(tmp_path: Path) -> None:
    settings = Settings(grad_mode="grad", backward="ones")
    inputs = [given("x", tensor((8, 8), requires_grad=True), RANDN), given("w", tensor((8, 8)), RANDN)]
    case = build(inputs, [op("y", "torch.mm", R("x"), R("w"))], ["y"], settings)
    listed = met(case, WATCHED, tmp_path)
    assert {"mm", "backward.mm"} <= {name.replace("mm_1", "mm") for name in listed["lowering"]}
    assert (listed["partitioning"], listed["cse"]) == (("min-cut",), ("cse",))
    assert met(case, alone("partitioning"), tmp_path) == {"partitioning": ("min-cut",)}
    lowered = met(case, alone("lowering"), tmp_path)["lowering"]
    assert lowered == listed["lowering"]


def test_names_are_the_same_from_one_compile_to_the_next(tmp_path: Path) -> None:
    once, again = (InProcess(tmp_path).observe(fans(9), WATCHED).applications for _ in range(2))
    assert [(one.kind, one.names) for one in once] == [(one.kind, one.names) for one in again]


# --- inside AOTAutograd -------------------------------------------------------------------------------------------------

WRONG_DECOMPOSITION = """
from torch._inductor import decomposition

decomposition.decompositions[torch.ops.aten.silu.default] = lambda x: x * torch.sigmoid(x) + 0.5
decomposition.fast_random_decomps.cache_clear()
"""
WRONG_PARTITION = """
from torch._inductor import compile_fx

right = compile_fx.min_cut_rematerialization_partition
if not hasattr(right, "right"):
    def wrong(module, inputs, *args, **kwargs):
        forward, backward = right(module, inputs, *args, **kwargs)
        node = next(iter(backward.graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default)))
        node.args = node.args[::-1]
        backward.recompile()
        return forward, backward
    wrong.right = right
    compile_fx.min_cut_rematerialization_partition = wrong
"""


def test_a_wrong_decomposition_is_named_and_none_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decomposition: Any = importlib.import_module("torch._inductor.decomposition")
    silu = torch.ops.aten.silu.default
    monkeypatch.setitem(decomposition.decompositions, silu, decomposition.decompositions[silu])
    calls = (op("a", "torch.softmax", R("x"), 1), op("y", "torch.nn.functional.silu", R("a")))
    case = square(*calls, prelude=WRONG_DECOMPOSITION, settings=Settings(backend="aot_eager_decomp_partition"))
    try:
        assert named(looked(case, tmp_path, "decompositions")) == ("decomposition", (("aten.silu.default",),))
    finally:
        decomposition.fast_random_decomps.cache_clear()


# Both values are 0 as long as either op is right.
TWO_PRODUCTS = (
    op("a", "torch.nn.functional.silu", R("x")),
    op("s", "torch.sigmoid", R("x")),
    op("b", "torch.mul", R("x"), R("s")),
    op("c", "torch.sub", R("a"), R("b")),
    op("d", "torch.nn.functional.hardswish", R("w")),
    op("t", "torch.nn.functional.hardsigmoid", R("w")),
    op("e", "torch.mul", R("w"), R("t")),
    op("f", "torch.sub", R("d"), R("e")),
    op("y", "torch.mul", R("c"), R("f")),
)
TWO_WRONG_DECOMPOSITIONS = """
from torch._inductor import decomposition

wrong = decomposition.decompositions
wrong[torch.ops.aten.silu.default] = lambda x: x * torch.sigmoid(x) + 0.5
wrong[torch.ops.aten.hardswish.default] = lambda x: x * torch.clamp(x + 3, 0, 6) / 6 + 0.5
decomposition.fast_random_decomps.cache_clear()
"""


def test_two_decompositions_that_are_wrong_only_together_are_both_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decomposition: Any = importlib.import_module("torch._inductor.decomposition")
    for target in (torch.ops.aten.silu.default, torch.ops.aten.hardswish.default):
        monkeypatch.setitem(decomposition.decompositions, target, decomposition.decompositions[target])
    settings = Settings(backend="aot_eager_decomp_partition")
    case = square(*TWO_PRODUCTS, prelude=TWO_WRONG_DECOMPOSITIONS, settings=settings)
    try:
        found = looked(case, tmp_path, "decompositions")
    finally:
        decomposition.fast_random_decomps.cache_clear()
    assert named(found) == ("decomposition", (("aten.silu.default", "aten.hardswish.default"),))
    assert found.queries <= 40


# What is written at the end is what was there before: only a graph without writes in place is checked for having none.
DROPS_A_MUTATION = """
from torch._functorch._aot_autograd import graph_capture

right = graph_capture.assert_functional_graph
if not hasattr(right, "right"):
    def wrong(graph):
        for node in graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default):
            node.args = (node.args[0], node.args[0])
        return right(graph)
    wrong.right = right
    graph_capture.assert_functional_graph = wrong
"""


def test_a_mutation_that_functionalization_drops_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture: Any = importlib.import_module("torch._functorch._aot_autograd.graph_capture")
    monkeypatch.setattr(capture, "assert_functional_graph", capture.assert_functional_graph)
    calls = (op("a", ".add_", R("x"), R("w")), op("y", "torch.mm", R("a"), R("w")))
    case = square(*calls, prelude=DROPS_A_MUTATION, settings=Settings(backend="aot_eager"))
    found = looked(case, tmp_path, "AOTAutograd")
    assert named(found) == ("functionalization", (("functionalization",),))
    assert str(found.culprit) == "step functionalization"


# Merging equal calls merges two that are not: those that differ in a number only.
MERGES_TOO_MUCH = """
from torch._functorch import partitioners

right = partitioners.fx_graph_cse
if not hasattr(right, "right"):
    def wrong(graph):
        merged = right(graph)
        calls = list(merged.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor))
        calls[1].replace_all_uses_with(calls[0])
        return merged
    wrong.right = right
    partitioners.fx_graph_cse = wrong
"""


@pytest.mark.parametrize(
    ("backend", "stage"), [("aot_eager", "AOTAutograd"), ("aot_eager_decomp_partition", "decompositions")]
)
def test_equal_calls_that_are_merged_wrongly_are_told_from_the_cut(
    backend: str, stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitioners: Any = importlib.import_module("torch._functorch.partitioners")
    monkeypatch.setattr(partitioners, "fx_graph_cse", partitioners.fx_graph_cse)
    settings = Settings(grad_mode="grad", backward="ones", backend=backend)
    inputs = [given("x", tensor((8, 8), requires_grad=True), RANDN), given("w", tensor((8, 8)), RANDN)]
    calls = [op("a", "torch.mul", R("x"), 2), op("b", "torch.mul", R("x"), 3), op("y", "torch.mm", R("a"), R("b"))]
    case = build(inputs, calls, ["y"], settings)
    case = dataclasses.replace(case, program=dataclasses.replace(case.program, prelude=MERGES_TOO_MUCH))
    found = looked(case, tmp_path, stage)
    assert named(found) == ("cse", (("cse",),))
    assert found.culprit and any("without any partitioning as well" in note for note in found.culprit.notes)


def test_a_program_that_draws_random_numbers_is_not_blamed_on_a_decomposition(tmp_path: Path) -> None:
    call = op("y", "torch.nn.functional.dropout", R("x"), 0.5, True)
    case = square(call, settings=Settings(backend="aot_eager_decomp_partition"))
    seen = [InProcess(tmp_path).observe(case, each) for each in (WATCHED, alone("decomposition"))]
    assert [(one.random, one.divergences, one.invalid) for one in seen] == [(True, (), "")] * 2


def test_a_wrong_partition_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_fx: Any = importlib.import_module("torch._inductor.compile_fx")
    partition = "min_cut_rematerialization_partition"
    monkeypatch.setattr(compile_fx, partition, getattr(compile_fx, partition))
    settings = Settings(grad_mode="grad", backward="ones")
    inputs = [given("x", tensor((8, 8), requires_grad=True), RANDN), given("w", tensor((8, 8)), RANDN)]
    case = build(inputs, [op("y", "torch.mm", R("x"), R("w"))], ["y"], settings)
    case = dataclasses.replace(case, program=dataclasses.replace(case.program, prelude=WRONG_PARTITION))
    assert named(looked(case, tmp_path)) == ("partitioning", (("min-cut",),))


OWN_PARTITIONER = """
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.custom_graph_pass import CustomPartitionerFn

class Swapping(CustomPartitionerFn):
    def __call__(self, gm, joint_inputs, **kwargs):
        forward, backward = min_cut_rematerialization_partition(gm, joint_inputs, **kwargs)
        node = next(iter(backward.graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default)))
        node.args = node.args[::-1]
        backward.recompile()
        return forward, backward

    def uuid(self):
        return b"swapping"
"""


def test_a_partitioner_of_the_users_own_is_named(tmp_path: Path) -> None:
    settings = dataclasses.replace(
        with_config(custom_partitioner_fn=Const("Swapping()")), grad_mode="grad", backward="ones"
    )
    inputs = [given("x", tensor((8, 8), requires_grad=True), RANDN), given("w", tensor((8, 8)), RANDN)]
    case = build(inputs, [op("y", "torch.mm", R("x"), R("w"))], ["y"], settings)
    case = dataclasses.replace(case, program=dataclasses.replace(case.program, prelude=OWN_PARTITIONER))
    found = looked(case, tmp_path)
    assert named(found) == ("partitioning", (("custom_partitioner_fn",),))
    assert str(found.culprit) == "partitioning custom_partitioner_fn (Swapping)"


# --- through workers ----------------------------------------------------------------------------------------------------


def test_workers_find_the_same_and_answer_from_disk_the_second_time(tmp_path: Path) -> None:
    case = square(*PRODUCTS, prelude=SWAPS, settings=with_config(post_grad_custom_post_pass=Const("swap")))
    (tmp_path / "store").mkdir()
    found = []
    for _ in range(2):
        with LocalOracle(Manner("accuracy", tmp_path / "store"), tmp_path, 2) as oracle:
            found.append(look_inside(case, Signature("accuracy", "value", "value"), oracle))
    assert [named(each) for each in found] == [("pass", (("post_grad.post_grad_custom_post_pass",),))] * 2
    assert found[0].queries > 4 and found[1].queries == 0


DIES = """
import os
from torch._inductor import lowering

right = lowering.lowerings[torch.ops.aten.cumsum.default]
if not hasattr(right, "right"):
    @torch.library.custom_op("minify_tests::dies", mutates_args=())
    def dies(x: torch.Tensor) -> torch.Tensor:
        os.kill(os.getpid(), 11)
        return x.clone()

    dies.register_fake(torch.empty_like)
    falls_back = lowering.fallback_handler(torch.ops.minify_tests.dies.default, add_to_fallback_set=False)
    def wrong(x, axis=None, **kwargs):
        return falls_back(x)
    wrong.right = right
    lowering.lowerings[torch.ops.aten.cumsum.default] = wrong
"""


def test_a_lowering_whose_code_kills_the_process_is_named(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    with LocalOracle(Manner("crash", tmp_path / "store"), tmp_path, 2) as oracle:
        signature = Signature("crash", "signal", "SIGSEGV")
        found = look_inside(square(*SUMS, prelude=DIES), signature, oracle)
    assert named(found) == ("lowering", (("cumsum",),))
