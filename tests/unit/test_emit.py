"""The emitted text, run with graph compilers of its own that break a result in one way each. Compiles no kernel."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from minify import environment, replay, store, worker
from minify.case import (
    Case,
    Const,
    Graph,
    Input,
    ListArg,
    OpaqueMeta,
    Recipe,
    Recorded,
    Ref,
    ScalarInput,
    ScalarMeta,
    Settings,
    Subgraph,
    TensorMeta,
    is_contiguous,
    tensor_inputs,
)
from minify.emit import Facts, Verification, check, data_of, emit, inline_values, verify, verifying
from minify.emit.compiling import SWITCHES
from minify.emit.crash import telling_words
from minify.emit.literals import numbers, plainer_literals, with_plainer_literals
from minify.emit.probe import leading
from minify.oracle import nest
from minify.passes.simplify_layouts import SIMPLIFY_LAYOUTS
from minify.tolerance import Tolerance
from minify.verdict import Divergence, Observation, Question, Signature, accuracy_signature
from tests.cases import build, given, op, tensor

pytestmark = pytest.mark.filterwarnings("ignore")  # as in a worker: Dynamo warns of itself

NAN = float("nan")
RANDN, ONES = Recipe("randn"), Recipe("ones")


def broken(change: str) -> str:
    """A graph compiler that exchanges each output `o` for `change`, which may read the inputs `args`."""
    return f"""
def breaking(gm, example_inputs):
    def run(*args):
        return [{change} for o in gm(*args)]

    return run
