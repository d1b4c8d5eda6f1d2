"""The look of generated code: double quotes, lines that fit, blank lines, imports in order. Changes no meaning."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import libcst as cst

LIMIT = 120
_INDENT = 4
Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement


def tidy(node: Statement, depth: int = 0) -> Statement:
    """One generated statement with double quotes, its over-long lines broken inside their widest bracket."""
    plain = node.visit(_DoubleQuotes())
    assert isinstance(plain, cst.SimpleStatementLine | cst.BaseCompoundStatement)
    return _fitted(plain, depth)


def spaced(statements: Sequence[Statement], blank: int) -> list[Statement]:
    """The same statements, the first with `blank` empty lines above it."""
    lines = [cst.EmptyLine(indent=False) for _ in range(blank)]
    first = [statement.with_changes(leading_lines=[*lines, *_comments(statement)]) for statement in statements[:1]]
    return [*first, *statements[1:]]


def _comments(statement: Statement) -> list[cst.EmptyLine]:
    lines = list(statement.leading_lines)
    while lines and lines[0].comment is None:
        lines.pop(0)
    return lines


class _DoubleQuotes(cst.CSTTransformer):
    def leave_SimpleString(self, original_node: cst.SimpleString, updated_node: cst.SimpleString) -> cst.BaseExpression:
        text = updated_node.value
        if text.startswith("'") and not text.startswith("'''") and not set('"\\') & set(text):
            return updated_node.with_changes(value=f'"{text[1:-1]}"')
        return updated_node


# --- long lines ---------------------------------------------------------------------------------------------------------


def _fitted(node: Statement, depth: int) -> Statement:
    body = getattr(node, "body", None)
    if isinstance(body, cst.IndentedBlock):
        inner = _apart([_fitted(line, depth + 1) for line in body.body])  # type: ignore[arg-type]
        return node.with_changes(body=body.with_changes(body=inner))
    if not isinstance(node, cst.SimpleStatementLine) or len(_code(node).strip()) + depth * _INDENT <= LIMIT:
        return node
    found = _Brackets()
    node.visit(found)
    if found.widest is None:
        return node
    broken = node.deep_replace(found.widest, _broken(found.widest, LIMIT - (depth + 1) * _INDENT))
    assert isinstance(broken, cst.SimpleStatementLine)
    return broken


def _apart(lines: list[Statement]) -> list[Statement]:
    """An empty line after each nested function, and before it where something precedes."""
    found: list[Statement] = []
    for line in lines:
        near_function = isinstance(line, cst.FunctionDef) or (found and isinstance(found[-1], cst.FunctionDef))
        found += spaced([line], 1) if found and near_function and not line.leading_lines else [line]
    return found


def _code(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)


class _Brackets(cst.CSTVisitor):
    """The call or list with the most items, the outermost of equals."""

    widest: cst.List | cst.Call | None = None

    def _consider(self, node: cst.List | cst.Call) -> None:
        if len(_items(node)) > (len(_items(self.widest)) if self.widest else 0):
            self.widest = node

    def visit_List(self, node: cst.List) -> None:
        self._consider(node)

    def visit_Call(self, node: cst.Call) -> None:
        self._consider(node)


def _items(node: cst.List | cst.Call) -> Sequence[cst.BaseElement | cst.Arg]:
    return node.elements if isinstance(node, cst.List) else node.args


def _newline(extra: int) -> cst.ParenthesizedWhitespace:
    return cst.ParenthesizedWhitespace(indent=True, last_line=cst.SimpleWhitespace(" " * extra))


def _broken(node: cst.List | cst.Call, room: int) -> cst.List | cst.Call:
    """The same brackets with as many items on each line as there is room for."""
    items, used = list(_items(node)), 0
    for position, item in enumerate(items):
        width = len(_code(item.with_changes(comma=cst.MaybeSentinel.DEFAULT))) + 2
        if position and used + width > room:
            items[position - 1] = items[position - 1].with_changes(comma=cst.Comma(whitespace_after=_newline(_INDENT)))
            used = 0
        elif position:
            items[position - 1] = items[position - 1].with_changes(
                comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
            )
        used += width
    if isinstance(node, cst.List):
        return node.with_changes(
            elements=items,
            lbracket=cst.LeftSquareBracket(whitespace_after=_newline(_INDENT)),
            rbracket=cst.RightSquareBracket(whitespace_before=_newline(0)),
        )
    items[-1] = items[-1].with_changes(whitespace_after_arg=_newline(0))
    return node.with_changes(args=items, whitespace_before_args=_newline(_INDENT))


# --- imports ------------------------------------------------------------------------------------------------------------


def is_import(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and all(
        isinstance(small, cst.Import | cst.ImportFrom) for small in statement.body
    )


def ordered_imports(statements: Iterable[Statement]) -> list[Statement]:
    """Imports without repeats: `__future__`, the standard library, the rest; a blank line between the groups."""
    groups: dict[int, dict[str, Statement]] = {0: {}, 1: {}, 2: {}}
    for statement in statements:
        bare = statement.with_changes(leading_lines=[])
        groups[_group(bare)].setdefault(_code(bare).strip(), bare)
    found: list[Statement] = []
    for group in groups.values():
        found += spaced([group[text] for text in sorted(group)], 1)
    return found


def _group(statement: Statement) -> int:
    words = _code(statement).split()
    top = words[1].split(".")[0].rstrip(",")
    return 0 if top == "__future__" else 1 if top in sys.stdlib_module_names else 2
