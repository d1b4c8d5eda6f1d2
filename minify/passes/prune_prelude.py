"""Drop what of the prelude the program no longer reads: classes, helper functions, registrations of ops that were cut.

May lose: an effect that a statement has besides what it defines, such as a changed default.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from minify.capture import prelude as preludes
from minify.case import Arg, Case, Const, Graph, ScalarMeta, bodies, rewrite_op
from minify.errors import InvalidCandidate, UsageError
from minify.graph import BUILTIN_NAMESPACES
from minify.passes.contract import Pass, Site

_EVERYWHERE = frozenset(("torch", "F", "math", "operator"))  # names that a repro imports by itself
_FOLDER = re.compile(r"\Aimport sys\nsys\.path\.insert\(0, (?P<folder>['\"].*['\"])\)\n")


def find(case: Case) -> tuple[Site, ...]:
    """One site, where there is anything to drop."""
    return (("prelude",),) if case.program.prelude and _pruned(case) != case.program.prelude else ()


def rewrite(case: Case, sites: tuple[Site, ...]) -> Case:
    text = _pruned(case)
    if len(text) >= len(case.program.prelude):
        raise InvalidCandidate("nothing of the prelude can go")
    return dataclasses.replace(case, program=dataclasses.replace(case.program, prelude=text))


def _pruned(case: Case) -> str:
    return _slice(case.program.prelude, frozenset(_read(case)) - _EVERYWHERE, frozenset(_namespaces(case.graph)))


@functools.lru_cache(maxsize=64)
def _slice(text: str, read: frozenset[str], namespaces: frozenset[str]) -> str:
    """The slice of `text` for the names of it that are `read`; `text` itself where it cannot be sliced."""
    found = _FOLDER.match(text)
    body = text[found.end() :] if found else text
    try:
        kept = preludes.prelude(body, read & _bound(body), namespaces=namespaces)
    except (UsageError, SyntaxError):
        return text
    if found and preludes.local_imports(kept, Path(ast.literal_eval(found["folder"]))):
        return found.group() + kept
    return kept


def _bound(text: str) -> set[str]:
    """Every name that the text may define at its top level."""
    tree = ast.parse(text)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return names


def _read(case: Case) -> Iterator[str]:
    """Names that the program, its inputs and its settings read."""
    settings = case.settings
    pairs = (*settings.options, *settings.switches, *((key, value) for _, key, value in settings.config))
    texts = [arg.text for arg in (settings.backend, *(value for _, value in pairs)) if isinstance(arg, Const)]
    texts += _texts(case.graph)
    for text in texts:
        yield from (node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name))


def _texts(graph: Graph) -> Iterator[str]:
    for op in graph.ops:
        found: list[str] = []

        def note(arg: Arg, found: list[str] = found) -> Arg:
            if isinstance(arg, Const):
                found.append(arg.text)
            return arg

        rewrite_op(op, note)
        if isinstance(op.meta, ScalarMeta):
            note(op.meta.value)
        yield from found
        if not op.target.startswith("."):
            yield op.target
        for body in bodies(op):
            yield from _texts(body)


def _namespaces(graph: Graph) -> Iterator[str]:
    """Those of the custom ops called."""
    for op in graph.ops:
        name = op.target.split(".")[2] if op.target.startswith("torch.ops.") else ""
        if name and name not in BUILTIN_NAMESPACES:
            yield name
        for body in bodies(op):
            yield from _namespaces(body)


PRUNE_PRELUDE = Pass("prelude", find, rewrite, alternatives=True)