"""


def with_backend(case: Case, prelude: str, **settings: object) -> Case:
    given = dataclasses.replace(case.settings, backend=Const("breaking"), **settings)  # type: ignore[arg-type]
    return dataclasses.replace(case, program=dataclasses.replace(case.program, prelude=prelude), settings=given)


def observe(case: Case, root: Path, check: str = "accuracy") -> Observation:
    seen = worker.judge(Question("judge", case, check, str(root)), lambda phase: None)
    assert not seen.invalid, seen.invalid
    return seen


def text_of(case: Case, seen: Observation, facts: Facts | None = None) -> str:
    signature = seen.crash or accuracy_signature(seen.divergences)
    assert signature is not None, seen
    return emit(case, seen, signature, facts or Facts())


def exit_code(text: str, folder: Path | None = None) -> int:
    """What the text of a repro exits with, run in this process."""
    torch.compiler.reset()
    path = (folder or Path.cwd()) / "repro.py"
    try:
        exec(compile(text, "repro.py", "exec"), {"__name__": "__main__", "__file__": str(path)})
    except SystemExit as leaving:
        assert isinstance(leaving.code, int)
        return leaving.code
    return 0


def healthy(case: Case) -> Case:
    return dataclasses.replace(case, settings=dataclasses.replace(case.settings, backend="eager"))


def two_ops(*inputs: Input, outputs: Sequence[str] = ("b",), settings: Settings | None = None) -> Case:
    first = inputs[0].name
    calls = [op("a", ".mul", Ref(first), 2), op("b", "operator.add", Ref("a"), Ref(first))]
    return build(inputs, calls, outputs, settings)


GRAD = Settings(grad_mode="grad", backward="ones")
SQUARE = given("x", tensor((3, 3)), RANDN)
TRAINED = given("x", tensor((3, 3), requires_grad=True), RANDN)
WEIGHT = given("w", tensor((3, 3), requires_grad=True), ONES)
VIEW = build([SQUARE], [op("a", ".view", Ref("x"), 9)], ["a"])
IN_PLACE = build([SQUARE], [op("a", ".add_", Ref("x"), 1)], [])
COUNTED = build([SQUARE], [op("a", ".numel", Ref("x"), meta=ScalarMeta(9)), op("b", ".neg", Ref("x"))], ["b", "x"])


def typed(dtype: str) -> Input:
    return given("x", tensor((3, 3), dtype), ONES)


def trained(*outputs: str, backward: str = "ones") -> Case:
    calls = [op("a", "torch.mul", Ref("x"), Ref("w")), op("b", ".sin", Ref("a")), op("c", "torch.argmax", Ref("a"))]
    return build([TRAINED, WEIGHT], calls, outputs, Settings(grad_mode="grad", backward=backward))


FAILURES: dict[str, tuple[Case, str, str, str]] = {
    "a wrong value": (two_ops(SQUARE), "o + 1", "output:b", "value"),
    "one wrong element of many": (
        two_ops(given("x", tensor((9, 9)), RANDN)), "o.index_put((torch.tensor(3), torch.tensor(5)), o[3, 5] + 1)",
        "output:b", "value",
    ),
    "a wrong second output": (two_ops(SQUARE, outputs=("x", "b")), "o + 1 if o is not args[0] else o", "output:b", "value"),
    "a NaN": (two_ops(SQUARE), "o * float('nan')", "output:b", "nonfinite"),
    "a wrong integer": (two_ops(typed("int64")), "o + 1", "output:b", "integer"),
    "a wrong bool": (build([typed("bool")], [op("a", ".logical_not", Ref("x"))], ["a"]), "~o", "output:a", "integer"),
    "a wrong imaginary part": (two_ops(typed("complex64")), "o + 1e-3j", "output:b", "value"),
    "a wrong half": (two_ops(typed("float16")), "o + 1", "output:b", "value"),
    "a wrong float8": (build([typed("float8_e5m2")], [op("a", ".clone", Ref("x"))], ["a"]), "torch.zeros_like(o)", "output:a", "value"),
    "a wrong value in grad mode": (
        two_ops(TRAINED, settings=Settings(grad_mode="grad")), "o + 1", "output:b", "value",
    ),
    "a wrong value in inference mode": (
        two_ops(SQUARE, settings=Settings(grad_mode="inference")), "o + 1", "output:b", "value",
    ),
    "a wrong value under autocast": (
        build([SQUARE], [op("a", "torch.mm", Ref("x"), Ref("x"))], ["a"], Settings(autocast=(("cpu", "bfloat16"),))),
        "o + 1", "output:a", "value",
    ),
    "a wrong dtype": (two_ops(SQUARE), "o.double()", "output:b", "dtype"),
    "a complex NaN": (two_ops(typed("complex64")), "o * complex('nan')", "output:b", "nonfinite"),
    "a wrong layout": (two_ops(SQUARE), "o.to_sparse()", "output:b", "structure"),
    "a wrong shape": (two_ops(SQUARE), "o[None]", "output:b", "shape"),
    "a wrong stride": (two_ops(SQUARE), "o.t().contiguous().t()", "output:b", "stride"),
    "a copy for a view": (VIEW, "o.clone()", "output:a", "aliasing"),
    "a view for a copy": (build([SQUARE], [op("a", ".clone", Ref("x"))], ["a", "x"]), "args[0]", "output:a", "aliasing"),
    "a lost write": (IN_PLACE, "args[0].sub_(2)", "input:x", "value"),
    "a wrong gradient": (trained("b"), "o * 2 - o.detach()", "grad:x", "value"),
    "a wrong gradient of two outputs": (trained("a", "b"), "o * 2 - o.detach()", "grad:x", "value"),
    "a wrong gradient beside an integer": (
        trained("b", "c", backward="randn"), "o * 2 - o.detach() if o.dtype.is_floating_point else o", "grad:x", "value",
    ),
    "a lost gradient": (
        trained("b"), "o.detach() + torch.zeros(1, requires_grad=True)", "grad:x", "structure",
    ),
}  # fmt: skip


def failing(name: str) -> tuple[Case, str, str]:
    case, change, where, kind = FAILURES[name]
    prelude = broken(change)
    if name == "a lost write":
        prelude = prelude.replace("        return", "        gm(*args)\n        args[0].sub_(2)\n        return ()  #")
    return with_backend(case, prelude), where, kind


@pytest.mark.parametrize("name", FAILURES)
def test_a_repro_exits_1_where_the_worker_saw_the_failure_and_0_where_the_compiler_is_right(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case, where, kind = failing(name)
    seen = observe(case, tmp_path)
    assert (where, kind) in {(row.where, row.kind) for row in seen.divergences}, seen
    signature = Signature("accuracy", "value" if kind in ("value", "nonfinite", "integer") else "metadata", kind)
    text = emit(case, seen, signature, Facts())
    assert exit_code(text) == 1, capsys.readouterr().out
    assert re.search("(?s)expected: .*observed: ", capsys.readouterr().out)
    assert exit_code(emit(healthy(case), seen, signature, Facts())) == 0
    assert len(text.splitlines()) < 60
    assert max(map(len, text.splitlines())) <= 120


def test_a_case_of_which_eager_fails_cannot_tell(capsys: pytest.CaptureFixture[str]) -> None:
    case = build([SQUARE], [op("a", ".view", Ref("x"), 7)], ["a"])
    row = Divergence("output:a", "value", total=9, expected="0", observed="1")
    assert exit_code(emit(case, Observation("done", divergences=(row,)), ANY_VALUE, Facts())) == 125
    assert "cannot tell: RuntimeError" in capsys.readouterr().out


ANY_VALUE = Signature("accuracy", "value", "value")


def test_the_worst_divergence_of_the_signature_leads() -> None:
    case = two_ops(SQUARE, outputs=("a", "b"))
    rows = (
        Divergence("output:a", "stride"),
        Divergence("output:a", "value", excess=2.0, total=9, expected="1", observed="2"),
        Divergence("output:b", "value", excess=9.0, total=9, expected="1", observed="2"),
    )
    seen = Observation("done", divergences=rows)
    assert "f(*make_inputs())[1]\n" in emit(case, seen, ANY_VALUE, Facts())
    assert "f(*make_inputs())[0].stride()" in emit(case, seen, Signature("accuracy", "metadata", "stride"), Facts())
    with pytest.raises(ValueError, match="shows no metadata dtype"):
        emit(case, seen, Signature("accuracy", "metadata", "dtype"), Facts())


# --- crashes ------------------------------------------------------------------------------------------------------------

RAISING = """
def breaking(gm, example_inputs):
    raise RuntimeError("no lowering for the op sqrt of buffer 7")
