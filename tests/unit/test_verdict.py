"""From what a worker saw to the oracle's answer, and what makes two crashes the same crash."""

from __future__ import annotations

import math
import subprocess

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch._inductor.exc import CppCompileError

from minify import crashes
from minify.verdict import (
    METADATA_KINDS,
    VALUE_KINDS,
    Divergence,
    Observation,
    Outcome,
    Signature,
    Verdict,
    accuracy_signature,
    classify,
    loudness,
)

VALUE = Signature("accuracy", "value", "value")
STRIDE = Signature("accuracy", "metadata", "stride")
RAISED = Signature("crash", "exception", "RuntimeError", "lowering.py:relu", "bad #")
OTHER = Signature("crash", "exception", "RuntimeError", "lowering.py:relu", "worse #")
SEGFAULT = Signature("crash", "signal", "SIGSEGV")
HANG = Signature("crash", "hang", "hang")


def seen(*kinds: str, **facts: object) -> Observation:
    return Observation("compare", divergences=tuple(Divergence("output:y", kind) for kind in kinds), **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("observation", "wanted", "outcome"),
    [
        (seen(), VALUE, Outcome.PASSES),
        (seen(), RAISED, Outcome.PASSES),
        (seen("value"), VALUE, Outcome.FAILS),
        (seen("integer"), VALUE, Outcome.FAILS),
        (seen("nonfinite"), VALUE, Outcome.FAILS),
        (seen("stride", "nonfinite"), VALUE, Outcome.FAILS),
        (seen("stride"), VALUE, Outcome.SLIPPED),
        (seen("dtype"), VALUE, Outcome.SLIPPED),
        (seen("stride"), STRIDE, Outcome.FAILS),
        (seen("stride", "value"), STRIDE, Outcome.FAILS),
        (seen("dtype"), STRIDE, Outcome.SLIPPED),
        (seen("value"), STRIDE, Outcome.SLIPPED),
        (seen("value"), RAISED, Outcome.SLIPPED),
        (seen(crash=RAISED), VALUE, Outcome.SLIPPED),
        (seen(crash=SEGFAULT), VALUE, Outcome.SLIPPED),
        (seen(crash=RAISED), RAISED, Outcome.FAILS),
        (seen(crash=OTHER), RAISED, Outcome.SLIPPED),
        (seen(crash=SEGFAULT), RAISED, Outcome.SLIPPED),
        (seen(crash=SEGFAULT), SEGFAULT, Outcome.FAILS),
        (seen(crash=HANG, timed_out=True), HANG, Outcome.FAILS),
        (seen(crash=HANG, timed_out=True), VALUE, Outcome.TIMED_OUT),
        (seen(crash=HANG, timed_out=True), RAISED, Outcome.TIMED_OUT),
        (seen(timed_out=True), VALUE, Outcome.TIMED_OUT),
        (seen(invalid="eager raises"), VALUE, Outcome.INVALID),
        (seen("value", invalid="eager raises"), VALUE, Outcome.INVALID),
        (seen(worker_lost="SIGKILL"), VALUE, Outcome.BROKEN_WORKER),
        (seen(crash=HANG, timed_out=True, worker_lost="SIGKILL"), HANG, Outcome.BROKEN_WORKER),
        (Observation("compare", drift=(Divergence("output:y", "value"),)), VALUE, Outcome.PASSES),
    ],
)
def test_an_observation_becomes_an_outcome(observation: Observation, wanted: Signature, outcome: Outcome) -> None:
    verdict = classify(observation, wanted)
    assert verdict.outcome is outcome
    assert verdict.fails is (outcome is Outcome.FAILS)
    assert verdict.observation is observation


@pytest.mark.parametrize(
    ("observation", "signature"),
    [
        (seen("integer"), VALUE),  # accepted as the failure that was asked for
        (seen(crash=RAISED), RAISED),
        (seen("stride"), STRIDE),
        (seen("stride", "integer", "dtype"), Signature("accuracy", "value", "integer")),
        (seen(), None),
    ],
)
def test_a_verdict_names_what_was_seen(observation: Observation, signature: Signature | None) -> None:
    assert classify(observation, VALUE).signature == signature or observation.divergences


def off_by(*ratios: float) -> tuple[Divergence, ...]:
    return tuple(Divergence("output:y", "value", ratio=ratio) for ratio in ratios)


