"""The rules of the house that import-linter and ruff cannot see: private torch in one room, names, sizes, start-up."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "minify"
MODULES = {path.relative_to(PACKAGE.parent).as_posix(): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
PRIVATE_TORCH_ROOM = "minify/torch_internals/"

BANNED_WORDS = {"manager", "util", "helper", "common", "misc", "handler"}
BANNED_STARTS = ("process_", "do_")
MOST_LINES_OF_A_FILE = 400
MOST_LINES_OF_A_FUNCTION = 60


def imported_names(tree: ast.AST) -> dict[str, str]:
    """What each imported name stands for: `import torch.fx as fx` gives `fx -> torch.fx`."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return names


def dotted_name(node: ast.expr, names: dict[str, str]) -> str:
    """`fx._x.y` as `torch.fx._x.y`; nothing when the chain does not start at an imported name."""
    if isinstance(node, ast.Attribute):
        owner = dotted_name(node.value, names)
        return f"{owner}.{node.attr}" if owner else ""
    return names.get(node.id, "") if isinstance(node, ast.Name) else ""


def mentioned_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that is imported (`import_module("x")` included) or reached from an import."""
    names = imported_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module or ''}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield node.lineno, dotted_name(node, names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__", "find_spec"):
                yield node.lineno, str(node.args[0].value)


def is_private_torch(name: str) -> bool:
    """`torch._dynamo` is private, `torch.__version__` is not; ops may be called what they like (`torch.ops.aten._softmax`)."""
    first, *rest = name.split(".")
    if first != "torch" or rest[:1] == ["ops"]:
        return False
    return any(part.startswith("_") and not part.endswith("__") for part in rest)


def private_torch_names(source: str) -> list[str]:
    return sorted({name for _, name in mentioned_names(ast.parse(source)) if is_private_torch(name)})


def name_words(name: str) -> set[str]:
    """The words of `snake_case` and `CamelCase` names, in the singular."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return {word.lower() for word in words} | {word.lower().removesuffix("s") for word in words}


def is_banned(name: str) -> bool:
    return bool(name_words(name) & BANNED_WORDS) or name.lstrip("_").startswith(BANNED_STARTS)


def definitions(source: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]


def test_there_are_modules_to_check() -> None:
    assert "minify/case.py" in MODULES


def test_only_torch_internals_touches_private_torch() -> None:
    found = {
        path: private_torch_names(source) for path, source in MODULES.items() if not path.startswith(PRIVATE_TORCH_ROOM)
    }
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import torch._dynamo",
        "import torch._dynamo.config as config",
        "from torch import _C",
        "from torch._inductor import config",
        "from torch.fx._symbolic_trace import Tracer",
        "import torch\ntorch._dynamo.reset()",
        "import torch as t\nt._functorch.config",
        "import torch.fx as fx\nfx._pytree",
        "from torch import Tensor\nTensor._make_subclass",
        "import importlib\nimportlib.import_module('torch._inductor.config')",
        "def f():\n    from torch._higher_order_ops import cond",
    ],
)
def test_a_way_to_private_torch_is_noticed(source: str) -> None:
    assert private_torch_names(source)


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.compile",
        "import torch\ntorch.__version__",
        "import torch\ntorch.ops.aten._softmax.default",
        "NAMES = {'relu': 'torch._C._nn.relu'}",
        "case._torch",
        "from minify import torch_internals\ntorch_internals._cache",
        "from torchvision import _C",
    ],
)
def test_public_torch_and_names_in_tables_are_fine(source: str) -> None:
    assert private_torch_names(source) == []


def test_no_name_says_nothing() -> None:
    defined = [(path, node.name) for path, source in MODULES.items() for node in definitions(source)]
    modules = [(path, part) for path in MODULES for part in Path(path).with_suffix("").parts]
    assert [(path, name) for path, name in defined + modules if is_banned(name)] == []


@pytest.mark.parametrize(
    "name", ["CaseManager", "string_utils", "_do_it", "process_case", "TraceHandler", "HTTPHelper", "common"]
)
def test_a_name_that_says_nothing_is_noticed(name: str) -> None:
    assert is_banned(name)


@pytest.mark.parametrize("name", ["domain", "document", "utility", "Processor", "handle", "__init__", "commonest"])
def test_a_name_that_only_looks_like_one_is_fine(name: str) -> None:
    assert not is_banned(name)


def test_no_file_is_over_400_lines() -> None:
    lengths = {path: len(source.splitlines()) for path, source in MODULES.items()}
    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES_OF_A_FILE} == {}


def test_no_function_is_over_60_lines() -> None:
    lengths = {
        f"{path}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path, source in MODULES.items()
        for node in definitions(source)
        if not isinstance(node, ast.ClassDef)
    }
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES_OF_A_FUNCTION} == {}


def test_every_module_says_what_it_owns() -> None:
    assert [path for path, source in MODULES.items() if not ast.get_docstring(ast.parse(source))] == []


@pytest.mark.parametrize("module", ["minify.cli", "minify.pipeline"])
def test_a_run_starts_without_torch(module: str) -> None:
    asked = f"import sys, {module}; print(sorted({{'torch', 'triton', 'numpy'}} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=False)
    assert (answer.stdout.strip(), answer.stderr) == ("[]", "")
