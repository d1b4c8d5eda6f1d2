"""What a worker answers: a compiler that is right passes, and each way of being wrong is told as what it is."""

from __future__ import annotations

import dataclasses
import gc
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
import torch._inductor.config

from minify import torch_internals, worker
from minify.case import Case, Const, Derived, ListArg, Op, Recipe, Ref, ScalarInput, Settings
from minify.localize.raised import raised_in
from minify.oracle.local import NOISE
from minify.passes.cut_ops import keep
from minify.replay import replay
from minify.store import save_base
from minify.verdict import Observation, Question, Signature, classify
from tests.cases import build, given, op, tensor

R = Ref
RANDN = Recipe("randn")
RELU = build(
    [given("x", tensor((4, 3)), RANDN)], [op("a", "torch.relu", R("x")), op("y", "torch.add", R("a"), 1)], ["y"]
)
VALUE = Signature("accuracy", "value", "value")
STRIDE = Signature("accuracy", "metadata", "stride")

FAULTS = {
    "right": "lambda call: call",
    "adds to relu": "lambda call: lambda *args: tuple(o + 1e-2 for o in call(*args))",
    "changes strides": "lambda call: lambda *args: tuple(o.t().contiguous().t() for o in call(*args))",
    "changes the dtype": "lambda call: lambda *args: tuple(o.double() for o in call(*args))",
    "off by one": "lambda call: lambda *args: tuple(o + 1 if not o.is_floating_point() else o for o in call(*args))",
    "makes NaN": "lambda call: lambda *args: tuple(o / 0 * 0 for o in call(*args))",
    "forgets writes": "lambda call: lambda *args: call(*(a.clone() if torch.is_tensor(a) else a for a in args))",
    "copies views": "lambda call: lambda *args: tuple(o.clone() for o in call(*args))",
    "forgets the gradient": "lambda call: lambda *args: tuple(o.detach() + 0 * a.sum() for a in args[:1] for o in call(*args))",
    "doubles the gradient": "lambda call: lambda *args: tuple(2 * o - o.detach() for o in call(*args))",
    "detaches": "lambda call: lambda *args: tuple(o.detach() for o in call(*args))",
    "draws once more": "lambda call: lambda *args: torch.rand(1) is None or call(*args)",
    "raises at run time": "lambda call: lambda *args: 1 / 0",
}
PRELUDE = """
def faulty(module, inputs):
    call = ({})(module.forward)
    return call
"""
RAISES = """
def faulty(module, inputs):
    raise ValueError("cannot lower node 12")
"""
LEAVES_MODES = """
torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
torch.use_deterministic_algorithms(True)
torch.set_grad_enabled(False)
torch.manual_seed(99)

def faulty(module, inputs):
    torch._dynamo.config.suppress_errors = True
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    torch.manual_seed(99)
    return module.forward
"""


def with_backend(case: Case, prelude: str) -> Case:
    program = dataclasses.replace(case.program, prelude=prelude)
    return dataclasses.replace(
        case, program=program, settings=dataclasses.replace(case.settings, backend=Const("faulty"))
    )


def faulty(case: Case, fault: str) -> Case:
    return with_backend(case, PRELUDE.format(FAULTS[fault]))


def judged(case: Case, root: Path, check: str = "accuracy", **how: Any) -> Observation:
    phases: list[str] = []
    seen = worker.judge(Question("judge", case, check, str(root), **how), phases.append)
    assert phases[-1] == seen.phase
    return seen


def kinds(seen: Observation) -> list[str]:
    assert not seen.invalid, seen.invalid
    assert seen.crash is None, seen.crash_text
    return sorted({f"{row.where} {row.kind}" for row in seen.divergences})


INTS = build([given("x", tensor((4,), "int64"), Recipe("arange"))], [op("y", "torch.mul", R("x"), 2)], ["y"])
WRITES = build([given("x", tensor((4, 3)), RANDN)], [op("w", ".mul_", R("x"), 2), op("y", "torch.neg", R("w"))], ["y"])
VIEWS = build(
    [given("x", tensor((4, 3)), RANDN)], [op("v", ".view", R("x"), -1), op("y", "torch.neg", R("x"))], ["v", "y"]
)
TRAINS = build(
    [given("x", tensor((4, 3), requires_grad=True), RANDN)],
    [op("y", "torch.sin", R("x"))],
    ["y"],
    Settings(grad_mode="grad", backward="randn"),
)
DROPS = build(
    [given("x", tensor((40, 3)), RANDN)],
    [op("y", "torch.nn.functional.dropout", R("x"), 0.5, True)],
    ["y"],
    Settings(seed=4),
)


