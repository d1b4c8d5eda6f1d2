"""The whole text of `repro.py`: header, imports, program, inputs, the run, the check, the exit code.

What is printed here is what the worker ran: program and inputs come from the same renderer, settings from the same
case. Returns text and runs nothing.
"""

from __future__ import annotations

import ast
import dataclasses

import libcst as cst

from minify import inputs as input_text
from minify import render
from minify.case import Case, Input, is_contiguous
from minify.emit import layout
from minify.emit.compiling import Compiling, compiling
from minify.emit.crash import crash_tail
from minify.emit.data import read_inputs
from minify.emit.header import DATA_FILE, Facts, header
from minify.emit.layout import Statement
from minify.emit.probe import Probe, leading, probe
from minify.emit.run import run
from minify.tolerance import Tolerance
from minify.verdict import Observation, Signature

MOST_LINES = 60  # a repro has fewer
_IMPORTS = {
    "sys": "import sys",
    "faulthandler": "import faulthandler",
    "math": "import math",
    "operator": "import operator",
    "Path": "from pathlib import Path",
    "torch": "import torch",
    "F": "import torch.nn.functional as F",
}


def emit(
    case: Case, observation: Observation, signature: Signature, facts: Facts, tolerance: Tolerance = Tolerance()
) -> str:
    """The text of a file that exits 1 where `case` still fails as `observation` saw it fail. Recorded values that were
    not inlined are read from `repro_data.pt` beside it (`write_data`). Facts that would make it longer than a repro is are left
    out, those that do not decide first. Raises ValueError where the observation does not show `signature`."""
    text = _whole(case, observation, signature, facts, tolerance)
    while text.count("\n") >= MOST_LINES and (facts.decisive or facts.not_decisive):
        last = "not_decisive" if facts.not_decisive else "decisive"
        facts = dataclasses.replace(facts, **{last: getattr(facts, last)[:-1]})
        text = _whole(case, observation, signature, facts, tolerance)
    return text


def _whole(case: Case, observation: Observation, signature: Signature, facts: Facts, tolerance: Tolerance) -> str:
    row = leading(observation, signature)
    bounds = dataclasses.replace(tolerance, factor=max(1.0, signature.least))
    check = None if row is None else probe(case, observation, row, bounds)
    how = compiling(case, random=observation.random)
    inputs, recorded = _inputs(case)
    prelude = list(cst.parse_module(case.program.prelude).body)
    tail = _accuracy_tail(how, check) if check else crash_tail(how, observation, signature)
    harness = _statements(run(case, observation, check) + tail)
    renamed = _Renamed(_bound_names(case.program.prelude))
    rest = _prelude_rest(prelude)
    body: list[Statement] = [
        *rest,
        *layout.spaced(_statements("\n".join(how.statements)), 2 if rest else 1),
        *layout.spaced([layout.tidy(render.function(case.graph, "fn"))], 2),
        *layout.spaced([inputs], 2),
        *layout.spaced([layout.tidy(input_text.other_inputs(case))] if case.settings.replays else [], 2),
        *layout.spaced([_renamed(statement, renamed) for statement in harness[:1]], 2),
        *layout.spaced([_renamed(statement, renamed) for statement in harness[1:]], 2),
    ]
    text = header(case, observation, signature, facts, row, recorded)
    module = cst.Module([_docstring(text), *_imports(body, prelude, how), *body])
    compile(module.code, "repro.py", "exec")
    return module.code


def _statements(text: str) -> list[Statement]:
    return [layout.tidy(statement) for statement in cst.parse_module(text).body]


def _docstring(text: str) -> Statement:
    safe = text.replace("\\", "\\\\").replace('"""', "'''")
    end = "\n" if "\n" in safe else ""
    return cst.SimpleStatementLine([cst.Expr(cst.SimpleString(f'"""{safe}{end}"""'))])


# --- inputs -------------------------------------------------------------------------------------------------------------


def _inputs(case: Case) -> tuple[Statement, list[str]]:
    """`def make_inputs()` with its decisive layouts asserted, and the names of the inputs it reads from the data file."""
    function = input_text.make_inputs(case)
    assert isinstance(function.body, cst.IndentedBlock)
    *lines, last = function.body.body
    recorded = read_inputs(case)
    if recorded:
        lines.insert(
            0, cst.parse_statement(f'recorded = torch.load(Path(__file__).with_name("{DATA_FILE}"), weights_only=True)')
        )
    for item in case.inputs:
        if isinstance(item, Input) and not is_contiguous(item.meta):
            lines.append(cst.parse_statement(f"assert {item.name}.stride() == {render.text_of(item.meta.stride)}"))
    body = function.body.with_changes(body=[*lines, last])
    return layout.tidy(function.with_changes(body=body)), recorded


# --- what stands around the program ----------------------------------------------------------------------------------------


def _imports(body: list[Statement], prelude: list[Statement], how: Compiling) -> list[Statement]:
    """The imports that the prelude opens with, then those that the rest reads and the prelude does not bind itself."""
    read = {node.id for node in ast.walk(ast.parse(cst.Module(body).code)) if isinstance(node, ast.Name)}
    bound = _bound_names(cst.Module(prelude).code)
    texts = [
        text for name, text in _IMPORTS.items() if name in read and (name not in bound or name in ("torch", "sys"))
    ]
    return layout.ordered_imports([*_leading_imports(prelude), *_statements("\n".join([*texts, *how.imports]))])


def _leading_imports(prelude: list[Statement]) -> list[Statement]:
    found = []
    for statement in prelude:
        if layout.is_import(statement):
            found.append(statement)
        elif not _is_docstring(statement):
            break
    return found


def _prelude_rest(prelude: list[Statement]) -> list[Statement]:
    hoisted = _leading_imports(prelude)
    return layout.spaced([s for s in prelude if not any(s is other for other in hoisted) and not _is_docstring(s)], 2)


def _is_docstring(statement: Statement) -> bool:
    match statement:
        case cst.SimpleStatementLine(body=[cst.Expr(value=cst.SimpleString())]):
            return True
    return False


def _bound_names(source: str) -> set[str]:
    """Names that a module's top level binds."""
    found = set()
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            found.add(statement.name)
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.alias):
                found.add((node.asname or node.name).split(".")[0])
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
    return found


class _Renamed(cst.CSTTransformer):
    """Our own names out of the way of those that the prelude binds."""

    def __init__(self, taken: set[str]) -> None:
        super().__init__()
        self._taken = {"run", "expected", "observed", "good", "compiled", "root", "error", "names"} & taken

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return (
            updated_node.with_changes(value=f"{updated_node.value}_of_repro")
            if updated_node.value in self._taken
            else updated_node
        )


def _renamed(statement: Statement, renamed: _Renamed) -> Statement:
    changed = statement.visit(renamed)
    assert isinstance(changed, cst.SimpleStatementLine | cst.BaseCompoundStatement)
    return changed


def _accuracy_tail(how: Compiling, check: Probe) -> str:
    plain = how.call == "torch.compile(fn)"
    runs = "run(fn), run(torch.compile(fn))" if plain else "run(fn), run(compiled)"
    compiled = "" if plain else f"    compiled = {how.call}\n"
    index = check.shown.removesuffix(".item()")
    where = f', "at {index}"' if index else ""
    return f"""
try:
{compiled}    expected, observed = {runs}
    good = {check.good}
except Exception as error:
    print(f"cannot tell: {{type(error).__name__}}: {{error}}")
    sys.exit(125)
print("expected:", expected{check.shown}{where})
print("observed:", observed{check.shown}{where})
sys.exit(0 if good else 1)
"""
