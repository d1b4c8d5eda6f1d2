"""Recorded kernels run alone: C++ that is built otherwise, Triton that is interpreted; and who is to blame for what they write.

The Triton kernels are Inductor's, as `scripts/record_kernels.py` recorded them; no GPU is needed here.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch

from minify.case import Case, Const, Recipe, Ref, Settings
from minify.kernels import judge as judging
from minify.kernels.finding import (
    AS_BUILT,
    CPP_COMPILER,
    FAILED,
    INDUCTOR,
    INVALID_ACCESS,
    MEMORY,
    RIGHT,
    SCALAR,
    TRITON_COMPILER,
    UNDEFINED_CODE,
    UNKNOWN,
    VECTORS,
    WRONG,
    Finding,
    Row,
)
from minify.kernels.judge import AS_LAUNCHED, interpreted, judge, launches
from minify.kernels.record import Kernel, from_json, to_json
from minify.oracle.local import LocalOracle, Manner
from minify.tolerance import Tolerance
from tests.cases import build, given, op, tensor
from tests.kernels import POINTWISE, misread, one_kernel

needs_gcc = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here")
SIZE = 37
INDUCTOR_CONFIG = "torch._inductor.config"
SOURCE = """
#include <cstdint>
#include <cmath>
extern "C" void kernel(const float* in_ptr0, float* out_ptr0, const int64_t ks0)
{{
    for (int64_t x0 = 0; x0 < ks0; x0 += 1)
    {{
        {body}
    }}
}}
"""
VECTORISED = """
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C" void kernel(const float* in_ptr0, float* out_ptr0, const int64_t ks0)
{
    for (int64_t x0 = 0; x0 < 32; x0 += 8)
    {
        auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + x0, 8);
#ifdef CPU_CAPABILITY_AVX2
        auto tmp1 = tmp0 + tmp0 + tmp0;
#else
        auto tmp1 = tmp0 + tmp0;
#endif
        tmp1.store(out_ptr0 + x0);
    }
    for (int64_t x0 = 32; x0 < ks0; x0 += 1) out_ptr0[x0] = 2 * in_ptr0[x0];
}
"""


def doubled(source: str, wrong: float = 3.0) -> Kernel:
    """A C++ kernel that is to double its input, and was seen to multiply it by `wrong`."""
    x = torch.linspace(-2, 2, SIZE)
    return one_kernel("cpp", source, {"in_ptr0": x}, ("out_ptr0", wrong * x, 2 * x), {"ks0": ("const int64_t", SIZE)})


def answers(found: Finding) -> dict[str, str]:
    return {row.how: row.answer for row in found.rows}


# --- C++ ------------------------------------------------------------------------------------------------------------------


@needs_gcc
def test_a_kernel_that_is_wrong_however_it_is_built_was_generated_wrong() -> None:
    found = judge(doubled(SOURCE.format(body="out_ptr0[x0] = 3 * in_ptr0[x0];")), Tolerance())
    assert found.blame == INDUCTOR
    assert set(answers(found).values()) == {WRONG} and {AS_BUILT, "-O0", SCALAR} < set(answers(found))


@needs_gcc
def test_a_kernel_that_is_right_without_optimisation_is_the_compilers_to_answer_for() -> None:
    """What the preprocessor knows stands for a fault of the optimiser."""
    body = "#ifdef __OPTIMIZE__\n out_ptr0[x0] = 3 * in_ptr0[x0];\n#else\n out_ptr0[x0] = 2 * in_ptr0[x0];\n#endif"
    found = judge(doubled(SOURCE.format(body=body)), Tolerance())
    assert found.blame == CPP_COMPILER
    assert (answers(found)[AS_BUILT], answers(found)["-O0"], answers(found)["-O2"]) == (WRONG, RIGHT, WRONG)
    assert "it is right built with -O0" in found.notes


@needs_gcc
def test_a_kernel_that_is_right_without_vector_instructions_calls_wrong_vectorised_functions() -> None:
    found = judge(doubled(VECTORISED), Tolerance())
    if answers(found)[AS_BUILT] != WRONG or answers(found)[SCALAR] == FAILED:
        pytest.skip("no AVX2 here, or vectors that are wider")
    assert found.blame == VECTORS and answers(found)[SCALAR] == RIGHT


@needs_gcc
def test_a_kernel_that_reads_past_its_input_is_told_of_as_such() -> None:
    found = judge(doubled(SOURCE.format(body="out_ptr0[x0] = 2 * in_ptr0[x0 + 1];")), Tolerance())
    assert found.blame == MEMORY and answers(found)["sanitizers"] == INVALID_ACCESS
    assert any("heap-buffer-overflow" in note for note in found.notes)


@needs_gcc
def test_builds_that_disagree_over_undefined_behaviour_do_not_accuse_the_compiler() -> None:
    body = """
        volatile int shift = 40;
        int one = 1 << shift;
