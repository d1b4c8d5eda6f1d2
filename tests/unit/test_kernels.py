"""Who is to blame, read off answers; which kernel is the first wrong one; and the texts and commands by which one is run alone."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.fx

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
    UNDEFINED,
    UNDEFINED_CODE,
    UNKNOWN,
    VECTORS,
    WRONG,
    Finding,
    Row,
    blame_cpp,
    blame_triton,
)
from minify.kernels.judge import BUILDS, CLOSER, first_wrong, judge
from minify.kernels.plain_triton import plain_triton
from minify.kernels.record import from_json, packed, to_json, unpacked
from minify.kernels.recorder import Recorder
from minify.kernels.tensors import content, memories, of_content, tensor_in
from minify.torch_internals import KernelArgument, KernelLaunch
from minify.truth import truths
from tests.kernels import POINTWISE, misread, one_kernel

X = torch.linspace(-2, 2, 12).reshape(3, 4)

# --- who is to blame ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "report", "blame"),
    [
        ({AS_BUILT: WRONG, "-O0": WRONG, SCALAR: WRONG}, WRONG, INDUCTOR),
        ({AS_BUILT: WRONG, "-O0": WRONG, SCALAR: WRONG}, UNDEFINED, INDUCTOR),
        ({AS_BUILT: WRONG, "-O0": RIGHT, SCALAR: WRONG}, WRONG, CPP_COMPILER),
        ({AS_BUILT: WRONG, "-O0": RIGHT, SCALAR: RIGHT}, RIGHT, CPP_COMPILER),
        ({AS_BUILT: WRONG, "-O0": RIGHT, SCALAR: WRONG}, UNDEFINED, UNDEFINED_CODE),
        ({AS_BUILT: WRONG, "-O0": WRONG, SCALAR: RIGHT}, WRONG, VECTORS),
        ({AS_BUILT: WRONG, "-O0": FAILED, SCALAR: RIGHT}, WRONG, CPP_COMPILER),
        ({AS_BUILT: RIGHT, "-O0": RIGHT, SCALAR: RIGHT}, RIGHT, UNKNOWN),
        ({AS_BUILT: RIGHT, "-O0": RIGHT, SCALAR: RIGHT}, INVALID_ACCESS, MEMORY),
        ({AS_BUILT: WRONG, "-O0": FAILED, SCALAR: FAILED}, FAILED, UNKNOWN),
        ({AS_BUILT: FAILED, "-O0": WRONG, SCALAR: WRONG}, WRONG, UNKNOWN),
    ],
)
def test_who_is_to_blame_for_a_cpp_kernel(answers: dict[str, str], report: str, blame: str) -> None:
    rows = [Row(how, answer) for how, answer in answers.items()]
    assert blame_cpp(rows, [Row("sanitizers", report)])[0] == blame


@pytest.mark.parametrize(
    ("answer", "agrees", "blame"),
    [
        (RIGHT, False, TRITON_COMPILER),
        (WRONG, True, INDUCTOR),
        (WRONG, False, UNKNOWN),
        (FAILED, None, UNKNOWN),
    ],
)
def test_who_is_to_blame_for_a_triton_kernel(answer: str, agrees: bool | None, blame: str) -> None:
    assert blame_triton(Row("interpreted", answer, agrees=agrees))[0] == blame


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({}, ()),
        ({"as launched": FAILED, "num_warps=1": RIGHT}, ()),
        ({"as launched": RIGHT, "num_warps=1": RIGHT}, ("launched again, alone, it is right",)),
        ({"as launched": WRONG, "num_warps=1": RIGHT, "XBLOCK=1": WRONG}, ("it is right with num_warps=1",)),
        ({"as launched": WRONG, "num_warps=1": WRONG}, ("it is wrong however it is launched",)),
    ],
)
def test_what_of_its_launch_the_triton_compilers_fault_depends_on(answers: dict[str, str], told: tuple[str]) -> None:
    launched = [Row(how, answer) for how, answer in answers.items()]
    assert blame_triton(Row("interpreted", RIGHT, agrees=False), launched) == (TRITON_COMPILER, told)


def test_a_finding_tells_the_kernel_what_it_writes_and_each_answer() -> None:
    kernel = one_kernel("cpp", "", {}, ("out_ptr0", 3 * X, 2 * X), {})
    (line,) = Finding(kernel, INDUCTOR, (Row(AS_BUILT, WRONG), Row("-O0", WRONG))).told
    assert "cpp_fused_0" in line and "buf0" in line and INDUCTOR in line and "-O0: wrong" in line


# --- the record -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_a_record_survives_its_file(dtype: torch.dtype) -> None:
    x = X.to(dtype)
    kernel = one_kernel("triton", "a\nb", {"x": x}, ("y", x, x), {"n": ("int64_t", 3)}, grid=(2, 1, 1))
    again = from_json(to_json(kernel))
    assert again == kernel
    assert torch.equal(tensor_in(memories(again)[0], again.argument("x")), x)
    assert torch.equal(of_content(content(x), str(dtype).removeprefix("torch."), x.shape), x)
    assert unpacked(packed([b"", b"ab"])) == [b"", b"ab"]


def test_tensors_of_one_memory_share_it_again() -> None:
    kernel = one_kernel("cpp", "", {"x": X}, ("y", X, X), {})
    part = dataclasses.replace(kernel.argument("x"), name="part", offset=16, shape=(2, 2), stride=(4, 2))
    held = memories(kernel)
    tensor_in(held[0], part).zero_()
    assert tensor_in(held[0], kernel.argument("x")).eq(0).sum() == 4


# --- what is due ------------------------------------------------------------------------------------------------------------


def traced(fn: Any) -> torch.fx.GraphModule:
    return torch.fx.symbolic_trace(fn)


def test_what_is_due_is_known_one_precision_up_even_where_the_graph_names_a_dtype() -> None:
    def fn(x: torch.Tensor) -> Any:
        half = torch.ops.aten._to_copy.default(x, dtype=torch.float16)
        return torch.ops.aten.sin.default(half)

    due = truths(traced(fn), [X], frozenset({"sin_default"}), 2)["sin_default"]
    assert due.eager.dtype == torch.float16 and due.reference.dtype == torch.float64
    assert torch.equal(due.reference, X.double().sin()) and len(due.shaken) == 2


def test_what_is_due_of_a_node_is_not_what_a_later_one_writes_to_its_memory() -> None:
    def fn(x: torch.Tensor) -> Any:
        first = torch.ops.aten.sin.default(x)
        return torch.ops.aten.add_.Tensor(first, 1)

    given = X.clone()
    due = truths(traced(fn), [given], frozenset({"sin_default", "add__tensor"}), 0)
    assert torch.equal(due["sin_default"].eager, X.sin()) and torch.equal(due["add__tensor"].eager, X.sin() + 1)
    assert torch.equal(given, X)


def test_inputs_that_overlap_or_share_memory_still_do() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        torch.ops.aten.add_.Tensor(x, 1)
        return torch.ops.aten.sin.default(y)

    memory = torch.ones(4)
    due = truths(traced(fn), [memory[:1], memory[:1].expand(3, 1)], frozenset({"sin_default"}))["sin_default"]
    assert torch.equal(due.eager, torch.full((3, 1), 2.0).sin()) and due.reference.shape == (3, 1)
    assert torch.equal(memory, torch.ones(4))


def test_random_numbers_are_drawn_alike_and_leave_the_generator_as_it_was() -> None:
    def fn(x: torch.Tensor) -> Any:
        return torch.ops.aten.add.Tensor(torch.ops.aten.rand_like.default(x), x)

    torch.manual_seed(3)
    due = truths(traced(fn), [X], frozenset({"rand_like_default"}))["rand_like_default"]
    assert torch.equal(due.eager, torch.rand_like(X)) and torch.equal(due.reference.float(), due.eager)


# --- the first wrong one ------------------------------------------------------------------------------------------------------


def chain(x: torch.Tensor) -> Any:
    first = torch.ops.aten.sin.default(x)
    second = torch.ops.aten.exp.default(first)
    return torch.ops.aten.neg.default(second)


NODES = {"sin_default": torch.sin, "exp_default": torch.exp, "neg_default": torch.neg}


def ran(recorder: Recorder, wrong: str = "", spoils: str = "") -> Recorder:
    """A program of three kernels, of which `wrong` writes something wrong, and whose result `spoils` is overwritten afterwards."""
    recorder.entered(traced(chain), [X], frozenset(NODES))
    held, buffer, node = X, "arg0", ""
    for place, (name, fn) in enumerate(NODES.items()):
        out = torch.zeros_like(X)
        arguments = [
            KernelArgument("in_ptr0", held, buffer, node),
            KernelArgument("out_ptr0", out, f"buf{place}", name, writes=True),
        ]
        launch = KernelLaunch("cpp", f"kernel_{name}", "text", arguments)
        with recorder.around(launch):
            out.copy_(fn(held) + (name == wrong))
        if name == spoils:
            out.add_(1)
        held, buffer, node = out, f"buf{place}", name
    return recorder


def test_the_first_kernel_that_writes_something_wrong_is_kept_with_what_it_was_given_and_no_later_one() -> None:
    recorder = ran(Recorder(), wrong="exp_default")
    (kernel,) = recorder.kernels
    assert (kernel.name, kernel.wrong, recorder.right) == ("kernel_exp_default", ("out_ptr0",), ["kernel_sin_default"])
    before, after = memories(kernel), memories(kernel, after=True)
    out = kernel.argument("out_ptr0")
    assert torch.equal(tensor_in(before[0], kernel.argument("in_ptr0")), X.sin())
    assert not tensor_in(before[1], out).any() and torch.equal(tensor_in(after[1], out), X.sin().exp() + 1)


def test_kernels_that_are_right_are_not_kept_unless_every_one_is_wanted() -> None:
    assert not ran(Recorder()).kernels
    assert [kernel.wrong for kernel in ran(Recorder(every=True)).kernels] == [(), (), ()]


def test_a_kernel_is_not_blamed_for_what_it_was_given_wrong() -> None:
    recorder = ran(Recorder(), spoils="sin_default")
    assert not recorder.kernels and recorder.spoilt == ["buf0"]
    assert "buf0 is wrong before" in first_wrong(recorder, recorder.tolerance).notes[0]


def test_a_kernel_with_too_much_in_hand_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minify.kernels.recorder.MOST_BYTES", 10)
    recorder = ran(Recorder(), wrong="exp_default")
    assert not recorder.kernels and "too much in hand" in first_wrong(recorder, recorder.tolerance).notes[0]


def test_a_buffer_of_which_nothing_is_known_is_told_of() -> None:
    recorder = Recorder()
    recorder.entered(traced(chain), [X], frozenset())
    with recorder.around(KernelLaunch("cpp", "k", "", [KernelArgument("out_ptr0", X, "buf7", "part", writes=True)])):
        pass
    assert recorder.unknown == ["buf7"] and "buf7" in first_wrong(recorder, recorder.tolerance).notes[-1]


# --- run alone --------------------------------------------------------------------------------------------------------------

VECTOR_FLAGS = ["-march=native", "-mavx2", "-mfma", "-mf16c"]
COMMAND = ["g++", "k.cpp", "-D", "CPU_CAPABILITY_AVX2", "-O3", "-DNDEBUG", "-ffp-contract=off", *VECTOR_FLAGS]


@pytest.mark.parametrize("build", [*BUILDS, *CLOSER], ids=lambda build: build.how)
def test_each_build_differs_from_inductors_by_what_it_says(build: Any) -> None:
    changed = build.change(list(COMMAND))
    lost, won = set(COMMAND) - set(changed), set(changed) - set(COMMAND)
    due: dict[str, tuple[set[str], set[str]]] = {
        AS_BUILT: (set(), set()),
        "-O0": ({"-O3"}, {"-O0"}),
        "-O1": ({"-O3"}, {"-O1"}),
        "-O2": ({"-O3"}, {"-O2"}),
        SCALAR: ({"CPU_CAPABILITY_AVX2", *VECTOR_FLAGS}, {"CPU_CAPABILITY_NEON"}),
        "sanitizers": ({"-O3"}, {"-O1", "-fsanitize=address,undefined", "-fno-sanitize=alignment"}),
        "no FP contraction": (set(), {"-fno-fast-math"}),
    }
    assert (lost, won) == due[build.how]


def test_a_text_with_wider_vectors_has_no_build_without_them() -> None:
    scalar = next(build for build in BUILDS if build.how == SCALAR)
    assert scalar.change(["g++", "-D", "CPU_CAPABILITY_AVX512", "-mavx512f"]) is None


def test_a_triton_kernel_is_left_with_jit_and_without_what_is_inductors_own() -> None:
    text = plain_triton(POINTWISE)
    compile(text, "plain", "exec")
    assert "triton_heuristics" not in text and "set_driver_to_gpu" not in text and "hints" not in text
    assert "@triton.jit\ndef triton_poi_fused_log1p_0(" in text
    assert "import math as tl_math" in text and "from minify.kernels.stand_ins import libdevice" in text
    assert text.endswith("KERNEL = triton_poi_fused_log1p_0\n")
    body = POINTWISE.split("@triton.jit\n")[1]
    assert body.strip() in text


def test_there_is_a_stand_in_for_each_function_of_cudas_that_inductor_calls() -> None:
    pytest.importorskip("triton")
    from minify.kernels.stand_ins import libdevice

    inductor = Path(torch.__file__).parent / "_inductor"
    texts = [(inductor / name).read_text() for name in ("codegen/triton.py", "runtime/triton_helpers.py")]
    called = {name for text in texts for name in re.findall(r"\blibdevice\.(\w+)", text)}
    assert "log1p" in called
    assert all(callable(getattr(libdevice, name)) for name in called)


@pytest.mark.parametrize("source", ["", "x = 1", "def f(:"])
def test_what_has_no_kernel_in_it_is_refused(source: str) -> None:
    with pytest.raises(ValueError):
        plain_triton(source)


def test_a_kernel_that_writes_nothing_wrong_is_not_judged() -> None:
    healthy = one_kernel("cpp", "no C++ at all", {"x": X}, ("y", X, X), {})
    assert judge(healthy, Recorder().tolerance).notes == ("it writes nothing wrong",)
    assert misread(healthy).wrong == ("y",)
