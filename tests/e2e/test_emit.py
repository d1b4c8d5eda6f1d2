"""Repros of real failures of the compiler, confirmed in fresh processes with empty caches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from minify import worker
from minify.case import Case, Const, Recipe, Ref, Settings
from minify.emit import Facts, check, emit, verify
from minify.verdict import Observation, Question, Signature, accuracy_signature
from tests.cases import build, given, op, tensor

pytestmark = pytest.mark.filterwarnings("ignore")  # as in a worker: torch warns of itself

RELU_BUG = "cpp.inject_relu_bug_TESTING_ONLY"


def relu(bug: str) -> Case:
    x = given("x", tensor((4, 8), stride=(1, 4)), Recipe("randn"))
    settings = Settings(config=(("torch._inductor.config", RELU_BUG, bug),))
    return build([x], [op("a", ".mul", Ref("x"), 2.0), op("b", "torch.relu", Ref("a"))], ["b"], settings)


def observe(case: Case, check: str) -> tuple[Observation, Signature]:
    seen = worker.judge(Question("judge", case, check, str(Path.cwd())), lambda phase: None)
    signature = seen.crash or accuracy_signature(seen.divergences)
    assert signature is not None, seen
    return seen, signature


def test_a_wrong_value_shows_again_and_goes_with_the_bug(tmp_path: Path) -> None:
    path = tmp_path / "repro.py"
    text = emit(relu("accuracy"), *observe(relu("accuracy"), "accuracy"), Facts())
    path.write_text(text)
    seen = verify(path, Signature("accuracy", "value", "value"), runs=1)
    assert (seen.runs, seen.reproduced, seen.alone, seen.detail) == (1, 1, True, "exit 1"), seen.output
    assert "expected: 0.0 at [" in seen.output
    path.write_text(text.replace(f'torch.compile(fn, options={{"{RELU_BUG}": "accuracy"}})', "torch.compile(fn)"))
    assert check(path, repeat=1, timeout=300).code == 0


def test_a_compiler_that_raises_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "repro.py"
    case = relu("compile_error")
    seen, signature = observe(case, "crash")
    path.write_text(emit(case, seen, signature, Facts()))
    assert str(tmp_path) not in path.read_text()
    assert verify(path, signature, runs=1).reproduced == 1


def test_a_fatal_signal_is_told_by_how_the_process_ends(tmp_path: Path) -> None:
    prelude = "import ctypes\n\n\ndef null_kernel(gm, example_inputs):\n    return lambda *args: ctypes.string_at(0)\n"
    case = build([given("x", tensor((3,)), Recipe("ones"))], [op("a", ".neg", Ref("x"))], ["a"])
    case = Case(type(case.program)(case.graph, prelude=prelude), case.inputs, Settings(backend=Const("null_kernel")))
    signature = Signature("crash", "signal", "SIGSEGV")
    path = tmp_path / "repro.py"
    path.write_text(emit(case, Observation("run", crash=signature), signature, Facts()))
    seen = verify(path, signature, runs=1)
    assert (seen.reproduced, seen.detail) == (1, "SIGSEGV"), seen.output
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    assert subprocess.run([sys.executable, path], env=environment, check=False).returncode == -11
