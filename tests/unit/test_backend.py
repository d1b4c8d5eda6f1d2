"""The backend in the user's own process: what of the main program goes into the case that it leaves behind."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from minify import torch_internals
from minify.backend import minify_backend
from minify.runs import RunFolder

SOURCE = """
import torch


@torch.library.custom_op("backend_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


print("a line that no case needs")
"""


def wrong(module: torch.fx.GraphModule, example_inputs: list[Any], **_: Any) -> Callable[..., Any]:
    return lambda *args: [result + 1 for result in module(*args)]


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (SOURCE, "reduce it with: minify resume"),
        (
            "import torch",
            "cannot be resumed, since the custom ops of backend_test are not in the case: the main program",
        ),
        (
            None,
            "cannot be resumed, since the custom ops of backend_test are not in the case: the main program has no file",
        ),
    ],
)
def test_a_case_has_the_custom_ops_of_the_main_program_or_is_said_to_lack_them(
    written: str | None, told: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    main = types.ModuleType("__main__")
    if written is not None:
        main.__file__ = str(tmp_path / "user.py")
        Path(main.__file__).write_text(written)
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(torch_internals, "backend", lambda name: wrong)
    exec(SOURCE, main.__dict__)
    torch.compiler.reset()
    torch.compile(lambda x: main.twice(x), backend=minify_backend)(torch.ones(2))  # type: ignore[attr-defined]
    torch.compiler.reset()
    assert told in caplog.text
    case = RunFolder(Path("minify-out/backend-1")).captured()
    assert case is not None
    assert ("def twice" in case.program.prelude) == (written == SOURCE)
    assert "a line that" not in case.program.prelude