"""


def test_an_exception_is_recognised_by_its_type_and_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = with_backend(two_ops(SQUARE), RAISING)
    text = text_of(case, observe(case, tmp_path, "crash"))
    assert exit_code(text) == 1
    assert "observed: BackendCompilerFailed" in capsys.readouterr().out
    assert exit_code(text.replace("raise RuntimeError", "raise ValueError")) == 125
    assert exit_code(text.replace('RuntimeError("no lowering for the op', 'RuntimeError("no kernel for the op')) == 125
    assert exit_code(text.replace("    raise RuntimeError", "    return gm.forward\n    raise RuntimeError")) == 0


def test_a_crash_in_the_backward_runs_the_backward(tmp_path: Path) -> None:
    prelude = broken("Bad.apply(o)") + (
        "class Bad(torch.autograd.Function):\n"
        "    forward = staticmethod(lambda context, x: x.clone())\n\n"
        "    @staticmethod\n"
        "    def backward(context, g):\n"
        "        raise KeyError('a lost buffer of the backward')\n"
    )
    case = with_backend(trained("b"), prelude)
    seen = observe(case, tmp_path, "crash")
    assert "torch.autograd.grad(output, inputs, torch.ones_like(output)" in text_of(case, seen)
    assert exit_code(text_of(case, seen)) == 1


@pytest.mark.parametrize(
    ("message", "raised", "words"),
    [
        ("no lowering for '' of buffer #", "no lowering for 'sqrt' of buffer 7", "no lowering for"),
        ("''", "'x'", ""),
        ("a text that was cut", "something else", ""),
        ("x " * 50, "x " * 50, ("x " * 50)[:60].strip()),
    ],
)
def test_telling_words_stand_literally_in_what_was_raised(message: str, raised: str, words: str) -> None:
    found = telling_words(message, f"KeyError: {raised}")
    assert found.startswith(words) if len(words) > 50 else found == words


def test_a_signal_and_a_hang_are_left_to_happen() -> None:
    for family, name, telling in (
        ("signal", "SIGSEGV", "The bug shows as an end by SIGSEGV"),
        ("hang", "hang", "faulthandler.dump_traceback_later(120, exit=True)"),
    ):
        signature = Signature("crash", family, name)
        text = emit(healthy(two_ops(SQUARE)), Observation("run", crash=signature), signature, Facts())
        assert telling in text
        assert exit_code(text) == 0
        import faulthandler

        faulthandler.cancel_dump_traceback_later()


def test_a_crash_on_a_gpu_is_waited_for_since_a_kernel_fails_after_its_launch() -> None:
    signature = Signature("crash", "exception", "AcceleratorError")
    seen = Observation("run", crash=signature)
    square = dataclasses.replace(SQUARE, meta=dataclasses.replace(SQUARE.meta, device="cuda:0"))
    waits = "    torch.cuda.synchronize()\n"
    assert waits in emit(healthy(two_ops(square)), seen, signature, Facts())
    assert waits not in emit(healthy(two_ops(SQUARE)), seen, signature, Facts())


# --- settings and surroundings ----------------------------------------------------------------------------------------------

WRONG = Observation("done", divergences=(Divergence("output:b", "value", total=9, expected="1", observed="2"),))


def emitted(settings: Settings, prelude: str = "", seen: Observation = WRONG, facts: Facts | None = None) -> str:
    case = two_ops(SQUARE, settings=settings)
    case = dataclasses.replace(case, program=dataclasses.replace(case.program, prelude=prelude))
    return emit(case, seen, ANY_VALUE, facts or Facts())


RELU_BUG = ("torch._inductor.config", "cpp.inject_relu_bug_TESTING_ONLY", "accuracy")
RANDOM = dataclasses.replace(WRONG, random=True)


@pytest.mark.parametrize(
    ("settings", "seen", "wanted"),
    [
        (Settings(), WRONG, "run(torch.compile(fn))"),
        (Settings(backend="aot_eager", dynamic=True), WRONG, 'torch.compile(fn, backend="aot_eager", dynamic=True)'),
        (Settings(mode="max-autotune"), WRONG, 'torch.compile(fn, mode="max-autotune")'),
        (Settings(options=(("max_fusion_size", 1),)), WRONG, 'torch.compile(fn, options={"max_fusion_size": 1})'),
        (Settings(config=(RELU_BUG,)), WRONG, 'options={"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}'),
        (
            Settings(mode="reduce-overhead", config=(RELU_BUG,)), WRONG,
            'torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"\n',
        ),
        (Settings(config=(RELU_BUG,), backend=Const("torch.foo")), WRONG, "import torch._inductor.config\n"),
        (Settings(config=(("torch._dynamo.config", "specialize_int", True),)), WRONG, "torch._dynamo.config.specialize_int = True\n"),
        (Settings(), RANDOM, 'options={"fallback_random": True}'),
        (Settings(seed=7), RANDOM, "        inputs = make_inputs()\n        torch.manual_seed(7)\n        return f(*inputs)"),
        (Settings(mode="default"), RANDOM, "torch._inductor.config.fallback_random = True\n"),
        (Settings(switches=(("deterministic", True),)), WRONG, "\ntorch.use_deterministic_algorithms(True)\n"),
        (Settings(switches=(("cudnn_allow_tf32", False),)), WRONG, "\ntorch.backends.cudnn.allow_tf32 = False\n"),
        (Settings(grad_mode="inference"), WRONG, "    with torch.inference_mode():\n"),
        (Settings(autocast=(("cpu", "bfloat16"),)), WRONG, 'with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):'),
    ],
)  # fmt: skip
def test_the_users_own_settings_are_set_and_no_others(settings: Settings, seen: Observation, wanted: str) -> None:
    assert wanted in emitted(settings, seen=seen)


def test_eager_kernels_need_no_fallback_for_random_numbers() -> None:
    assert "fallback_random" not in emitted(Settings(backend="aot_eager"), seen=RANDOM)


def test_a_given_tolerance_is_the_one_compared_with() -> None:
    case = two_ops(SQUARE)
    assert "rtol=0.1, atol=1e-5" in emit(case, WRONG, ANY_VALUE, Facts(), Tolerance(rtol=0.1))


def test_what_is_too_quiet_to_be_the_failure_is_within_the_tolerance_of_its_repro() -> None:
    quiet, loud = (
        Divergence(f"output:{name}", "value", excess=excess) for name, excess in (("a", 299.0), ("b", 301.0))
    )
    wanted = dataclasses.replace(ANY_VALUE, least=300.0)
    text = emit(two_ops(SQUARE, outputs=("a", "b")), Observation("done", divergences=(quiet, loud)), wanted, Facts())
    assert "rtol=0.003, atol=0.003" in text and "(output 1)" in text
    stray = dataclasses.replace(quiet, kind="nonfinite", excess=900.0)
    assert leading(Observation("done", divergences=(stray, loud)), wanted) == loud


def test_eagers_own_error_is_allowed_for_where_the_bug_stands_clear_of_it() -> None:
    def atol(eager_abs: float) -> str:
        row = dataclasses.replace(WRONG.divergences[0], excess=1e5, eager_abs=eager_abs, expected="1", observed="2")
        text = emit(two_ops(SQUARE), Observation("done", divergences=(row,)), ANY_VALUE, Facts())
        return str(re.search(r"atol=(\S+),", text).group(1))  # type: ignore[union-attr]

    assert (atol(0.0), atol(1e-6), atol(3e-3), atol(0.3)) == ("1e-5", "1e-5", "0.006", "1e-5")


def test_literals_are_offered_with_fewer_digits_and_with_zeros_beside_what_is_special() -> None:
    def offered(*numbers: float) -> list[tuple[object, ...]]:
        case = build([given("x", tensor((len(numbers),)), Recipe("literal", numbers))], [], ["x"])
        ways = [with_plainer_literals(case, way) for way in plainer_literals(case)]
        return [item.value.args for one in ways for item in tensor_inputs(one)]  # type: ignore[union-attr]

    assert offered(-0.19361, 1.4058) == [(-0.2, 1.0), (-0.19, 1.4)]
    assert offered(0.25, math.nan)[0] == (0.0, math.nan)
    assert [str(args) for args in offered(-0.0, 31.7)] == ["(-0.0, 0.0)", "(-0.0, 30.0)", "(-0.0, 32.0)"]
    assert offered(0.5, 2.0) == []


def test_without_literals_there_is_nothing_to_round() -> None:
    assert plainer_literals(build([given("x", tensor((2,)), Recipe("randn"))], [], ["x"])) == ()


def test_the_header_states_the_facts_within_the_width() -> None:
    facts = Facts(
        stage="lowering", decisive=("x is transposed", "backward"), not_decisive=("the dtype",), notes=("A note. " * 30,),
        versions=(("torch", "2.13.0"), ("python", "3.11.2")), reproduced="3/3",
    )  # fmt: skip
    lines = emitted(Settings(), facts=facts).splitlines()
    assert lines[0] == '"""torch.compile gives a wrong result: mul + add (value, 0 of 9 elements)'
    for line in (
        "Expected 1, observed 2.",
        "First divergent stage: lowering.",
        "Decisive: x is transposed.",
        "Decisive: backward.",
        "Not decisive: the dtype.",
        "torch 2.13.0, python 3.11.2; reproduced 3/3.",
        "Exit code 1: the bug shows; 0: it does not; 125: cannot tell.",
    ):
        assert line in lines
    assert max(map(len, lines)) <= 120