#ifdef __OPTIMIZE__
        out_ptr0[x0] = 3 * in_ptr0[x0] + 0 * one;
#else
        out_ptr0[x0] = 2 * in_ptr0[x0];
#endif"""
    found = judge(doubled(SOURCE.format(body=body)), Tolerance())
    assert found.blame == UNDEFINED_CODE and any("shift" in note for note in found.notes)


@needs_gcc
def test_a_kernel_that_hangs_alone_or_dies_says_nothing_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "RUN_SECONDS", 2.0)
    monkeypatch.setattr(judging, "BUILDS", judging.BUILDS[:2])
    hanging = judge(doubled(SOURCE.format(body="volatile int on = 1; while (on) {}")), Tolerance())
    dying = judge(doubled(SOURCE.format(body="volatile int* at = nullptr; *at = 1;")), Tolerance())
    assert hanging.blame == dying.blame == UNKNOWN
    assert all(row.answer == FAILED and "still running" in row.why for row in hanging.rows)
    assert all(row.answer == FAILED and "signal 11" in row.why for row in dying.rows)


# --- the whole way ----------------------------------------------------------------------------------------------------------
def watched(case: Case, root: Path) -> Finding:
    """Asked of a worker: what other tests in this process did to the compiler is none of its business."""
    with LocalOracle(Manner("accuracy", root / "store"), root / "out", 1) as oracle:
        found = oracle.wrong_kernel(case)
    assert found is not None
    return found


def relu_between_products(**config: str) -> Case:
    """Two kernels with a matrix product between them: only the second has a relu."""
    calls = (
        op("a", "torch.sin", Ref("x")),
        op("b", "torch.mm", Ref("a"), Ref("w")),
        op("c", "torch.relu", Ref("b")),
        op("d", "torch.mm", Ref("c"), Ref("w")),
        op("y", "torch.exp", Ref("d")),
    )
    inputs = [given(name, tensor((8, 8)), Recipe("randn")) for name in "xw"]
    changes = tuple((INDUCTOR_CONFIG, key, value) for key, value in config.items())
    return build(inputs, calls, ["y"], Settings(config=changes))