@pytest.mark.parametrize(
    ("case", "fault", "expected"),
    [
        (RELU, "right", []),
        (RELU, "adds to relu", ["output:y value"]),
        (RELU, "changes strides", ["output:y stride"]),
        (RELU, "changes the dtype", ["output:y dtype"]),
        (RELU, "makes NaN", ["output:y nonfinite"]),
        (INTS, "right", []),
        (INTS, "off by one", ["output:y integer"]),
        (WRITES, "right", []),
        (WRITES, "forgets writes", ["input:x value"]),
        (VIEWS, "right", []),
        (VIEWS, "copies views", ["output:v aliasing"]),
        (TRAINS, "right", []),
        (TRAINS, "adds to relu", ["output:y value"]),
        (TRAINS, "changes strides", ["output:y stride"]),
        (TRAINS, "forgets the gradient", ["grad:x value"]),
        (TRAINS, "doubles the gradient", ["grad:x value"]),
        (TRAINS, "detaches", ["grad:x structure"]),
        (DROPS, "right", []),
        (DROPS, "draws once more", ["output:y value"]),
    ],
)
def test_each_way_of_being_wrong_is_told_as_what_it_is(
    case: Case, fault: str, expected: list[str], tmp_path: Path
) -> None:
    assert kinds(judged(faulty(case, fault), tmp_path)) == expected


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("case", [RELU, INTS, WRITES, VIEWS, TRAINS, DROPS])
def test_compilers_that_are_right_pass(case: Case, backend: str, tmp_path: Path) -> None:
    settings = dataclasses.replace(case.settings, backend=backend)
    seen = judged(dataclasses.replace(case, settings=settings), tmp_path)
    assert (kinds(seen), seen.drift, seen.phase) == ([], (), "compare")


def test_what_was_noted_of_every_op_comes_with_the_answer(tmp_path: Path) -> None:
    seen = judged(faulty(DROPS, "right"), tmp_path)
    assert [name for name, _ in seen.trace] == ["y"]
    assert seen.random
    assert seen.seconds > 0


def test_numbers_tell_how_wrong_it_is(tmp_path: Path) -> None:
    (row,) = judged(faulty(RELU, "adds to relu"), tmp_path).divergences
    assert row.max_abs == pytest.approx(1e-2, rel=1e-3)
    assert (row.bad, row.total) == (12, 12)
    assert row.eager_abs < 1e-6


def test_a_tolerance_can_be_given(tmp_path: Path) -> None:
    assert kinds(judged(faulty(RELU, "adds to relu"), tmp_path, atol=0.1)) == []


# --- crashes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", ["accuracy", "crash"])
def test_a_compiler_that_raises_has_crashed_whatever_was_asked(check: str, tmp_path: Path) -> None:
    seen = judged(with_backend(RELU, RAISES), tmp_path, check)
    assert seen.crash == Signature(
        "crash", "exception", "ValueError", seen.crash.frame if seen.crash else "", "cannot lower node #"
    )
    assert seen.crash_text == "ValueError: cannot lower node 12"
    assert (seen.phase, seen.divergences) == ("compile", ())
    assert classify(seen, VALUE).outcome.name == "SLIPPED"
    assert classify(seen, seen.crash).outcome.name == "FAILS"


def test_code_that_raises_when_it_runs_has_crashed(tmp_path: Path) -> None:
    seen = judged(faulty(RELU, "raises at run time"), tmp_path, "crash")
    assert seen.crash is not None
    assert seen.crash.name == "ZeroDivisionError"


def test_a_wrong_result_is_no_crash(tmp_path: Path) -> None:
    seen = judged(faulty(RELU, "adds to relu"), tmp_path, "crash")
    assert (seen.crash, seen.divergences) == (None, ())


# --- cases that are none ------------------------------------------------------------------------------------------------


def ops_of(*ops: Op) -> Case:
    return build([given("x", tensor((4, 3)), RANDN)], ops, [ops[-1].name])


