"""The part of a user's script that a captured program cannot do without, as text.

Owns three questions. `prelude`: which top-level statements define the wanted names and register the custom ops in use?
`expression_for`: under which text is a live object reached again once that slice has run? `local_imports`: which of its
imports are files beside the script? Reads text and objects; never runs, imports or compiles the script.
Not followed: registrations behind more than one call, `exec`, and changes of `sys.path`, which the caller must replay.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import dataclasses
import functools
import inspect
import re
import sys
import types
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path

import libcst as cst
from libcst.helpers import get_full_name_for_node
from libcst.metadata import Assignment, GlobalScope, MetadataWrapper, ScopeProvider

from minify.errors import UsageError

# Calls that complete the definition of what they are given, or of the object whose method they are.
COMPLETES = re.compile(
    "_?(custom_op|triton_op|define|Library$|register|impl|fallthrough|allow_in_graph|make_fallback|has_side_effect"
    "|substitute_in_graph|load_inline|append|extend|insert$|update$)"
)
CREATES_OPS = re.compile(r"custom_op|triton_op|\bdefine\(|\b(DEF|FRAGMENT)\b|TORCH_LIBRARY")
LOADS_OPS = re.compile(r"(.*\.)?(load_library|import_module|cpp_extension\.load)$")
NAMES_OP = re.compile(r"""\A\w*["']+(\w+)::[\w.]*\s*["'({]""")
CPP_LIBRARY = re.compile(r"TORCH_LIBRARY\w*\(\s*(\w+)")
ONE_WORD = re.compile(r"""["'](\w+)["']$""")
FROM_IMPORT = re.compile(r"(from \S+ import )(\w.*\n)")
OPS_OF = re.compile(r"(?:.*\.)?ops\.(\w+)$")
MODULES_WITHOUT_OPS = sys.stdlib_module_names | {"torch", "numpy"}

TopLevel = cst.SimpleStatementLine | cst.BaseCompoundStatement
Names = dict[cst.CSTNode, set[str]]
LITERALS = (types.NoneType, bool, int, float, complex, str, bytes, tuple, list, dict, set)


@dataclasses.dataclass(eq=False)
class _Statement:
    """One top-level statement; an import has one alias.

    Names are read `now`, while the module runs, or `later`, in a function; `calls` are those of `now` that are called.
    `completes` are names whose definition it completes, `completes_later` those it completes when called. `ns::` stands
    for the ops of a namespace, `::` for those of any.
    """

    index: int
    node: TopLevel
    binds: set[str] = dataclasses.field(default_factory=set)
    now: set[str] = dataclasses.field(default_factory=set)
    later: set[str] = dataclasses.field(default_factory=set)
    calls: set[str] = dataclasses.field(default_factory=set)
    completes: set[str] = dataclasses.field(default_factory=set)
    completes_later: set[str] = dataclasses.field(default_factory=set)

    @property
    def small(self) -> cst.CSTNode:
        return self.node.body[0] if isinstance(self.node, cst.SimpleStatementLine) else self.node

    @property
    def imports(self) -> str | None:
        """The text of an import."""
        return _code(self.small) if isinstance(self.small, cst.Import | cst.ImportFrom) else None

    @property
    def is_definition(self) -> bool:
        return isinstance(self.small, cst.Import | cst.ImportFrom | cst.FunctionDef | cst.ClassDef)


def prelude(source: str, wanted: Collection[str], *, namespaces: Collection[str] = ()) -> str:
    """The smallest slice of `source`, in its order, that defines `wanted` and registers the ops of `namespaces`.

    `wanted` are top-level names, or expressions over them. Where the script creates no op of a namespace, imports that
    may do so are kept. `from __future__ import annotations` is kept where needed, and must then stay first in a file.
    Raises UsageError where `source` cannot be parsed, or a wanted name is not defined at its top level.
    """
    try:
        module = cst.parse_module(source)
    except cst.ParserSyntaxError as error:
        raise UsageError(f"the script cannot be parsed: {error.message}", "check that it runs by itself") from error
    names = {node.id for text in wanted for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    kept = _Slicer(_survey(module)).select(names, {f"{name}::" for name in namespaces})
    return _laid_out(kept, module.default_indent)


def _flat(body: Iterable[cst.CSTNode]) -> Iterator[TopLevel]:
    """Top-level statements one by one, bare of their comments; `__main__` and `TYPE_CHECKING` blocks left out."""
    for node in body:
        test = _code(node.test) if isinstance(node, cst.If) else ""
        if isinstance(node, cst.SimpleStatementLine):
            for small in node.body:
                for part in _by_alias(small):
                    yield cst.SimpleStatementLine([part.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])
        elif isinstance(node, cst.If) and re.fullmatch(r"[\w.]*\bTYPE_CHECKING", test):
            if node.orelse:
                yield from _flat([node.orelse] if isinstance(node.orelse, cst.If) else node.orelse.body.body)
        elif isinstance(node, cst.BaseCompoundStatement) and "__main__" not in test:
            yield node.with_changes(leading_lines=[])


def _by_alias(small: cst.BaseSmallStatement) -> Iterator[cst.BaseSmallStatement]:
    """An import once for each of its aliases; any other statement as it is."""
    if isinstance(small, cst.ImportFrom):
        small = small.with_changes(lpar=None, rpar=None)
    if not isinstance(small, cst.Import | cst.ImportFrom) or isinstance(small.names, cst.ImportStar):
        yield small
    else:
        for alias in small.names:
            yield small.with_changes(names=[alias.with_changes(comma=cst.MaybeSentinel.DEFAULT)])


def _code(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)


def _walk(node: cst.CSTNode, later: bool = False) -> Iterator[tuple[cst.CSTNode, bool]]:
    """Each node under `node`, and whether it runs only when a function is called."""
    yield node, later
    for child in node.children:
        yield from _walk(child, later or (isinstance(node, cst.FunctionDef | cst.Lambda) and child is node.body))


def _survey(module: cst.Module) -> list[_Statement]:
    """Every top-level statement with what it binds, reads and completes."""
    wrapper = MetadataWrapper(module.with_changes(body=list(_flat(module.body)), header=[], footer=[]))
    statements = [_Statement(index, node) for index, node in enumerate(wrapper.module.body)]
    places = {node: (item, later) for item in statements for node, later in _walk(item.node)}
    names = _follow_names(wrapper, places)
    imports = [item for item in statements if item.imports and item.binds]
    whole = {max(item.binds, key=len) for item in imports}
    for item in imports:  # `import a.b` gives `a` only where no `import a` does
        item.binds = {name for name in item.binds if name not in whole or name == max(item.binds, key=len)}
    imported = {name for item in imports for name in item.binds}
    for node, (item, later) in places.items():
        completed = _completed(node, names, imported)
        (item.completes_later if later else item.completes).update(completed)
        if not later:
            item.completes |= _mentioned(node)
            item.calls.add(_path(node).partition(".")[0])
    _complete_ops(statements, names)
    return statements


def _follow_names(wrapper: MetadataWrapper, places: Mapping[cst.CSTNode, tuple[_Statement, bool]]) -> Names:
    """Fill in `binds`, `now` and `later`; the top-level names, and ops, that each node reads."""
    names: Names = defaultdict(set)
    for scope in {scope for scope in wrapper.resolve(ScopeProvider).values() if scope is not None}:
        for assignment in scope.assignments if isinstance(scope, GlobalScope) else ():
            item, later = places[assignment.node] if isinstance(assignment, Assignment) else (None, False)
            if item and not later:  # else it is `global` in a function
                future = (item.imports or "").startswith("from __future__ ")
                item.binds.add("__future__." * future + assignment.name)
        for access in scope.accesses:
            names[access.node] |= {found.name for found in access.referents if isinstance(found.scope, GlobalScope)}
            if not access.referents and isinstance(access.node, cst.Name):
                names[access.node].add(access.node.value)
    for node, (item, later) in places.items():
        if isinstance(node, cst.Global):
            names[node] |= {one.name.value for one in node.names}
        elif isinstance(node, cst.Annotation):
            names[node].add("__future__.annotations")
        elif isinstance(node, cst.Attribute) and (namespace := OPS_OF.match(get_full_name_for_node(node) or "")):
            names[node].add(f"{namespace[1]}::")
        elif isinstance(node, cst.SimpleString) and (word := ONE_WORD.match(node.value)):
            names[node].add(f"{word[1]}::")
        names[node] |= _mentioned(node)
        (item.later if later else item.now).update(names[node])
    return names


def _mentioned(node: cst.CSTNode) -> set[str]:
    """The namespaces whose op, or C++ library, a string names."""
    code = _code(node) if isinstance(node, cst.SimpleString | cst.FormattedString) else ""
    return {f"{name}::" for name in NAMES_OP.findall(code) + CPP_LIBRARY.findall(code)}


def _ops(names: set[str]) -> set[str]:
    return {name for name in names if name.endswith("::")}


def _read_in(node: cst.CSTNode, names: Names) -> set[str]:
    return {name for part, _ in _walk(node) for name in names[part]}


def _path(node: cst.CSTNode) -> str:
    """The dotted name that a call or a decorator calls, or that an assignment fills."""
    part = node.func if isinstance(node, cst.Call) else node.decorator if isinstance(node, cst.Decorator) else None
    part = node.target if isinstance(node, cst.AssignTarget | cst.AugAssign) else part
    return (get_full_name_for_node(part) or "") if part else ""


def _completed(node: cst.CSTNode, names: Names, imported: set[str]) -> set[str]:
    """Names whose definition `node` completes: by a call, a decorator, or an assignment to a part of an object."""
    path = _path(node)
    owner = {path.partition(".")[0]} - imported
    if isinstance(node, cst.Call | cst.Decorator):
        if LOADS_OPS.match(path):
            return {"::"}
        read = _read_in(node, names) if COMPLETES.match(path.rpartition(".")[2]) else set()
        return owner & read if "." in path and owner & read else read
    if isinstance(node, cst.AssignTarget | cst.AugAssign) and isinstance(node.target, cst.Attribute | cst.Subscript):
        read = _read_in(node.target, names)
        return owner & read or _ops(read)
    return set()


def _complete_ops(statements: list[_Statement], names: Names) -> None:
    """Follow what stands for a namespace: a constant, `torch.ops.ns.op`, a library, a function that is called."""
    stands_for: dict[str, set[str]] = defaultdict(set)
    for item in statements:
        known = _ops(item.completes)
        if isinstance(item.small, cst.Assign) and isinstance(item.small.value, cst.SimpleString | cst.Attribute):
            known |= _ops(_read_in(item.small.value, names))
        for name in item.binds:
            stands_for[name] |= known
    for item in statements:
        item.completes |= {op for name in item.completes for op in stands_for[name]}
        item.completes_later |= {op for name in item.completes_later for op in stands_for[name]}
    called = {name: item.completes_later for item in statements for name in item.binds}
    for item in statements:
        item.completes |= {op for name in item.calls for op in _ops(called.get(name, set()))}


class _Slicer:
    """Chooses statements: who gives a name, whom those need in turn, then what completes what has been chosen."""

    def __init__(self, statements: list[_Statement]) -> None:
        self.statements = statements
        self.by_name: dict[str, list[_Statement]] = defaultdict(list)
        for item in statements:
            for name in item.binds or ({"*"} if item.imports else ()):
                self.by_name[name].append(item)

    def select(self, wanted: set[str], ops: set[str]) -> list[_Statement]:
        for name in wanted:
            if not self.binders(name) and not hasattr(builtins, name):
                raise UsageError(f"{name} is not defined at the top level of the script", "move its definition there")
        last = len(self.statements)
        kept = self.reach(self.importers(ops).union(*(self.givers(name, last) for name in wanted)))
        while more := self.completers(kept, ops | {"::"} if ops else ops):
            kept |= self.reach(more)
        return sorted(kept, key=lambda item: item.index)

    def binders(self, name: str) -> list[_Statement]:
        """Statements that bind `name`; where none is seen to, the star imports."""
        unseen = name.isidentifier() and not name.startswith("__") and not hasattr(builtins, name)
        return self.by_name.get(name) or (self.by_name.get("*", []) if unseen else [])

    def givers(self, name: str, before: int) -> set[_Statement]:
        """Statements that may have given `name` the value it has before statement `before`."""
        found = set()
        for item in reversed(self.binders(name)):
            if item.index < before:
                found.add(item)
                if item.is_definition or isinstance(item.small, cst.Assign):
                    break
        return found

    def reach(self, roots: Iterable[_Statement]) -> set[_Statement]:
        """`roots` with all they need: of a name that is read in a function the first giver, the others being completers."""
        found: set[_Statement] = set()
        left = list(roots)
        while left:
            item = left.pop()
            if item not in found:
                found.add(item)
                left += [giver for name in item.now for giver in self.givers(name, item.index)]
                left += [binder for name in item.later for binder in self.binders(name)[:1]]
        return found

    def completers(self, kept: set[_Statement], ops: set[str]) -> set[_Statement]:
        """Statements that complete the definition of a name that those of `kept` bind, or of an op in use."""
        bound = {name for item in kept if not item.imports for name in item.binds} | ops
        later = {name for item in kept for name in item.later}
        imports = {item.imports for item in kept if item.imports}
        left = [item for item in self.statements if item not in kept and item.imports not in imports]
        touched = {item: item.completes & bound | item.binds & later for item in left}
        return {item for item, names in touched.items() if names and not self.uses(item, names)}

    def uses(self, item: _Statement, touched: set[str]) -> bool:
        """Whether to run `item` is to use what it completes: a compiled model whose backend appends to a list."""
        bound = {binder for name in touched for binder in self.binders(name)}
        reads = set() if _ops(touched) else item.now - touched
        givers = [(giver, name in item.calls) for name in reads for giver in self.givers(name, item.index)]
        return any((called or not giver.is_definition) and bound & self.reach([giver]) for giver, called in givers)

    def importers(self, ops: set[str]) -> set[_Statement]:
        """Imports that may create those `ops` that the script doesn't: of the module of that name, else all unknown ones."""
        missing = ops.difference(*(item.completes for item in self.statements if CREATES_OPS.search(_code(item.node))))
        roots = {item: item.imports.split()[1].split(".")[0] for item in self.statements if item.imports}
        named = {item for item, root in roots.items() if f"{root}::" in missing}
        return named or {item for item, root in roots.items() if missing and root not in MODULES_WITHOUT_OPS}


def _laid_out(kept: list[_Statement], indent: str) -> str:
    """The text of the statements: blank lines as PEP 8 has them, neighbours that import from one module joined."""
    text, source, last = "", "", 0
    for item in kept:
        code = cst.Module([item.node], default_indent=indent).code
        imports = FROM_IMPORT.fullmatch(code)
        if imports and imports[1] == source:
            text = f"{text.rstrip()}, {imports[2]}"
        else:
            kind = 2 if isinstance(item.small, cst.FunctionDef | cst.ClassDef) else int(not item.imports)
            text += "\n" * ((2 if 2 in (kind, last) else kind != last) if text else 0) + code
            last = kind
        source = imports[1] if imports else ""
    return text


def local_imports(text: str, script_dir: Path) -> tuple[str, ...]:
    """Modules that `text` imports, at any depth, from files in `script_dir` or below, in order of appearance."""
    found: dict[str, None] = {}
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in sorted(imports, key=lambda node: (node.lineno, node.col_offset)):
        parent = f"{node.module}." if isinstance(node, ast.ImportFrom) and node.module else ""
        names = [parent.rstrip("."), *(parent + alias.name for alias in node.names)]
        found |= dict.fromkeys(name for name in names if name and _is_file_in(script_dir, name))
    return tuple(found)


def _is_file_in(folder: Path, name: str) -> bool:
    folders, spec = [str(folder)], None
    for part in name.split("."):
        spec = PathFinder.find_spec(part, folders)
        folders = list((spec and spec.submodule_search_locations) or ())
    return bool(spec and spec.has_location and name not in sys.builtin_module_names)


def expression_for(obj: object, script_globals: Mapping[str, object]) -> str | None:
    """The text under which a function, class or instance is reached from the script's globals; None where it isn't, or is a literal.

    `name`, `name.attribute`, `Class()` for an instance without state, `functools.partial(name, literals)`.
    """
    if _literal(obj) is not None:
        return None
    scope = _public(script_globals)
    return _name_in(obj, scope) or _attribute_in(obj, scope) or _made_from(obj, scope)


def _public(scope: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in scope.items() if name.isidentifier() and name != "_" and name[:2] != "__"}


def _name_in(obj: object, scope: Mapping[str, object]) -> str | None:
    """The name that `scope` gives `obj`, its own rather than another."""
    names = [name for name, value in scope.items() if value is obj]
    return min(names, key=lambda name: name != getattr(obj, "__name__", name), default=None)


def _attribute_in(obj: object, scope: Mapping[str, object]) -> str | None:
    for kind in (types.ModuleType, type, object):
        for name, owner in scope.items():
            held = _public(getattr(owner, "__dict__", {})) if isinstance(owner, kind) else {}
            plain = {key: value.__func__ if isinstance(value, staticmethod) else value for key, value in held.items()}
            if attribute := _name_in(obj, plain):
                return f"{name}.{attribute}"
    return None


def _made_from(obj: object, scope: Mapping[str, object]) -> str | None:
    """A bound method, a partial, or an instance without state, as an expression over what can be reached."""
    if isinstance(obj, types.MethodType):
        owner = expression_for(obj.__self__, scope)
        return owner and f"{owner}.{obj.__func__.__name__}"
    if type(obj) is functools.partial and not vars(obj):
        partial, called = (expression_for(part, scope) for part in (functools.partial, obj.func))
        arguments = [_literal(value) for value in (*obj.args, *obj.keywords.values())]
        keys = [""] * len(obj.args) + [f"{key}=" for key in obj.keywords]
        if partial and called and None not in arguments:
            return f"{partial}({', '.join([called, *(f'{key}{text}' for key, text in zip(keys, arguments, strict=True))])})"
    kind = type(obj)
    has_state = getattr(obj, "__dict__", {}) or any(getattr(base, "__slots__", ()) for base in kind.__mro__)
    name = _name_in(kind, scope) or _attribute_in(kind, scope)
    if name and not has_state and kind.__new__ is object.__new__:
        with contextlib.suppress(TypeError, ValueError):  # it takes arguments, or nobody knows
            inspect.signature(kind).bind()
            return f"{name}()"
    return None


def _literal(value: object) -> str | None:
    with contextlib.suppress(ValueError, SyntaxError):
        same = ast.literal_eval(repr(value)) if isinstance(value, LITERALS) else ()
        if type(same) is type(value) and repr(same) == repr(value):
            return repr(value)
    return None
