"""Each kind really leaves out what it says: a fault that is there only while one part of torch is at work goes with just that part.

A fault asks no config. It is put where the part does its work, or sees in what the part left behind that it did.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from minify import worker
from minify.ablation import WATCHED, Ablation, alone, without
from minify.case import Case, Const, Recipe, Ref, Settings
from minify.localize.inside import KINDS
from minify.torch_internals.switches import owner
from minify.verdict import Observation, Question
from tests.cases import build, given, op, tensor

R = Ref
RANDN = Recipe("randn")
INDUCTOR = "torch._inductor.config"
GRAPH = "torch._inductor.graph:GraphLowering"
EXPS = ("torch._inductor.codegen.cpp:CppVecOverrides.exp", "torch._inductor.codegen.cpp:CppOverrides.exp")
MATRICES = (("x", (8, 8)), ("w", (8, 8)))

# `wrap` puts a function in the place of one of torch's. The code generated for exp is wrong while `acts()`, if that is defined.
# `V.graph` is the graph that is compiled: what is marked there is forgotten with it.
BASE = """
import torch
from torch._inductor.virtualized import V

def wrap(holder, name, make):
    right = vars(holder)[name]
    static = isinstance(right, staticmethod)
    made = make(right.__func__ if static else right)
    setattr(holder, name, staticmethod(made) if static else made)

def mark(*args):
    V.graph.part_at_work = True

def marked():
    return getattr(V.graph, "part_at_work", False)

def last_input_is_moved():
    return f"{list(V.graph.graph_inputs)[-1]}.add_(1)"
"""
WRONG_EXP = """
from torch._inductor.codegen import cpp

def off_by_one(right):
    def exp(x):
        return f"({right(x)} + decltype({x})(1))" if acts() else right(x)
    return exp

for overrides in (cpp.CppVecOverrides, cpp.CppOverrides):
    wrap(overrides, "exp", off_by_one)
"""


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault of what `prelude` does to torch at `places`; `kind` and `name` are of the one part that it is to go with."""

    kind: str
    name: str
    prelude: str
    places: tuple[str, ...]
    calls: tuple[Any, ...]
    inputs: tuple[tuple[str, tuple[int, ...]], ...] = MATRICES
    dtype: str = "float32"
    config: tuple[tuple[str, Any], ...] = ()

    @property
    def case(self) -> Case:
        inputs = [given(name, tensor(shape, self.dtype), RANDN) for name, shape in self.inputs]
        settings = Settings(config=tuple((INDUCTOR, key, value) for key, value in self.config))
        case = build(inputs, self.calls, [self.calls[-1].name], settings)
        return dataclasses.replace(case, program=dataclasses.replace(case.program, prelude=BASE + self.prelude))