def test_the_program_that_passes_says_what_sets_it_apart() -> None:
    lines = emitted(Settings(), facts=Facts(counterpart="there, x is a transpose; here, contiguous")).splitlines()
    assert lines[0] == '"""torch.compile gets this right: mul + add'
    assert lines[2] == "The repro beside it differs in one thing: there, x is a transpose; here, contiguous."
    assert not any(line.startswith("Expected") for line in lines)


def test_facts_give_way_where_they_would_make_a_repro_too_long() -> None:
    def lines_with(decisive: int, others: int) -> list[str]:
        told = [
            tuple(f"fact {number} of {kind}" for number in range(count))
            for kind, count in (("a", decisive), ("b", others))
        ]
        longer = Settings(config=tuple(("torch._inductor.config", f"key{number}", number) for number in range(14)))
        return emitted(longer, facts=Facts(decisive=told[0], not_decisive=told[1])).splitlines()

    bare = len(lines_with(0, 0))
    assert bare < 60
    room = 59 - bare
    full = lines_with(4, 6)
    assert len(full) < 60
    assert sum(line.startswith(("Decisive", "Not decisive")) for line in full) == min(10, room)
    assert sum(line.startswith("Decisive") for line in full) == min(4, room)


def test_a_header_with_quotes_and_backslashes_is_still_a_docstring() -> None:
    text = emitted(Settings(), facts=Facts(title='a """title""" with \\n and \\'))
    scope: dict[str, object] = {}
    exec(text.split("import sys")[0], scope)
    assert str(scope["__doc__"]).startswith("a '''title''' with \\n and \\\n")