@pytest.mark.parametrize(
    ("case", "told"),
    [
        (ops_of(op("y", ".view", R("x"), 5)), "eager raises: RuntimeError"),
        (ops_of(op("y", "torch.no_such_function", R("x"))), "eager raises: AttributeError"),
        (build([given("x")], [op("y", "torch.relu", R("x"))], ["y"]), "cannot be loaded"),
        (build([given("x", value=Derived("0" * 32, "a"))], [], ["x"]), "cannot be loaded"),
        (with_backend(RELU, "this is no Python"), "cannot be loaded: SyntaxError"),
        (with_backend(RELU, "raise OSError('no file')"), "cannot be loaded: OSError: no file"),
        (
            dataclasses.replace(RELU, settings=Settings(config=(("torch._inductor.config", "no_such_key", 1),))),
            "settings",
        ),
        (
            build(
                [given("x", tensor((4, 3), requires_grad=True), RANDN)],
                [op("y", ".mul_", R("x"), 2)],
                ["y"],
                Settings(grad_mode="grad"),
            ),
            "eager raises: RuntimeError: a leaf Variable",
        ),
    ],
)
def test_a_case_that_eager_cannot_run_is_invalid(case: Case, told: str, tmp_path: Path) -> None:
    seen = judged(case, tmp_path)
    assert seen.invalid.startswith(told)
    assert "\n" not in seen.invalid
    assert classify(seen, VALUE).outcome.name == "INVALID"


# --- what may not leak from one question into the next --------------------------------------------------------------------