@pytest.mark.parametrize(
    ("original", "candidate", "outcome"),
    [
        (off_by(50.0), off_by(10.0), Outcome.FAILS),
        (off_by(50.0), off_by(9.0), Outcome.SLIPPED),
        (off_by(50.0), off_by(9.0, 11.0), Outcome.FAILS),
        (off_by(5.0, 50.0), off_by(9.0), Outcome.SLIPPED),
        (off_by(1e9), off_by(20.0), Outcome.FAILS),
        (off_by(1e9), off_by(19.0), Outcome.SLIPPED),
        (off_by(50.0), seen("integer").divergences, Outcome.FAILS),
        (seen("nonfinite").divergences, off_by(20.0), Outcome.FAILS),
        (seen("integer").divergences, off_by(19.0), Outcome.SLIPPED),
        (seen("nonfinite", "value").divergences, off_by(1.0), Outcome.FAILS),
        (seen("stride").divergences, (*off_by(0.1), Divergence("output:y", "stride")), Outcome.FAILS),
    ],
)
def test_a_wrong_float_has_to_stay_as_far_beyond_rounding_as_a_fifth_of_the_original(
    original: tuple[Divergence, ...], candidate: tuple[Divergence, ...], outcome: Outcome
) -> None:
    wanted = accuracy_signature(original)
    assert wanted is not None
    assert classify(Observation("compare", divergences=candidate), wanted).outcome is outcome


def test_how_far_off_it_was_is_no_part_of_a_failures_identity() -> None:
    near, far = accuracy_signature(off_by(10.0)), accuracy_signature(off_by(90.0))
    assert near == far == VALUE and hash(near) == hash(far)


LOUD = Signature("accuracy", "value", "value", least=50.0)


@pytest.mark.parametrize(
    ("rows", "outcome"),
    [
        ([("value", 49.0)], Outcome.PASSES),
        ([("value", 50.0)], Outcome.FAILS),
        ([("value", 49.0), ("value", 60.0)], Outcome.FAILS),
        ([("value", 49.0), ("stride", 0.0)], Outcome.SLIPPED),
        ([("value", 49.0), ("integer", 1.0)], Outcome.SLIPPED),
        ([("nonfinite", 0.0)], Outcome.SLIPPED),
        ([("value", 50.0), ("nonfinite", 0.0)], Outcome.FAILS),
    ],
)
def test_a_float_that_is_less_wrong_than_it_has_to_be_is_right_and_what_is_no_float_is_another_failure(
    rows: list[tuple[str, float]], outcome: Outcome
) -> None:
    found = tuple(Divergence("output:y", kind, excess=excess) for kind, excess in rows)
    assert classify(Observation("compare", divergences=found), LOUD).outcome is outcome
    assert classify(Observation("compare", divergences=found), VALUE).outcome is Outcome.FAILS


@pytest.mark.parametrize(
    ("rows", "least"),
    [
        ([("value", 1234.0), ("value", 30.0)], 200.0),
        ([("value", 2.0)], 0.0),
        ([("integer", 900.0), ("nonfinite", 900.0)], 0.0),
        ([("value", math.inf), ("value", 1000.0)], 200.0),
        ([], 0.0),
    ],
)
def test_a_fifth_of_the_worst_float_is_as_loud(rows: list[tuple[str, float]], least: float) -> None:
    assert loudness(tuple(Divergence("output:y", kind, excess=excess) for kind, excess in rows)) == least


LATE = Observation("eager", invalid="eager ends with timeout", timed_out=True)


@pytest.mark.parametrize(
    ("observation", "wanted", "answers"),
    [
        (seen(), VALUE, True),
        (seen(invalid="eager raises"), VALUE, True),
        (seen(worker_lost="SIGKILL"), VALUE, False),
        (seen(crash=HANG, timed_out=True), VALUE, True),
        (seen(crash=HANG, timed_out=True), RAISED, True),
        (seen(crash=HANG, timed_out=True), HANG, True),
        (LATE, VALUE, False),
        (LATE, RAISED, False),
        (LATE, HANG, True),
    ],
)
def test_a_verdict_answers_unless_the_worker_was_lost_or_had_no_time_to_compile(
    observation: Observation, wanted: Signature, answers: bool
) -> None:
    assert classify(observation, wanted).answers(wanted) is answers


def test_the_gravest_kind_leads() -> None:
    order = (*VALUE_KINDS, *METADATA_KINDS)
    for position, kind in enumerate(order):
        signature = accuracy_signature(tuple(Divergence("output:y", other) for other in reversed(order[position:])))
        assert signature is not None
        assert (signature.name, signature.family) == (kind, "value" if kind in VALUE_KINDS else "metadata")


@pytest.mark.parametrize(
    ("text", "retires"),
    [
        ("AcceleratorError: CUDA error: misaligned address", True),
        ("RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered", True),
        ("RuntimeError: Triton Error [CUDA]: unspecified launch failure", True),
        ("RuntimeError: CUDA driver error: device not ready", True),
        ("an illegal memory access was encountered", True),
        ("a device-side assert was triggered", True),
        ("IndexError: index out of range in self", False),
        ("", False),
    ],
)
def test_a_worker_whose_cuda_context_is_past_use_retires(text: str, retires: bool) -> None:
    assert seen(crash_text=text).retire_worker is retires
    assert seen(invalid=f"eager raises: {text}").retire_worker is retires