PRELUDE = '''"""Of the user."""
from __future__ import annotations
import torch
import ctypes, math
from torch.nn import functional as F

import numpy as np


def run(x):
    """Named as one of ours."""
    return F.relu(x) * math.pi


def breaking(gm, example_inputs):
    return lambda *args: [run(args[0])]
'''


def test_imports_of_the_prelude_join_ours_and_its_names_stay_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    text = emitted(Settings(backend=Const("breaking")), PRELUDE)
    imports = text.split('"""\n')[1].split("\n\n\n")[0]
    assert imports.splitlines() == [
        "",
        "from __future__ import annotations",
        "",
        "import ctypes, math",
        "import sys",
        "",
        "from torch.nn import functional as F",
        "import numpy as np",
        "import torch",
    ]
    assert "Of the user" not in text
    assert exit_code(text) == 1


def test_only_what_is_read_is_imported() -> None:
    assert not re.search("import (math|operator|torch.nn|faulthandler)", emitted(Settings()))
    case = build(
        [SQUARE], [op("a", "torch.nn.functional.relu", Ref("x")), op("b", ".mul", Ref("a"), Const("math.pi"))], ["b"]
    )
    assert "import math\nimport sys\n\nimport torch\nimport torch.nn.functional as F\n\n\n" in emit(
        case, WRONG, ANY_VALUE, Facts()
    )


def test_inputs_keep_their_dtype_whatever_the_default_is() -> None:
    text = emitted(Settings(switches=(("default_dtype", Const("torch.float64")),)))
    assert "torch.set_default_dtype(torch.float64)\n" in text
    assert "x = torch.randn((3, 3), dtype=torch.float32)\n" in text


def test_a_sparse_result_is_compared_as_a_dense_one() -> None:
    case = build([SQUARE], [op("b", ".to_sparse", Ref("x"))], ["b"])
    seen = dataclasses.replace(WRONG, trace=(("b", OpaqueMeta("Tensor")),))
    text = emit(case, seen, ANY_VALUE, Facts())
    assert ".to_dense()\n" in text
    assert exit_code(text) == 0


def test_decisive_strides_are_asserted() -> None:
    case = two_ops(given("x", tensor((3, 3), stride=(1, 3)), RANDN))
    assert "    assert x.stride() == (1, 3)\n    return (x,)\n" in emit(case, WRONG, ANY_VALUE, Facts())
    assert "assert" not in emit(two_ops(SQUARE), WRONG, ANY_VALUE, Facts())


def test_subgraphs_are_nested_functions_with_room_around_them() -> None:
    body = Subgraph(Graph(("x",), (op("c", "torch.relu", Ref("x")),), (Ref("c"),)))
    calls = [op("a", ".any", Ref("x")), op("b", "torch.cond", Ref("a"), body, body, ListArg((Ref("x"),)))]
    text = emit(build([SQUARE], calls, ["b"]), WRONG, ANY_VALUE, Facts())
    nested = "    def b_body_{0}(x):\n        c = torch.relu(x)\n        return (c,)\n\n"
    last = "    return torch.cond(a, b_body_0, b_body_1, [x])\n"
    assert "    a = x.any()\n\n" + nested.format(0) + nested.format(1) + last in text


def test_a_result_that_nothing_reads_gets_no_name() -> None:
    calls = [op("a", ".mul_", Ref("x"), 3), op("b", "operator.iadd", Ref("x"), 1)]
    row = Divergence("input:x", "value", total=9, expected="1", observed="2")
    text = emit(build([SQUARE], calls, []), Observation("done", divergences=(row,)), ANY_VALUE, Facts())
    assert "def fn(x):\n    x.mul_(3)\n    x += 1\n\n\n" in text
    assert exit_code(text) == 0


# --- literals -----------------------------------------------------------------------------------------------------------------