PRODUCTS = (
    op("a", "torch.mm", R("x"), R("w")),
    op("b", "torch.mm", R("a"), R("x")),
    op("y", "torch.mm", R("b"), R("w")),
)
EXP_OF_PRODUCT = (op("a", "torch.mm", R("x"), R("w")), op("y", "torch.exp", R("a")))
FAULTS = (
    Fault(
        "precision",
        "emulate_precision_casts",
        """
def noting(right):
    def to_dtype(x, dtype, src_dtype=None, use_compute_types=True):
        if not use_compute_types:
            mark()
        return right(x, dtype, src_dtype, use_compute_types)
    return to_dtype

def acts():
    return not marked()
"""
        + WRONG_EXP
        + """
for overrides in (cpp.CppVecOverrides, cpp.CppOverrides):
    wrap(overrides, "to_dtype", noting)
""",
        (*EXPS, *(place.replace(".exp", ".to_dtype") for place in EXPS)),
        (op("a", "torch.neg", R("x")), op("y", "torch.exp", R("a"))),
        dtype="bfloat16",
    ),
    Fault(
        "layout",
        "shape_padding",
        """
from torch._inductor.fx_passes import pad_mm

considered = []

def noting(right):
    def check_device(a, b):
        considered.append(a)
        return right(a, b)
    return check_device

def swap(graph):
    if considered:
        node = next(iter(graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default)))
        node.args = node.args[::-1]
    considered.clear()

wrap(pad_mm, "check_device", noting)
""",
        ("torch._inductor.fx_passes.pad_mm:check_device",),
        PRODUCTS[:1],
        config=(("joint_custom_post_pass", Const("swap")),),
    ),
    Fault(
        "layout",
        "layout_optimization",
        """
from torch._inductor.graph import GraphLowering

def noting(right):
    def find(graph, *args):
        graph.part_at_work = True
        return right(graph, *args)
    return find

wrap(GraphLowering, "find_nodes_prefer_channels_last", noting)
acts = marked
"""
        + WRONG_EXP,
        (f"{GRAPH}.find_nodes_prefer_channels_last", *EXPS),
        (op("a", "torch.nn.functional.conv2d", R("x"), R("w")), op("y", "torch.exp", R("a"))),
        (("x", (1, 4, 8, 8)), ("w", (4, 4, 1, 1))),
    ),
    Fault(
        "layout",
        "comprehensive_padding",
        """
from torch._inductor.ir import Layout

def noting(right):
    def pad(in_strides, *args, **kwargs):
        strides = right(in_strides, *args, **kwargs)
        if list(strides) != list(in_strides):
            mark()
        return strides
    return pad

wrap(Layout, "_pad_strides", noting)
acts = marked
"""
        + WRONG_EXP,
        ("torch._inductor.ir:Layout._pad_strides", *EXPS),
        (op("a", "torch.neg", R("x")), op("b", "torch.mm", R("a"), R("w")), op("y", "torch.exp", R("b"))),
        config=(("disable_padding_cpu", False), ("padding_stride_threshold", 0)),
    ),
    Fault(
        "memory",
        "reorder_for_peak_memory",
        """
from torch._inductor import memory

def noting(right):
    def reorder(*args, **kwargs):
        mark()
        return right(*args, **kwargs)
    return reorder

wrap(memory, "reorder_for_peak_memory", noting)
acts = marked
"""
        + WRONG_EXP,
        ("torch._inductor.memory:reorder_for_peak_memory", *EXPS),
        EXP_OF_PRODUCT,
    ),
    Fault(
        "memory",
        "memory_planning",
        """
from torch._inductor.codegen.memory_planning import MemoryPlanner

def moving(right):
    def plan(planner, lines):
        return [last_input_is_moved(), *right(planner, lines)]
    return plan

wrap(MemoryPlanner, "plan", moving)
""",
        ("torch._inductor.codegen.memory_planning:MemoryPlanner.plan",),
        PRODUCTS,
        config=(("memory_planning", True),),
    ),
    Fault(
        "memory",
        "allow_buffer_reuse",
        """
from torch._inductor.codegen.wrapper import ReuseLine

def moving(right):
    def codegen(line, code):
        right(line, code)
        code.writeline(last_input_is_moved())
    return codegen

wrap(ReuseLine, "codegen", moving)
""",
        ("torch._inductor.codegen.wrapper:ReuseLine.codegen",),
        PRODUCTS,
    ),
    Fault(
        "memory",
        "inplace_buffers",
        """
from torch._inductor.codegen.common import KernelArgs

def noting(right):
    def make_inplace(args, *names):
        mark()
        return right(args, *names)
    return make_inplace

wrap(KernelArgs, "make_inplace", noting)
acts = marked
"""
        + WRONG_EXP,
        ("torch._inductor.codegen.common:KernelArgs.make_inplace", *EXPS),
        EXP_OF_PRODUCT,
    ),
    Fault(
        "inlining",
        "neg",
        """
from torch._inductor.codegen.cpp import CppScheduling

def noting(right):
    def codegen_node(scheduling, node):
        bodies = [
            {call.target for call in each._body.root_block.graph.nodes if call.op == "call_method"} for each in node.get_nodes()
        ]
        if any({"neg", "exp"} <= calls for calls in bodies):
            mark()
        return right(scheduling, node)
    return codegen_node

wrap(CppScheduling, "codegen_node", noting)
acts = marked
"""
        + WRONG_EXP,
        ("torch._inductor.codegen.cpp:CppScheduling.codegen_node", *EXPS),
        (op("a", "torch.neg", R("x")), op("b", "torch.exp", R("a")), op("y", "torch.sin", R("b"))),
    ),
)  # fmt: skip


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Afterwards what stood at some places of torch stands there again."""

    def keep(places: tuple[str, ...]) -> None:
        for place in places:
            holder, name = owner(place)
            monkeypatch.setattr(holder, name, vars(holder)[name])

    return keep


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.kind}-{fault.name}")
def test_a_fault_of_one_part_goes_with_it_and_stays_with_it(fault: Fault, tmp_path: Path, kept: Any) -> None:
    kept(fault.places)

    def observe(ablation: Ablation) -> Observation:
        question = Question("judge", fault.case, "accuracy", str(tmp_path), noise=1, ablation=ablation)
        seen = worker.judge(question, lambda phase: None)
        assert not seen.invalid and not seen.crash, seen
        return seen

    watched = observe(WATCHED)
    assert watched.divergences, "the fault shows"
    listed = {listing.kind: listing.names for listing in watched.applications}[fault.kind]
    assert fault.name in listed
    assert not observe(alone(fault.kind)).divergences, "without any of the kind"
    assert not observe(without(fault.kind, [fault.name])).divergences, "without it"
    assert observe(alone(fault.kind, [fault.name])).divergences, "with it alone of its kind"
    if others := [name for name in listed if name != fault.name]:
        assert observe(without(fault.kind, others)).divergences, "without all others"


def test_every_kind_of_many_options_has_a_fault_for_each_that_a_cpu_can_come_to() -> None:
    from minify.torch_internals.inductor_options import OPTIONS

    here = {(option.kind, option.key) for option in OPTIONS if option.kind in ("precision", "layout", "memory")}
    assert here == {(fault.kind, fault.name) for fault in FAULTS if fault.kind != "inlining"}
    assert {fault.kind for fault in FAULTS} <= {kind.name for kind in KINDS}
