"""Scripts that cannot be used, or that use what a careful tool must leave alone: one clear line each, or the same result.

Most are run by `watch_script` alone, since only the script's own process matters: the error has the exit code, and
`tests/unit/test_cli.py` holds the command line to printing it as one line.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from minify.capture.child import Plan
from minify.capture.script import Watched, watch_script
from minify.errors import MinifyError, NoFailure, UsageError
from tests.running import WRONG_RELU, Run, report

WRONG = WRONG_RELU.format(seconds=0)
COMPILES_NOTHING = WRONG.rpartition("torch.compile")[0]


def watch(text: str | bytes, folder: Path, kind: str = "accuracy", **given: Any) -> Watched:
    """Run a script of this text under watch, its results in `out`."""
    path = folder / "user.py"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    out = folder / "out"
    out.mkdir()
    plan = dataclasses.replace(Plan(str(path), (), str(out), kind), **given)
    return watch_script(plan, 300, lambda: "", lambda line: None)


def refusal(text: str | bytes, folder: Path, kind: str = "accuracy", **given: Any) -> MinifyError:
    with pytest.raises(MinifyError) as refused:
        watch(text, folder, kind, **given)
    assert "Traceback" not in str(refused.value)
    return refused.value


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1\ndef f(:\n", "SyntaxError"),
        ("\n1 / 0\n", "ZeroDivisionError: division by zero (line 2)"),
        ("import nowhere_to_be_found\n", "ModuleNotFoundError: No module named 'nowhere_to_be_found' (line 1)"),
        (b"x = '\xff'\n", "SyntaxError"),
        (b"\x7fELF\x00\x01", "Error"),
    ],
    ids=["syntax", "raises", "import", "encoding", "binary"],
)
def test_a_script_that_cannot_run_by_itself_is_refused(text: str | bytes, told: str, tmp_path: Path) -> None:
    error = refusal(text, tmp_path)
    assert isinstance(error, UsageError)
    assert "user.py raises before it compiles anything" in str(error)
    assert told in str(error)


@pytest.mark.parametrize("text", ["", "model = 3\ninputs = ()\n"])
def test_a_script_that_compiles_nothing_and_defines_no_model_has_no_failure(text: str, tmp_path: Path) -> None:
    error = refusal(text, tmp_path)
    assert isinstance(error, NoFailure)
    assert "user.py compiles nothing, and defines no `model` (callable) and `inputs` (tuple or dict)" in str(error)


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ("(torch.ones(3),)", "missing 1 required positional argument"),
        ("{'x': 1, 'z': 2}", "unexpected keyword argument"),
    ],
)
def test_inputs_that_do_not_fit_the_model_fail_in_eager(inputs: str, told: str, tmp_path: Path) -> None:
    error = refusal(f"{COMPILES_NOTHING}\ninputs = {inputs}\n", tmp_path)
    assert isinstance(error, NoFailure)
    assert "user.py already fails in eager: TypeError" in str(error)
    assert told in str(error)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"backend": "inductr"}, "--backend inductr cannot be used"),
        ({"mode": "fastest"}, "--backend inductor --mode fastest cannot be used"),
        ({"device": "abacus"}, "--device abacus cannot be used"),
    ],
)
def test_a_value_that_torch_does_not_know_is_refused(given: dict[str, Any], told: str, tmp_path: Path) -> None:
    error = refusal(COMPILES_NOTHING, tmp_path, **given)
    assert isinstance(error, UsageError)
    assert str(error).startswith(told)


def test_a_region_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    error = refusal(WRONG, tmp_path, only=7)
    assert isinstance(error, UsageError)
    assert str(error) == "--region 7 does not exist; user.py compiled 1 region(s), numbered from 0"


def test_a_right_result_is_no_failure_and_a_caught_compile_error_no_hang(tmp_path: Path) -> None:
    """The first region's compile raises, the script carries on, and the second is right."""
    text = """
import torch

def picky(gm, example_inputs):
    raise RuntimeError("not today")

try:
    torch.compile(torch.relu, backend=picky)(torch.ones(3))
except Exception:
    pass
torch.compile(torch.tanh, backend="eager")(torch.ones(3))
"""
    error = refusal(text, tmp_path)
    assert isinstance(error, NoFailure)
    assert "no divergence in 1 checked run(s) of the 2 region(s) that user.py compiles" in str(error)


AWKWARD = """
import warnings

import torch
from torch import nn

warnings.simplefilter("error")
import os
import sys

os.chdir("/")
from beside import FLOOR

assert sys.argv[1:] == ["--steps", "3", "-v", "größer"], sys.argv
assert sys.stdin.read() == "data\\n"


def durchlässig(gm, example_inputs):
    '''Läßt ein bißchen durch: ≤ 0.'''
    for node in gm.graph.nodes:
        if node.target in (torch.relu, torch.nn.functional.relu):
            node.target, node.kwargs = torch.clamp, {"min": FLOOR}
    gm.recompile()
    return gm.forward


class Netz(nn.Module):
    def forward(self, größe):
        return torch.relu(torch.sin(größe) * 2).sum()


torch.compile(Netz(), backend=durchlässig)(torch.linspace(-3, 3, 7))
sys.exit(3)  # ünd kein Zeilenende"""


def test_an_awkward_script_is_minified_all_the_same(tmp_path: Path) -> None:
    """Its arguments start with dashes, it reads stdin, changes its directory, imports a module beside it, makes errors
    of warnings (as does its Python), names things in German, exits 3, and has no newline at its end."""
    folder, out = tmp_path / "größe", tmp_path / "out"
    folder.mkdir()
    (folder / "beside.py").write_text("FLOOR = -0.5\n")
    (folder / "awkward.py").write_text(AWKWARD, encoding="utf-8")
    options = ("--out", out, "--workers", 2, "--runs", 1, "--json")
    strict = {"PYTHONWARNINGS": "error"}
    arguments = ("--", "--steps", "3", "-v", "größer")
    with Run(
        tmp_path, "accuracy", folder / "awkward.py", *options, *arguments, stdin="data\n", environment=strict
    ) as run:
        assert run.code() == 0, run.stderr
    row = report(out)
    assert (row["reduced"]["ops"], row["verified"]["reproduced"]) == (1, 1)
    assert run.stdout.count("\n") == 1


@pytest.mark.parametrize("leaving", ["os._exit(3)", "1 / 0"])
def test_a_script_that_comes_to_an_end_of_its_own_after_it_diverged_is_a_find(leaving: str, tmp_path: Path) -> None:
    found = watch(f"import os\n{WRONG}\n{leaving}\n", tmp_path)
    assert [suspect.region for suspect in found.suspects] == [0]