DTYPES = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "float8_e5m2",
    "int64",
    "uint8",
    "bool",
    "complex64",
    "complex128",
)


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_give_back_the_same_bits(dtype: str) -> None:
    torch.manual_seed(0)
    wide = torch.randn(40, dtype=torch.complex128 if "complex" in dtype else torch.float64) * 3
    values = (wide.abs() * 9 if dtype in ("uint8", "bool") else wide).to(getattr(torch, dtype))
    if values.is_floating_point():
        values[:4] = torch.tensor([-0.0, NAN, float("inf"), 0.1], dtype=torch.float64).to(values.dtype)
    if values.is_complex():
        values[:3] = torch.tensor([complex(-0.0, -0.0), complex(NAN, 1), complex(1, -0.0)], dtype=values.dtype)
    case = build([given("x", tensor((40,), dtype), Recipe("literal", numbers(values)))], [], ["x"])
    (back,) = replay.replay(case, Path()).make_inputs()
    assert torch.equal(back.view(torch.uint8), values.view(torch.uint8))


def test_numbers_have_as_few_digits_as_they_need() -> None:
    assert numbers(torch.tensor([0.1, 1 / 3, 16777216.0])) == (0.1, 0.33333334, 16777216.0)
    assert numbers(torch.tensor([0.1, 3.0], dtype=torch.bfloat16)) == (0.1, 3.0)


LAYOUTS: dict[str, TensorMeta] = {
    "row-major": tensor((2, 3)),
    "transposed": tensor((2, 3), stride=(1, 2)),
    "expanded": tensor((4, 3), stride=(0, 1)),
    "with gaps": tensor((2, 3), stride=(8, 2), offset=1),
    "a scalar": tensor(()),
    "empty": tensor((0, 3)),
    "the start of something longer": dataclasses.replace(tensor((2, 3)), storage_size=12),
    "size 1 with an odd stride": tensor((2, 1), stride=(1, 7)),
}


def recorded_case(meta: TensorMeta, root: Path, build_: Callable[..., Case] = build) -> Case:
    torch.manual_seed(0)
    base = torch.randn(64)
    seen = torch.as_strided(base, meta.shape, meta.stride, meta.offset)
    value = replay.recorded(store.storage_of(seen), meta, root, shared=False)
    return build_([given("x", meta, value)], [op("b", ".neg", Ref("x"))], ["b"])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_literal_is_laid_out_as_the_recorded_value_was(layout: str, tmp_path: Path) -> None:
    case = recorded_case(LAYOUTS[layout], tmp_path)
    plain = inline_values(case, tmp_path)
    (item,) = plain.inputs
    assert isinstance(item, Input)
    assert isinstance(item.value, Recipe)
    (before,), (after,) = (replay.replay(each, tmp_path).make_inputs() for each in (case, plain))
    assert torch.equal(before, after)
    assert before.stride() == after.stride()
    if not is_contiguous(item.meta):
        assert torch.equal(store.storage_of(before), store.storage_of(after))
    assert "recorded" not in emit(plain, WRONG, ANY_VALUE, Facts())


def test_shared_storage_is_listed_once_and_stays_shared(tmp_path: Path) -> None:
    x, y = tensor((2, 3), storage=1), tensor((3,), storage=1, offset=2)
    digest = replay.recorded(torch.arange(6.0), x, tmp_path, shared=True)
    sharing = [given(name, dataclasses.replace(m, storage_size=6), digest) for name, m in (("x", x), ("y", y))]
    plain = inline_values(build(sharing, [op("b", "torch.add", Ref("x"), Ref("y"))], ["b"]), tmp_path)
    text = emit(plain, WRONG, ANY_VALUE, Facts())
    assert text.count("torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0]") == 1
    first, second = replay.replay(plain, tmp_path).make_inputs()
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()


def test_a_long_literal_fits_the_page(tmp_path: Path) -> None:
    text = emit(inline_values(recorded_case(tensor((8, 8)), tmp_path), tmp_path), WRONG, ANY_VALUE, Facts())
    assert max(map(len, text.splitlines())) <= 120
    assert len(text.splitlines()) < 60


def test_large_values_stay_recorded_and_are_read_from_a_file(tmp_path: Path) -> None:
    case = with_backend(recorded_case(tensor((2, 3), stride=(1, 2)), tmp_path), broken("o + 1"))
    assert inline_values(case, tmp_path, limit=5) == case
    text = text_of(case, observe(case, tmp_path))
    assert "Needs repro_data.pt beside it: recorded values of x." in text
    assert exit_code(text, tmp_path) == 125
    torch.save(data_of(case, tmp_path), tmp_path / "repro_data.pt")
    assert exit_code(text, tmp_path) == 1


def test_a_scalar_input_and_a_dynamic_dim_are_kept(tmp_path: Path) -> None:
    x = given("x", tensor((3, 3)), RANDN, dynamic=(0,))
    case = build([x, ScalarInput("n", 3, True)], [op("b", ".mul", Ref("x"), Ref("n"))], ["b"])
    text = text_of(with_backend(case, broken("o + 1")), observe(with_backend(case, broken("o + 1")), tmp_path))
    assert "    n = 3\n" in text
    assert "torch._dynamo.mark_dynamic(x, 0)" in text
    assert exit_code(text) == 1


