"""A program's text with a `del` after the last reader of each value, so that a long run holds no more than it needs.

Only for runs in eager: what is compiled is the text that the repro shows.
"""

from __future__ import annotations

import ast
import dataclasses


@dataclasses.dataclass
class _Step:
    """One plain statement, the block it stands in, and the names it mentions."""

    block: list[ast.stmt]
    statement: ast.stmt
    names: set[str]


def releasing(tree: ast.Module, function: str) -> ast.Module:
    """`tree`, with every value that `function` assigns deleted once nothing reads it any more. Changes `tree`.

    A name that a nested function mentions is left alone, since the call may come later; so are parameters, which the
    caller holds anyway. Raises StopIteration where there is no such function."""
    body = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function).body
    steps = list(_steps(body))
    assigned = {name for step in steps if isinstance(step.statement, ast.Assign) for name in _stored(step.statement)}
    nested = {name for step in steps if isinstance(step.statement, ast.FunctionDef) for name in step.names}
    ours = assigned - nested
    last = {name: id(step.statement) for step in steps for name in step.names & ours}
    done: dict[int, list[str]] = {}
    for name in sorted(last):
        done.setdefault(last[name], []).append(name)
    for block in {id(step.block): step.block for step in steps}.values():
        block[:] = [line for statement in block for line in (statement, *_deletions(statement, done))]
    return ast.fix_missing_locations(tree)


def _deletions(statement: ast.stmt, done: dict[int, list[str]]) -> list[ast.stmt]:
    if isinstance(statement, ast.Return):
        return []
    return [ast.Delete([ast.Name(name, ast.Del())]) for name in done.get(id(statement), ())]


def _steps(block: list[ast.stmt]) -> list[_Step]:
    found: list[_Step] = []
    for statement in block:
        if isinstance(statement, ast.With):
            found += _steps(statement.body)
        else:
            names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
            found.append(_Step(block, statement, names))
    return found


def _stored(statement: ast.Assign) -> set[str]:
    return {target.id for target in statement.targets if isinstance(target, ast.Name)}