def process_state() -> list[Any]:
    return [
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_rng_state().tolist(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        torch_internals.config_changes(),
    ]


EVERYTHING = Settings(
    backend="eager",
    config=(("torch._inductor.config", "max_fusion_size", 2), ("torch._dynamo.config", "verbose", True)),
    grad_mode="no_grad",
    autocast=(("cpu", "bfloat16"),),
    switches=(("default_dtype", Const("torch.float64")), ("deterministic", True), ("matmul_precision", "high")),
    seed=8,
)


@pytest.mark.parametrize(
    "case",
    [
        dataclasses.replace(RELU, settings=EVERYTHING),
        dataclasses.replace(RELU, settings=Settings(backend="eager", grad_mode="inference")),
        with_backend(RELU, RAISES),
        with_backend(RELU, LEAVES_MODES),
        ops_of(op("g", "torch.set_grad_enabled", False), op("y", ".view", R("x"), 5)),
        ops_of(
            op("v", "torch._functorch.predispatch._vmap_increment_nesting", 4, "error"), op("y", ".view", R("x"), 5)
        ),
    ],
)
def test_a_question_leaves_the_process_as_it_was(case: Case, tmp_path: Path) -> None:
    before = process_state()
    judged(case, tmp_path)
    assert process_state() == before


def test_settings_are_in_force_while_a_case_runs(tmp_path: Path) -> None:
    told = """
def faulty(module, inputs):
    config = (torch._inductor.config.max_fusion_size, torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled())
    raise ValueError(repr((config, torch.is_autocast_enabled("cpu"), torch.is_grad_enabled(), [tuple(i.shape) for i in inputs])))
"""
    case = dataclasses.replace(RELU, settings=EVERYTHING)
    seen = judged(with_backend(case, told), tmp_path, "crash")
    assert seen.crash_text == "ValueError: ((2, torch.float64, True), True, False, [(4, 3)])"


def test_random_numbers_are_drawn_as_eager_draws_them(tmp_path: Path) -> None:
    told = """
def faulty(module, inputs):
    raise ValueError(torch._inductor.config.fallback_random)
"""
    for case, expected in ((DROPS, True), (RELU, False)):
        assert judged(with_backend(case, told), tmp_path, "crash").crash_text == f"ValueError: {expected}"


def test_shapes_that_changed_from_one_question_to_the_next_stay_static(tmp_path: Path) -> None:
    told = """
def faulty(module, inputs):
    raise ValueError([type(i).__name__ for i in inputs])
"""
    for rows in (4, 5, 6):
        case = build([given("x", tensor((rows, 3)), RANDN)], RELU.graph.ops, ["y"])
        assert judged(with_backend(case, told), tmp_path, "crash").crash_text == "ValueError: ['Tensor']"


def test_dynamic_dims_and_numbers_reach_the_compiler_as_symbols(tmp_path: Path) -> None:
    told = """
def faulty(module, inputs):
    raise ValueError([type(i).__name__ for i in inputs])
"""
    dynamic = build([given("x", tensor((4, 3)), RANDN, dynamic=(0,))], RELU.graph.ops, ["y"])
    assert judged(with_backend(dynamic, told), tmp_path, "crash").crash_text == "ValueError: ['SymInt', 'Tensor']"
    number = build(
        [given("x", tensor((4, 3)), RANDN), ScalarInput("n", 7, dynamic=True)],
        [op("y", "torch.mul", R("x"), R("n"))],
        ["y"],
        Settings(config=torch_internals.dynamic_numbers(["n"])),
    )
    assert judged(with_backend(number, told), tmp_path, "crash").crash_text == "ValueError: ['Tensor', 'SymInt']"


# --- noise, reference, other programs -------------------------------------------------------------------------------------

CANCELS = build(
    [given("x", tensor((64,)), RANDN)],
    [op("b", "torch.add", R("x"), 1000), op("s", "torch.sub", R("b"), 1000), op("y", "torch.div", R("s"), 1e-4)],
    ["y"],
)
REASSOCIATES = PRELUDE.format("lambda call: lambda x: (x / 1e-4,)")


def test_a_result_nearer_the_truth_than_eager_passes(tmp_path: Path) -> None:
    assert kinds(judged(with_backend(CANCELS, REASSOCIATES), tmp_path)) == []
    assert kinds(judged(with_backend(CANCELS, REASSOCIATES), tmp_path, reference="none")) == ["output:y value"]


def test_what_shaking_the_inputs_does_too_is_explained(tmp_path: Path) -> None:
    tipping = build(
        [given("x", tensor((3,)), Recipe("full", (0.3,)))],
        [op("d", "torch.sub", R("x"), 0.3), op("s", "torch.sign", R("d"))],
        ["s"],
    )
    flips = PRELUDE.format("lambda call: lambda x: (torch.ones(3),)")
    assert kinds(judged(with_backend(tipping, flips), tmp_path, reference="none")) == ["output:s value"]
    assert kinds(judged(with_backend(tipping, flips), tmp_path, reference="none", noise=8)) == []


ULP = 2.0**-10  # of 10000
SUMS_TO_LITTLE = build(
    [
        given(name, tensor((1,)), Recipe("full", (value,)))
        for name, value in (("a", 1e4), ("b", 0.4 * ULP), ("c", 0.4 * ULP), ("d", 0.2 * ULP), ("e", -1e4))
    ],
    [
        op("bc", "torch.add", R("b"), R("c")),
        op("bcd", "torch.add", R("bc"), R("d")),
        op("abcd", "torch.add", R("a"), R("bcd")),
        op("y", "torch.add", R("abcd"), R("e")),
    ],
    ["y"],
)
IN_ORDER = PRELUDE.format("lambda call: lambda b, c, d, a, e: (a + b + c + d + e,)")


def test_a_sum_that_cancels_is_no_failure_though_eagers_order_happens_to_be_right(tmp_path: Path) -> None:
    assert kinds(judged(with_backend(SUMS_TO_LITTLE, IN_ORDER), tmp_path)) == ["output:y value"]
    seen = judged(with_backend(SUMS_TO_LITTLE, IN_ORDER), tmp_path, noise=NOISE)
    assert (kinds(seen), [row.where for row in seen.drift], seen.phase) == ([], ["output:y"], "compare")
    worse = PRELUDE.format("lambda call: lambda b, c, d, a, e: (a + b + c + d + e + 0.02,)")
    assert kinds(judged(with_backend(SUMS_TO_LITTLE, worse), tmp_path, noise=NOISE)) == ["output:y value"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_cancels_in_one_place_does_not_excuse_a_large_error_in_another(dtype: str, tmp_path: Path) -> None:
    rows = given("x", tensor((64, 256), dtype), RANDN)
    case = build([rows], [op("y", "torch.sum", R("x"), 1)], ["y"])
    half_more = PRELUDE.format("lambda call: lambda x: (x.sum(1) * 1.5,)")
    assert kinds(judged(with_backend(case, half_more), tmp_path, noise=NOISE)) == ["output:y value"]


MIXED = [given("x", tensor((64, 8), "bfloat16"), RANDN), given("w", tensor((64, 8)), RANDN)]
IN_HALF = PRELUDE.format("lambda call: lambda x, w: (torch.atan2(x, w.bfloat16().float()),)")


def test_a_float32_operand_rounded_to_half_is_wrong_where_nothing_else_is(tmp_path: Path) -> None:
    case = build(MIXED, [op("y", "torch.atan2", R("x"), R("w"))], ["y"])
    assert kinds(judged(with_backend(case, IN_HALF), tmp_path, noise=NOISE)) == ["output:y value"]


def test_where_a_program_rounds_to_half_by_itself_a_unit_of_that_explains_a_result(tmp_path: Path) -> None:
    doubled = op("a", "torch.add", R("x"), R("x"), meta=tensor((64, 8), "bfloat16"))
    case = build(MIXED, [doubled, op("y", "torch.atan2", R("a"), R("w"))], ["y"])
    in_half = PRELUDE.format("lambda call: lambda x, w: (torch.atan2(x + x, w.bfloat16().float()),)")
    assert kinds(judged(with_backend(case, in_half), tmp_path, noise=NOISE)) == []


def test_shaken_runs_are_made_only_where_something_is_to_be_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(worker, "shaken", lambda live, seed, flows, half: seeds.append(seed))
    judged(faulty(RELU, "right"), tmp_path, noise=NOISE)
    assert seeds == []
    judged(faulty(RELU, "adds to relu"), tmp_path, noise=NOISE)
    assert seeds == list(range(NOISE))


def test_a_shaken_run_that_kills_the_worker_is_eagers_doing(tmp_path: Path) -> None:
    phases: list[str] = []
    question = Question("judge", faulty(RELU, "adds to relu"), "accuracy", str(tmp_path), noise=1)
    worker.judge(question, phases.append)
    assert phases == ["load", "eager", "reference", "compile", "compare", "reference", "compare"]


def test_programs_of_many_kinds_run(tmp_path: Path) -> None:
    mixed = build(
        [given("x", tensor((4, 3)), RANDN), ScalarInput("n", 2)],
        [
            op("s", "torch.split", R("x"), R("n")),
            op("a", "operator.getitem", R("s"), 0),
            op("f", "torch._foreach_add", ListArg((R("x"), R("a"))), 1.0),
            op("g", "operator.getitem", R("f"), 1),
            op("w", "operator.iadd", R("a"), 1),
        ],
        ["g", "x", "w"],
        Settings(backend="eager"),
    )
    assert kinds(judged(mixed, tmp_path)) == []
    nothing = build([given("x", tensor((4,)), RANDN)], [op("w", ".add_", R("x"), 1)], [], Settings(backend="eager"))
    assert kinds(judged(nothing, tmp_path)) == []


def test_derived_values_are_found_through_the_store(tmp_path: Path) -> None:
    base = save_base(tmp_path, RELU)
    candidate = build([given("a", tensor((4, 3)), Derived(base, "a"))], RELU.graph.ops[1:], ["y"])
    assert kinds(judged(faulty(candidate, "adds to relu"), tmp_path)) == ["output:y value"]
    question = Question("materialise", candidate, "accuracy", str(tmp_path))
    alone = worker.answer(question, lambda phase: None)
    assert kinds(judged(faulty(alone, "adds to relu"), tmp_path)) == ["output:y value"]


def test_sizes_are_found_without_values_and_leave_no_trace(tmp_path: Path) -> None:
    """What the program's modes and the fake tensors change is put back."""
    matmul = build(["x", given("w", tensor((8, 3)))], [op("y", "torch.mm", R("x"), R("w"))], ["y"])
    question = Question("sizes", matmul, "accuracy", str(tmp_path))
    state, grad = torch.get_rng_state(), torch.is_grad_enabled()
    found = worker.answer(question, lambda phase: None)
    assert found.at({"x.1": 5})["w", 0] == 5
    assert torch.equal(torch.get_rng_state(), state) and torch.is_grad_enabled() is grad
    assert type(torch.ones(2) + 1) is torch.Tensor


def test_sizes_that_cannot_be_had_are_none(tmp_path: Path) -> None:
    unruly = dataclasses.replace(RELU.graph.ops[0], target="torch.no_such_function")
    case = build([given("x", tensor((4, 3)), RANDN)], [unruly], ["a"])
    assert worker.answer(Question("sizes", case, "accuracy", str(tmp_path)), lambda phase: None) is None


def test_a_prelude_may_be_run_again_and_again(tmp_path: Path) -> None:
    prelude = (
        PRELUDE.format(FAULTS["right"])
        + """
@torch.library.custom_op("judge_test::shift", mutates_args=())
def shift(x: torch.Tensor) -> torch.Tensor:
    return x + {by}

@shift.register_fake
def _(x):
    return torch.empty_like(x)
"""
    )
    case = build(
        [given("x", tensor((3,)), Recipe("zeros"))], [op("y", "torch.ops.judge_test.shift.default", R("x"))], ["y"]
    )
    for by in (1, 2):
        assert kinds(judged(with_backend(case, prelude.replace("{by}", str(by))), tmp_path)) == []


# --- when memory runs out -------------------------------------------------------------------------------------------------

NO_ROOM = {
    "cuda": "torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 20.00 GiB.')",
    "python": "MemoryError()",
    "cpu": """RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.")""",
    "windows": "RuntimeError('[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes.')",
}
FORGETFUL = """
@torch.library.custom_op("judge_test::full", mutates_args=())
def full(x: torch.Tensor) -> torch.Tensor:
    {forward}
    return x.clone()

@full.register_fake
def _(x):
    return torch.empty_like(x)

def full_backward(ctx, grad):
    {backward}
    return grad

full.register_autograd(full_backward)
"""


def forgetful(error: str, where: str) -> Case:
    """A program whose op finds no memory `where` it is run so."""
    high = "torch.float64"
    lines = {
        "eager": {"forward": f"raise {error}"},
        "reference": {"forward": f"if x.dtype == {high}: raise {error}"},
        "its gradient": {"backward": f"if grad.dtype == {high}: raise {error}"},
        "shaken": {"forward": f"if x.ne(1).any(): raise {error}"},
    }[where]
    prelude = FORGETFUL.format(**{"forward": "pass", "backward": "pass"} | lines)
    inputs = [given("x", tensor((3,), requires_grad=True), Recipe("ones"))]
    settings = Settings(grad_mode="grad", backward="ones")
    case = build(inputs, [op("y", "torch.ops.judge_test.full.default", R("x"))], ["y"], settings)
    return with_backend(case, prelude + PRELUDE.format(FAULTS["adds to relu"]))


@pytest.mark.parametrize("where", ["eager", "reference", "its gradient", "shaken"])
@pytest.mark.parametrize("error", list(NO_ROOM))
def test_a_lack_of_memory_says_nothing_of_the_case(error: str, where: str, tmp_path: Path) -> None:
    question = Question("judge", forgetful(NO_ROOM[error], where), "accuracy", str(tmp_path), noise=1)
    with pytest.raises((MemoryError, RuntimeError)) as raised:
        worker.judge(question, lambda phase: None)
    excuse = worker._excuse(raised.value)  # type: ignore[arg-type]
    assert isinstance(excuse, Observation) and excuse.worker_lost.startswith("out of memory")


def test_an_error_that_only_speaks_of_memory_is_the_cases_own(tmp_path: Path) -> None:
    seen = judged(forgetful("RuntimeError('not enough memory of the past')", "eager"), tmp_path)
    assert seen.invalid.startswith("eager raises: RuntimeError")


# --- preludes that register ------------------------------------------------------------------------------------------------

COUNTS = """
seen = []

def count(x):
    seen.append(x)
    return x * 0 + len(seen)
"""
CLASSIC = {
    "torch.library.define": """
torch.library.define("judge_classic::half", "(Tensor x) -> Tensor")

@torch.library.impl("judge_classic::half", "CPU")
def half(x):
    return x / 2

@torch.library.register_fake("judge_classic::half")
def half_fake(x):
    return torch.empty_like(x)
""",
    "a library of its own": """
lib = torch.library.Library("judge_owned", "DEF")
lib.define("half(Tensor x) -> Tensor")

@torch.library.impl(lib, "half", "CPU")
def half(x): return x / 2

@torch.library.impl(lib, "half", "Meta")
def half_meta(x): return torch.empty_like(x)
""",
    "a fragment": """
from __future__ import annotations
lib = torch.library.Library("judge_fragment", "FRAGMENT"); lib.define("half(Tensor x) -> Tensor")
lib.impl("half", lambda x: x / 2, "CPU"); lib.impl("half", lambda x: torch.empty_like(x), "Meta")
""",
}
NEW_STYLE = """
@torch.library.custom_op("judge_mixed::third", mutates_args=())
def third(x: torch.Tensor) -> torch.Tensor:
    return x / 3

@third.register_fake
def _(x):
    return torch.empty_like(x)
"""


@pytest.mark.parametrize("way", list(CLASSIC))
def test_an_operator_registered_the_classic_way_is_there_for_every_candidate(way: str, tmp_path: Path) -> None:
    """Whatever else the prelude has, and with the operators of the new style defined anew each time."""
    namespace = {"torch.library.define": "classic", "a library of its own": "owned", "a fragment": "fragment"}[way]
    half = op("a", f"torch.ops.judge_{namespace}.half.default", R("x"))
    both = build([given("x")], [half, op("y", "torch.ops.judge_mixed.third.default", R("a"))], ["y"])
    alone = build([given("x")], [half], ["a"])
    wrong = PRELUDE.format(FAULTS["adds to relu"])
    for case, prelude in (
        (both, CLASSIC[way] + wrong + NEW_STYLE),
        (alone, CLASSIC[way] + wrong),
        (both, CLASSIC[way] + NEW_STYLE + wrong),
    ):
        case = dataclasses.replace(case, inputs=(given("x", value=RANDN),))
        for _ in range(2):
            gc.collect()
            assert kinds(judged(with_backend(case, prelude), tmp_path)) == [
                f"output:{case.graph.outputs[0].name} value"
            ]  # type: ignore[union-attr]


def test_what_a_candidate_leaves_in_its_prelude_does_not_reach_the_next(tmp_path: Path) -> None:
    told = """
def faulty(module, inputs):
    seen.append(1)
    raise ValueError(len(seen))
"""
    for _ in range(2):
        prelude = COUNTS + CLASSIC["torch.library.define"] + told
        assert judged(with_backend(RELU, prelude), tmp_path, "crash").crash_text == "ValueError: 1"


def test_an_operator_that_another_schema_is_wanted_of_makes_a_case_invalid(tmp_path: Path) -> None:
    judged(with_backend(RELU, CLASSIC["torch.library.define"]), tmp_path)
    other = 'torch.library.define("judge_classic::half", "(Tensor x, int n) -> Tensor")'
    assert "cannot be loaded: RuntimeError" in judged(with_backend(RELU, other), tmp_path).invalid


def test_a_name_that_a_prelude_lost_is_not_made_up_for(tmp_path: Path) -> None:
    for prelude, invalid in (("size = 2\nlimit = size + 1", ""), ("limit = size + 1", "cannot be loaded: NameError")):
        seen = judged(with_backend(RELU, prelude + PRELUDE.format(FAULTS["right"])), tmp_path)
        assert seen.invalid.startswith(invalid) and bool(seen.invalid) == bool(invalid)


def test_recorded_values_go_with_their_case_whatever_the_prelude_registered(tmp_path: Path) -> None:
    case = with_backend(RELU, CLASSIC["torch.library.define"] + PRELUDE.format(FAULTS["right"]))
    live = replay(case, tmp_path)
    assert "recorded" in live.scope and "recorded" not in live.fn.__globals__


NEAR_TIES = build(
    [given("x", tensor((3, 16)), Recipe("full", (9.5,)))],
    [op("a", "torch.tanh", R("x")), op("y", "torch.argmax", R("a"), -1, meta=tensor((3,), "int64"))],
    ["y"],
)


def test_an_integer_that_the_rounding_in_between_decides_is_drift(tmp_path: Path) -> None:
    case = faulty(NEAR_TIES, "off by one")
    assert kinds(judged(case, tmp_path)) == ["output:y integer"]
    seen = judged(case, tmp_path, noise=3)
    assert kinds(seen) == [] and [row.kind for row in seen.drift] == ["integer"]


def test_an_integer_that_no_rounding_decides_stays_wrong(tmp_path: Path) -> None:
    case = dataclasses.replace(NEAR_TIES, inputs=(given("x", tensor((3, 16)), RANDN),))
    assert kinds(judged(faulty(case, "off by one"), tmp_path, noise=3)) == ["output:y integer"]


# --- the results of a part in the whole ---------------------------------------------------------------------------------

LONG = build(
    [given("x", tensor((4, 3)), RANDN)],
    [op("a", "torch.relu", R("x")), op("b", "torch.mul", R("a"), 0.5), op("y", "torch.add", R("b"), 1)],
    ["y"],
)


def patched(part: Case, whole: Case, root: Path) -> Observation:
    question = Question("patch", part, "accuracy", str(root), noise=NOISE, inside=whole)
    return worker.judge(question, lambda name: None)


def test_the_compiled_results_of_a_part_make_the_whole_as_wrong_as_they_are(tmp_path: Path) -> None:
    part = keep(LONG, frozenset({"a"}), save_base(tmp_path, LONG))
    (row,) = patched(faulty(part, "adds to relu"), LONG, tmp_path).divergences
    assert (row.where, row.kind) == ("output:y", "value")
    assert row.max_abs == pytest.approx(0.5e-2, rel=1e-3)
    seen = patched(faulty(part, "right"), LONG, tmp_path)
    assert (seen.phase, seen.divergences) == ("compare", ())


def test_a_part_that_fails_otherwise_or_has_no_result_of_the_whole_tells_nothing(tmp_path: Path) -> None:
    part = keep(LONG, frozenset({"a"}), save_base(tmp_path, LONG))
    assert patched(faulty(part, "raises at run time"), LONG, tmp_path).phase != "compare"
    assert patched(faulty(RELU, "adds to relu"), DROPS, tmp_path).phase != "compare", "a `y` of another shape"
    assert patched(faulty(part, "adds to relu"), DROPS, tmp_path).phase != "compare"


# --- parts of the compile chain -------------------------------------------------------------------------------------------

REGISTERED = """
import torch
from torch._inductor.decomposition import register_decomposition


@torch.library.custom_op("judge_test::halved", mutates_args=())
def halved(x: torch.Tensor) -> torch.Tensor:
    return x / 2


@halved.register_fake
def _(x):
    return torch.empty_like(x)


@register_decomposition(torch.ops.judge_test.halved.default)
def decomposed(x):
    return x * 0.6
"""


def halving(backend: str) -> Case:
    case = build(
        [given("x", tensor((4, 3)), RANDN)],
        [op("y", "torch.ops.judge_test.halved.default", R("x"))],
        ["y"],
        Settings(backend=backend),
    )
    return dataclasses.replace(case, program=dataclasses.replace(case.program, prelude=REGISTERED))


def test_a_decomposition_that_a_program_registers_is_used_each_time_that_the_program_is_run(tmp_path: Path) -> None:
    for _ in range(2):
        assert kinds(judged(halving("aot_eager_decomp_partition"), tmp_path)) == ["output:y value"]
    assert kinds(judged(halving("aot_eager"), tmp_path)) == []


def with_settings(case: Case, **settings: Any) -> Case:
    return dataclasses.replace(case, settings=dataclasses.replace(case.settings, **settings))


def test_a_program_whose_compiler_is_left_out_runs_as_python(tmp_path: Path) -> None:
    wrong = faulty(RELU, "adds to relu")
    assert kinds(judged(wrong, tmp_path)) == ["output:y value"]
    assert kinds(judged(with_settings(wrong, config=(("torch._dynamo.config", "disable", True),)), tmp_path)) == []
    assert kinds(judged(wrong, tmp_path)) == ["output:y value"], "only for as long as it was asked for"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"backend": "inductor", "mode": "no-such-mode"}, "settings do not apply: RuntimeError: Unrecognized mode="),
        ({"config": (("torch._inductor.config", "no_such_key", 1),)}, "settings do not apply: AttributeError"),
    ],
)
def test_a_stage_that_this_torch_does_not_have_is_no_crash_of_the_compiler(
    settings: dict[str, Any], told: str, tmp_path: Path
) -> None:
    seen = judged(with_settings(RELU, **settings), tmp_path)
    assert seen.invalid.startswith(told) and seen.crash is None


def test_a_right_result_comes_with_how_far_off_it_is(tmp_path: Path) -> None:
    seen = judged(with_settings(RELU, backend="eager"), tmp_path)
    assert seen.within is not None and (seen.within.where, seen.within.bad, seen.within.total) == ("output:y", 0, 12)
    assert 0 < seen.within.max_abs == seen.within.eager_abs < 1e-6
    slightly = "lambda call: lambda *args: tuple(o + 4e-6 for o in call(*args))"
    seen = judged(with_backend(RELU, PRELUDE.format(slightly)), tmp_path)
    assert kinds(seen) == [] and seen.within is not None
    assert seen.within.max_abs == pytest.approx(4e-6, rel=0.1) and 0.1 < seen.within.excess < 0.5


def test_an_exception_comes_with_the_frames_of_the_compiler_it_was_raised_in(tmp_path: Path) -> None:
    seen = judged(with_backend(RELU, RAISES), tmp_path)
    assert seen.frames[-1].startswith("torch/_dynamo/")
    assert all(frame.startswith("torch/") for frame in seen.frames)
    assert raised_in(seen.frames) == "", "a backend of the user's own is no step of torch's"