# --- fresh processes ---------------------------------------------------------------------------------------------------------

CRASH = Signature("crash", "exception", "KeyError")
SEGFAULT = Signature("crash", "signal", "SIGSEGV")


def script(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "somewhere" / "anything.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "signature", "reproduced", "answer"),
    [
        ("import sys; sys.exit(1)", CRASH, 2, 1),
        ("import sys; sys.exit(0)", CRASH, 0, 0),
        ("import sys; sys.exit(125)", CRASH, 0, 125),
        ("raise ValueError", CRASH, 0, 125),
        ("import minify", CRASH, 0, 125),
        ("syntax error", CRASH, 0, 125),
        ("import os; os.kill(os.getpid(), 11)", SEGFAULT, 2, 1),
        ("import sys; sys.exit(139)", SEGFAULT, 2, 1),
        ("import sys; sys.exit(1)", SEGFAULT, 0, 1),
        ("import os; os.kill(os.getpid(), 9)", SEGFAULT, 0, 125),
        ("import os; os.abort()", Signature("crash", "signal", "SIGABRT"), 2, 1),
        ("import faulthandler, time; faulthandler.dump_traceback_later(0.1, exit=True); time.sleep(60)", CRASH, 2, 1),
    ],
)
def test_exit_codes_are_read_as_what_they_stand_for(
    tmp_path: Path, text: str, signature: Signature, reproduced: int, answer: int
) -> None:
    path = script(tmp_path, text)
    seen = verify(path, signature, runs=2, timeout=60)
    assert (seen.runs, seen.reproduced, seen.alone) == (2, reproduced, True)
    assert check(path, 1, 60).code == answer


def test_a_run_has_an_empty_folder_and_empty_caches_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setattr(environment, "probed_into", lambda cache: False)
    script(tmp_path, "").with_name("beside.txt").touch()
    asked = """
import os, sys
print(sorted(os.listdir()), "PYTHONPATH" in os.environ, sys.argv)
for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
    print(os.path.exists(os.environ[name]))
    os.makedirs(os.environ[name])
print(os.getcwd())
"""
    seen = verify(script(tmp_path, asked), CRASH, runs=1)
    *told, folder = seen.output.splitlines()
    assert told == ["['repro.py'] False ['repro.py']", "False", "False"]
    assert not Path(folder).parent.exists()


def test_a_run_is_spared_what_workers_found_out_about_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(cache: Path) -> bool:
        cache.mkdir(parents=True)
        (cache / "trial.so").touch()
        return True

    monkeypatch.setattr(environment, "probed_into", found)
    asked = "import os; print(os.listdir(os.environ['TORCHINDUCTOR_CACHE_DIR']))"
    assert verify(script(tmp_path, asked), CRASH, runs=1).output == "['trial.so']\n"


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("TORCHINDUCTOR_MAX_AUTOTUNE", False),
        ("TORCHDYNAMO_SUPPRESS_ERRORS", False),
        ("TORCH_COMPILE_DISABLE", False),
        ("MINIFY_SCRATCH", False),
        ("TORCHINDUCTOR_COMPILE_THREADS", True),
        ("TRITON_INTERPRET", True),
        ("CUDA_VISIBLE_DEVICES", True),
    ],
)
def test_a_repro_cannot_lean_on_a_compiler_switch_of_the_users_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kept: bool
) -> None:
    monkeypatch.setenv(name, "1")
    seen = verify(script(tmp_path, f"import os, sys; sys.exit({name!r} in os.environ)"), CRASH, runs=1)
    assert seen.reproduced == kept


def test_a_data_file_beside_it_goes_along_and_is_said_so(tmp_path: Path) -> None:
    path = script(tmp_path, "import os, sys; sys.exit(os.path.exists('repro_data.pt'))")
    path.with_name("repro_data.pt").touch()
    seen = verify(path, CRASH, runs=1)
    assert (seen.reproduced, seen.alone) == (1, False)


def test_a_run_that_takes_too_long_is_killed_with_all_it_started(tmp_path: Path) -> None:
    started = tmp_path / "started"
    text = f"""
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path({str(started)!r}).write_text(str(child.pid))
print("told", flush=True)
time.sleep(600)
"""
    seen = verify(script(tmp_path, text), CRASH, runs=1, timeout=3)
    assert (seen.reproduced, seen.detail, seen.output) == (0, "killed", "told\n")
    pid = int(started.read_text())
    with pytest.raises(ProcessLookupError):
        for _ in range(100):
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                raise ProcessLookupError
            __import__("time").sleep(0.05)
    assert check(script(tmp_path, text), 1, 0.5).code == 125