def test_a_verdict_is_fresh_unless_told() -> None:
    assert Verdict(Outcome.PASSES, seen()).cached is False


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("expected size 3 got 47", "expected size # got #"),
        ("buf12 used before buf3", "# used before #"),
        ("at 0x7f00ac3e10", "at #"),
        ("size (3, 4, 5)", "size (#)"),
        ("not implemented for Half", "not implemented for #"),
        ("expected Float but found ComplexDouble", "expected # but found #"),
        ("a longer shortcut to printing", "a longer shortcut to printing"),
        ("no module '/home/me/x.py' here", "no module '' here"),
        ("cannot open /tmp/abc/de.so: gone", "cannot open <path>: gone"),
        ('KeyError: "buf1"', "KeyError: ''"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("one\n\ntwo\nthree", "one two"),
        ("", ""),
        (
            "CppCompileError: C++ compile error\n\nCommand:\ng++ /tmp/x/main.cpp -o y\n\nOutput:\n"
            "/tmp/x/main.cpp:12:34: error: ‘tmp7’ was not declared in this scope; did you mean ‘tmp6’?\n"
            "/tmp/x/main.cpp:14:1: error: another",
            "error: '' was not declared in this scope; did you mean ''?",
        ),
    ],
)
def test_a_message_is_stripped_of_numbers_names_dtypes_and_paths(text: str, plain: str) -> None:
    assert crashes.plain_message(text) == plain


def test_a_message_is_cut_at_200_characters() -> None:
    assert len(crashes.plain_message("word " * 100)) == 200


def raised(action: object) -> BaseException:
    try:
        action()  # type: ignore[operator]
    except Exception as error:  # noqa: BLE001 - whatever it is, it is looked at
        return error
    raise AssertionError("nothing was raised")


def wrapped(inner: BaseException) -> BaseException:
    def outer() -> None:
        raise RuntimeError("outer 1") from inner

    return raised(outer)


def test_a_crash_is_named_after_its_root() -> None:
    inner = raised(lambda: [][1])
    signature = crashes.crash_signature(wrapped(wrapped(inner)))
    assert (signature.name, signature.message, signature.frame) == ("IndexError", "list index out of range", "")


def cpp_failure(line: str) -> BaseException:
    """What Inductor raises where g++ refuses the code it wrote."""

    def compile_cpp() -> None:
        output = f"/tmp/x/main.cpp: In function ‘void kernel()’:\n/tmp/x/main.cpp:12:34: error: {line}\n   12 | code\n"
        try:
            raise subprocess.CalledProcessError(1, ["g++", "-DFLAG", "/tmp/x/main.cpp"])
        except subprocess.CalledProcessError as error:
            raise CppCompileError(["g++", "-DFLAG", "/tmp/x/main.cpp"], output) from error

    return wrapped(raised(compile_cpp))


def test_code_that_the_cpp_compiler_refuses_is_named_after_what_it_says_of_it() -> None:
    error = cpp_failure("cannot convert ‘Half’ to ‘Mask’")
    signature = crashes.crash_signature(error)
    assert (signature.name, signature.message) == ("CppCompileError", "error: cannot convert '' to ''")
    assert crashes.trace_text(error) == "CppCompileError: error: cannot convert ‘Half’ to ‘Mask’\n   12 | code"
    assert crashes.crash_signature(cpp_failure("no match for ‘operator+’")) != signature


def test_a_backend_failure_is_named_after_what_the_backend_raised() -> None:
    def backend(module: object, inputs: object) -> object:
        raise ValueError("unsupported node 12")

    error = raised(lambda: torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2)))
    assert isinstance(error, BackendCompilerFailed)
    assert crashes.crash_signature(error).name == "ValueError"
    assert crashes.crash_signature(error).message == "unsupported node #"
    assert crashes.trace_text(error) == "ValueError: unsupported node 12"


def test_the_frame_of_a_crash_is_the_innermost_one_inside_the_compiler() -> None:
    frame = crashes.crash_signature(raised(lambda: torch.fx.Graph().call_function("no function"))).frame
    assert frame == "node.py:__init__"
    assert crashes.crash_signature(raised(lambda: torch.ones(2) @ torch.ones(3))).frame == ""


def test_two_crashes_are_the_same_when_only_numbers_names_and_paths_differ() -> None:
    first = crashes.crash_signature(RuntimeError("stride mismatch for 'buf3' in /tmp/a.py: 4 vs 8"))
    second = crashes.crash_signature(RuntimeError("stride mismatch for 'buf91' in /var/b/c.py: 16 vs 2"))
    assert first == second
    assert first != crashes.crash_signature(TypeError("stride mismatch for 'buf3' in /tmp/a.py: 4 vs 8"))


def test_an_endless_chain_of_causes_ends() -> None:
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__cause__, second.__cause__ = second, first
    assert crashes.crash_signature(first).name == "RuntimeError"


@pytest.mark.parametrize(
    ("signature", "text"),
    [
        (RAISED, "exception RuntimeError in lowering.py:relu: bad #"),
        (SEGFAULT, "signal SIGSEGV"),
        (STRIDE, "metadata stride"),
    ],
)
def test_a_signature_reads_as_one_line(signature: Signature, text: str) -> None:
    assert str(signature) == text