@needs_gcc
def test_the_kernel_that_writes_the_first_wrong_values_is_cut_out_with_its_inputs(
    tmp_path: Path,
) -> None:
    found = watched(relu_between_products(**{"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}), tmp_path)
    assert found.kernel is not None, found.notes
    assert "relu" in found.kernel.name and found.blame == INDUCTOR
    assert [found.kernel.argument(name).node for name in found.kernel.wrong] == ["relu"]
    assert found.rows[0].agrees  # alone, on what was recorded, it leaves what it left in the program
    found.keep(tmp_path)
    assert (tmp_path / "kernel.cpp").read_text() == found.kernel.source
    assert from_json((tmp_path / "kernel.json").read_text()) == found.kernel


@needs_gcc
def test_of_a_healthy_program_no_kernel_is_accused(tmp_path: Path) -> None:
    found = watched(relu_between_products(), tmp_path)
    assert found.kernel is None and not found.blame
    assert found.notes == ("no generated kernel does otherwise than its graph says (3 were seen)",)


@needs_gcc
def test_what_a_pass_got_wrong_is_not_laid_to_a_kernel(tmp_path: Path) -> None:
    """The graph that the kernels were made of is wrong already."""
    prelude = """
def swap(graph):
    node = list(graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default))[1]
    node.args = node.args[::-1]
"""
    case = relu_between_products(post_grad_custom_post_pass=Const("swap"))
    case = dataclasses.replace(case, program=dataclasses.replace(case.program, prelude=prelude))
    assert watched(case, tmp_path).kernel is None


# --- Triton -----------------------------------------------------------------------------------------------------------------

RECORDS = sorted((Path(__file__).parents[1] / "data" / "kernels").glob("*.json"))


def by_hand(seen: float = 1.0) -> Kernel:
    x = torch.linspace(-3, 3, 143)
    due = torch.log1p(x.abs())
    launch = {"grid": (2, 1, 1), "constants": {"XBLOCK": 128}}
    return one_kernel(
        "triton", POINTWISE, {"in_ptr0": x}, ("out_ptr0", seen * due, due), {"xnumel": ("", 143)}, **launch
    )


def ran(kernel: Kernel, folder: Path) -> Row:
    (folder / "record.json").write_text(to_json(kernel))
    return interpreted(kernel, folder, Tolerance())


def test_a_kernel_that_is_right_under_the_interpreter_is_the_triton_compilers_to_answer_for() -> None:
    assert judge(by_hand(seen=2.0), Tolerance()).blame == TRITON_COMPILER


def test_however_a_kernel_is_launched_it_computes_the_same(tmp_path: Path) -> None:
    kernel = dataclasses.replace(by_hand(), options={"num_warps": 4, "num_stages": 2})
    names, others = zip(*launches(kernel), strict=True)
    assert names == (AS_LAUNCHED, "num_warps=1", "num_warps=8", "num_stages=1", "XBLOCK=64")
    assert ran(others[-1], tmp_path).answer == RIGHT


@pytest.mark.gpu
def test_what_of_its_launch_a_fault_depends_on_is_tried_on_the_gpu() -> None:
    kernel = dataclasses.replace(by_hand(seen=2.0), options={"num_warps": 4, "num_stages": 2})
    found = judge(kernel, Tolerance())
    assert found.blame == TRITON_COMPILER and found.notes == ("launched again, alone, it is right",)
    assert [row.answer for row in found.rows] == [RIGHT] * 6


def test_a_kernel_that_is_wrong_under_the_interpreter_as_on_the_gpu_was_generated_wrong() -> None:
    wrong = dataclasses.replace(by_hand(seen=2.0), source=POINTWISE.replace("tmp2, xmask", "tmp2 + tmp2, xmask"))
    assert judge(wrong, Tolerance()).blame == INDUCTOR


def test_a_kernel_that_is_wrong_under_the_interpreter_in_a_way_of_its_own_accuses_nobody() -> None:
    odd = dataclasses.replace(by_hand(seen=2.0), source=POINTWISE.replace("tmp2, xmask", "tmp2 + 7, xmask"))
    found = judge(odd, Tolerance())
    assert found.blame == UNKNOWN and found.rows[0].numbers is not None


def test_a_kernel_that_the_interpreter_cannot_run_accuses_nobody_and_says_why() -> None:
    unknown = dataclasses.replace(by_hand(seen=2.0), source=POINTWISE.replace("libdevice.log1p", "libdevice.no_such"))
    found = judge(unknown, Tolerance())
    assert found.blame == UNKNOWN and any("no stand-in for libdevice.no_such" in note for note in found.notes)


def test_enough_kernels_were_recorded() -> None:
    names = {path.stem for path in RECORDS}
    assert {"pointwise", "reduction", "persistent_reduction", "welford", "scan", "matmul_epilogue"} <= names
    assert sum(name.startswith("wrong_") for name in names) >= 2
    assert any(name.startswith("miscompiled_") for name in names)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_each_recorded_kernel_is_judged_right(path: Path, tmp_path: Path) -> None:
    kernel = from_json(path.read_text())
    if path.stem.startswith(("wrong_", "miscompiled_")):
        due = INDUCTOR if path.stem.startswith("wrong_") else TRITON_COMPILER
        assert judge(kernel, Tolerance()).blame == due
        return
    row = ran(misread(kernel), tmp_path)
    assert (row.answer, row.agrees) == (RIGHT, False), row