def test_a_repro_that_prints_without_end_fills_no_disk_and_still_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nest, "_MOST_LOGGED", 1 << 16)
    text = r"""
import os, sys, time
log = os.readlink("/proc/self/fd/1")
for _ in range(20):
    os.write(1, b"\xff" * (1 << 17))
    while os.path.getsize(log) > 1 << 16:
        time.sleep(0.01)
print("the end")
sys.exit(1)
"""
    seen = verify(script(tmp_path, text), CRASH, runs=1, timeout=60)
    assert (seen.reproduced, seen.output) == (1, "the end\n")


def test_a_verification_that_is_told_to_stop_before_it_starts_runs_nothing(tmp_path: Path) -> None:
    started = tmp_path / "started"
    text = f"import pathlib, time; pathlib.Path({str(started)!r}).touch(); time.sleep(600)"
    seen = verify(script(tmp_path, text), CRASH, should_stop=lambda: "budget")
    assert seen == Verification(0, 0, True, "not run", "")
    assert not started.exists()


def test_a_run_that_is_stopped_counts_for_nothing_and_one_that_ended_before_counts(tmp_path: Path) -> None:
    first = tmp_path / "first"
    text = f"""
import os, pathlib, sys, time
try:
    with open({str(first)!r}, "x") as file:
        file.write(str(os.getpid()))
except FileExistsError:
    time.sleep(600)
sys.exit(1)
"""

    def first_is_gone() -> bool:
        told = first.read_text() if first.exists() else ""
        return bool(told) and not Path(f"/proc/{told}").exists()

    seen = verify(script(tmp_path, text), CRASH, runs=2, should_stop=first_is_gone)
    assert (seen.runs, seen.reproduced, seen.detail) == (1, 1, "exit 1")


def test_a_verification_goes_on_beside_other_work_and_is_waited_for(tmp_path: Path) -> None:
    awaited = tmp_path / "awaited"
    text = (
        f"import pathlib, sys, time\nwhile not pathlib.Path({str(awaited)!r}).exists(): time.sleep(0.05)\nsys.exit(1)"
    )
    with verifying(script(tmp_path, text), CRASH, runs=1, timeout=60) as outcome:
        awaited.touch()
        seen = outcome()
    assert (seen.runs, seen.reproduced) == (1, 1)


def test_work_beside_a_verification_that_raises_has_its_runs_killed(tmp_path: Path) -> None:
    started = tmp_path / "started"
    text = f"import os, pathlib, time\npathlib.Path({str(started)!r}).write_text(str(os.getpid()))\ntime.sleep(600)"
    with pytest.raises(KeyboardInterrupt), verifying(script(tmp_path, text), CRASH, runs=2, timeout=500):
        while not (started.exists() and started.read_text()):
            __import__("time").sleep(0.05)
        raise KeyboardInterrupt
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)


def test_no_file_cannot_tell(tmp_path: Path) -> None:
    assert check(tmp_path / "missing.py", 1, 10).code == 125


def test_one_bad_run_is_bad_and_one_unclear_run_is_unclear(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    for endings, answer in (((0, 1, 0), 1), ((1, 125, 0), 125), ((0, 0, 0), 0)):
        counter.write_text("")
        text = f"import sys\nwith open({str(counter)!r}, 'a+') as f:\n    f.write('x'); f.seek(0); sys.exit({endings}[len(f.read()) - 1])"
        assert check(script(tmp_path, text), 3, 60).code == answer


def test_every_switch_that_a_case_may_carry_has_a_statement() -> None:
    assert set(SWITCHES) == set(replay._SWITCHES)


def test_inputs_of_two_dtypes_that_shared_memory_are_spelled_out_apart(tmp_path: Path) -> None:
    floats = torch.tensor([1.5, -2.0, 0.25, 8.0])
    recorded = Recorded(store.save_storage(tmp_path, floats))
    wide, narrow = tensor((4,), storage=5), tensor((8,), "int16", storage=5)
    case = build([given("x", wide, recorded), given("y", narrow, recorded)], [op("a", "torch.neg", Ref("x"))], ["a"])
    apart = SIMPLIFY_LAYOUTS.rewrite(case, SIMPLIFY_LAYOUTS.find(case))
    x, y = (item.value for item in tensor_inputs(inline_values(apart, tmp_path)))
    assert isinstance(x, Recipe) and isinstance(y, Recipe)
    assert (x.args, y.args) == (tuple(floats.tolist()), tuple(floats.view(torch.int16).tolist()))


def test_the_header_names_what_inside_the_stage_is_to_blame_in_two_lines_at_most() -> None:
    def lines(inside: str) -> list[str]:
        text = emitted(Settings(), facts=Facts(stage="Inductor", inside=inside)).splitlines()
        start = next(place for place, line in enumerate(text) if line.startswith("First divergent stage"))
        return text[start : next(place for place, line in enumerate(text) if line.startswith("Exit code"))]

    assert lines("") == ["First divergent stage: Inductor."]
    assert lines("fusion op1+op2 (a with b)") == [
        "First divergent stage: Inductor; inside it: fusion op1+op2 (a with b)."
    ]
    first, second = lines(" and ".join(f"fusion op{place}+op{place + 1}" for place in range(40)))
    assert second.endswith(" ...") and max(len(first), len(second)) <= 116
