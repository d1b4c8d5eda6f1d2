"""Program -> Python text, through libcst. The text a worker compiles and the text a repro prints both come from here.

Owns: how each call, constant, input layout and recipe is written. Does not know of workers, oracles or headers.
"""

from __future__ import annotations

import functools
import keyword
import math
import re
from collections.abc import Collection, Iterable

import libcst as cst

from minify.graph import Arg, Const, DictArg, Graph, ListArg, Op, Ref, SliceArg, Subgraph, op_refs, refs, rewrite_op

_BINARY: dict[str, type[cst.BaseBinaryOp]] = {
    "add": cst.Add,
    "sub": cst.Subtract,
    "mul": cst.Multiply,
    "truediv": cst.Divide,
    "floordiv": cst.FloorDivide,
    "mod": cst.Modulo,
    "pow": cst.Power,
    "matmul": cst.MatrixMultiply,
    "and_": cst.BitAnd,
    "or_": cst.BitOr,
    "xor": cst.BitXor,
    "lshift": cst.LeftShift,
    "rshift": cst.RightShift,
}
_COMPARE: dict[str, type[cst.BaseCompOp]] = {
    "eq": cst.Equal,
    "ne": cst.NotEqual,
    "lt": cst.LessThan,
    "le": cst.LessThanEqual,
    "gt": cst.GreaterThan,
    "ge": cst.GreaterThanEqual,
}
_UNARY: dict[str, type[cst.BaseUnaryOp]] = {"neg": cst.Minus, "invert": cst.BitInvert, "pos": cst.Plus}
_AUGMENTED: dict[str, type[cst.BaseAugOp]] = {
    "iadd": cst.AddAssign,
    "isub": cst.SubtractAssign,
    "imul": cst.MultiplyAssign,
    "itruediv": cst.DivideAssign,
    "ifloordiv": cst.FloorDivideAssign,
    "imatmul": cst.MatrixMultiplyAssign,
    "imod": cst.ModuloAssign,
    "ipow": cst.PowerAssign,
    "iand": cst.BitAndAssign,
    "ior": cst.BitOrAssign,
    "ixor": cst.BitXorAssign,
    "ilshift": cst.LeftShiftAssign,
    "irshift": cst.RightShiftAssign,
}
_ENTER = "torch.amp.autocast_mode._enter_autocast"
_EXIT = "torch.amp.autocast_mode._exit_autocast"
# Names that the text of a program and of its inputs reads as something else.
_TAKEN = re.compile(
    r"torch|math|operator|fn|F|sys|recorded|make_inputs|other_inputs|storage\d+"
    r"|abs|all|any|bool|complex|divmod|float|getattr|int|len|max|min|pow|round|slice|sum"
)
_PAREN = {"lpar": [cst.LeftParen()], "rpar": [cst.RightParen()]}


def identifier(name: str, taken: Iterable[str] = ()) -> str:
    """A short Python name for a graph's own name, unlike any in `taken`: `l_self_modules_fc_parameters_weight_` -> `fc_weight`."""
    short = re.sub(r"\W", "_", name)
    short = re.sub(
        r"^[LG]_+(self_+|args_|kwargs_|model_|fn_+(?=modules_|parameters_|buffers_))?|^(primals|tangents)_(?=\d)",
        lambda m: (m.group(2) or "")[:1],
        short,
        flags=re.I,
    )
    short = re.sub(r"_*(modules|parameters|buffers)_+", "_", short).strip("_") or "x"
    if short[0].isdigit():
        short = f"x{short}"
    taken = set(taken)
    reserved = keyword.iskeyword(short) or _TAKEN.fullmatch(short)
    candidate, count = (f"{short}_" if reserved else short), 0
    while candidate in taken:
        count += 1
        candidate = f"{short}_{count}"
    return candidate


def dotted(name: str) -> cst.BaseExpression:
    """`a.b.c` as an expression; `torch.nn.functional.x` is written `F.x`."""
    return cst.parse_expression(re.sub(r"^torch\.nn\.functional\.", "F.", name))


def expression(arg: Arg) -> cst.BaseExpression:
    """One argument as a libcst expression."""
    if isinstance(arg, Ref):
        return cst.Name(arg.name)
    if isinstance(arg, Const):
        return cst.parse_expression(arg.text)
    if isinstance(arg, tuple):
        return cst.Tuple([cst.Element(expression(item)) for item in arg])
    if isinstance(arg, ListArg):
        return cst.List([cst.Element(expression(item)) for item in arg.items])
    if isinstance(arg, DictArg):
        return cst.Dict([cst.DictElement(cst.SimpleString(repr(key)), expression(item)) for key, item in arg.items])
    if isinstance(arg, SliceArg):
        return cst.Call(cst.Name("slice"), [cst.Arg(expression(part)) for part in (arg.start, arg.stop, arg.step)])
    if isinstance(arg, Subgraph):
        raise TypeError("a subgraph is written as a nested function, by name")
    return cst.parse_expression(literal(arg))


def literal(value: None | bool | int | float | complex | str) -> str:
    """Python text that evaluates to `value`, `nan` and `inf` included."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, complex):
        parts = (value.real, value.imag)
        exact = all(math.isfinite(part) and (part or math.copysign(1, part) > 0) for part in parts)
        return repr(value) if exact else f"complex({literal(value.real)}, {literal(value.imag)})"  # 0-0j is 0+0j
    return repr(value)


def text_of(arg: Arg) -> str:
    """One argument as text."""
    return cst.Module([]).code_for_node(expression(arg))


def _atom(arg: Arg) -> cst.BaseExpression:
    """An operand that binds tighter than any operator around it."""
    node = expression(arg)
    negative = isinstance(node, cst.UnaryOperation | cst.BinaryOperation)
    return node.with_changes(**_PAREN) if negative else node


def _index(arg: Arg) -> list[cst.SubscriptElement]:
    parts = arg if isinstance(arg, tuple) and arg else (arg,)
    elements: list[cst.SubscriptElement] = []
    for part in parts:
        if isinstance(part, SliceArg):
            bounds = [None if bound is None else expression(bound) for bound in (part.start, part.stop, part.step)]
            elements.append(cst.SubscriptElement(cst.Slice(bounds[0], bounds[1], bounds[2])))
        else:
            elements.append(cst.SubscriptElement(cst.Index(expression(part))))
    if isinstance(arg, tuple) and len(arg) == 1:  # x[(i,)]: one element and a comma
        elements[0] = elements[0].with_changes(comma=cst.Comma())
    return elements


def _call(
    function: cst.BaseExpression, args: tuple[Arg, ...], kwargs: tuple[tuple[str, Arg], ...]
) -> cst.BaseExpression:
    passed = [cst.Arg(expression(arg)) for arg in args]
    equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    passed += [cst.Arg(expression(value), keyword=cst.Name(key), equal=equal) for key, value in kwargs]
    return cst.Call(function, passed)


def call(op: Op) -> cst.BaseExpression:
    """The right-hand side of one op."""
    args, kwargs = op.args, op.kwargs
    module, _, name = op.target.rpartition(".")
    if op.target.startswith("."):
        if op.target == ".size" and len(args) == 2 and isinstance(args[1], int):
            shape = cst.Attribute(_atom(args[0]), cst.Name("shape"))
            return cst.Subscript(shape, _index(args[1]))
        return _call(cst.Attribute(_atom(args[0]), cst.Name(op.target[1:])), args[1:], kwargs)
    if op.target == "builtins.getattr" and isinstance(args[1], str):
        return cst.Attribute(_atom(args[0]), cst.Name(args[1]))
    if module == "operator" and not kwargs:
        if name == "getitem":
            return cst.Subscript(_atom(args[0]), _index(args[1]))
        if name in _BINARY and len(args) == 2:
            return cst.BinaryOperation(_atom(args[0]), _BINARY[name](), _atom(args[1]))
        if name in _COMPARE:
            return cst.Comparison(_atom(args[0]), [cst.ComparisonTarget(_COMPARE[name](), _atom(args[1]))])
        if name in _UNARY:
            return cst.UnaryOperation(_UNARY[name](), _atom(args[0]))
    return _call(dotted(op.target.removeprefix("builtins.")), args, kwargs)


def _assign(name: str, value: cst.BaseExpression) -> cst.SimpleStatementLine:
    return cst.SimpleStatementLine([cst.Assign([cst.AssignTarget(cst.Name(name))], value)])


def _statements(op: Op) -> list[cst.BaseStatement]:
    """The lines of one op: nested functions for subgraphs, then an assignment, an augmented one, or an item write."""
    lines: list[cst.BaseStatement] = []

    def named(arg: Arg) -> Arg:
        if not isinstance(arg, Subgraph):
            return arg
        body = f"{op.name}_body_{len(lines)}"
        lines.append(function(arg.graph, body, bare=arg.bare))
        return Ref(body)

    op = rewrite_op(op, named)
    args = op.args
    module, _, name = op.target.rpartition(".")
    if op.target == "operator.setitem":
        target = cst.Subscript(_atom(args[0]), _index(args[1]))
        write = cst.Assign([cst.AssignTarget(target)], expression(args[2]))
        return [*lines, cst.SimpleStatementLine([write])]
    if module == "operator" and name in _AUGMENTED and isinstance(args[0], Ref):
        update = cst.AugAssign(cst.Name(args[0].name), _AUGMENTED[name](), expression(args[1]))
        return [*lines, cst.SimpleStatementLine([update]), _assign(op.name, cst.Name(args[0].name))]
    return [*lines, _assign(op.name, call(op))]


def _autocast(op: Op, body: list[cst.BaseStatement]) -> cst.With:
    """`with torch.autocast(...)` for an enter call and the statements up to its exit."""
    names = ("device_type", "dtype", "enabled", "cache_enabled")
    given = tuple(
        (key, value)
        for key, value in zip(names[1:], op.args[1:], strict=False)
        if value is not None and value is not True
    )
    item = cst.WithItem(_call(dotted("torch.autocast"), op.args[:1], given))
    return cst.With([item], cst.IndentedBlock(body or [cst.SimpleStatementLine([cst.Pass()])]))


def _block(ops: list[Op]) -> list[cst.BaseStatement]:
    """Statements of `ops`, matching autocast enter and exit calls folded into `with` blocks."""
    lines: list[cst.BaseStatement] = []
    position = 0
    while position < len(ops):
        op = ops[position]
        if op.target == _ENTER:
            ends = [
                i for i in range(position, len(ops)) if ops[i].target == _EXIT and ops[i].args[:1] == (Ref(op.name),)
            ]
            end = ends[0] if ends else len(ops)
            lines.append(_autocast(op, _block(ops[position + 1 : end])))
            position = end + 1
            continue
        lines += _statements(op)
        position += 1
    return lines


def function(graph: Graph, name: str = "fn", *, bare: bool = True) -> cst.FunctionDef:
    """`def name(params): ... return outputs` for a graph; a single output is returned `bare` or, as most bodies of
    higher-order ops have it, in a tuple; none not at all. A result that nothing reads gets no name."""
    read = {*refs(graph.outputs), *(ref for op in graph.ops for ref in op_refs(op))}
    lines = [line for line in map(functools.partial(_unnamed, read), _block(list(graph.ops))) if line is not None]
    if len(graph.outputs) == 1 and bare:
        result: cst.BaseExpression = expression(graph.outputs[0])
    else:
        result = expression(graph.outputs) if graph.outputs else cst.Name("None")
        if len(graph.outputs) > 1:
            result = result.with_changes(lpar=[], rpar=[])
    if graph.outputs or not lines:
        lines = _fold_return([*lines, cst.SimpleStatementLine([cst.Return(result)])])
    params = [cst.Param(cst.Name(param)) for param in graph.params]
    return cst.FunctionDef(cst.Name(name), cst.Parameters(params), cst.IndentedBlock(lines))


def _unnamed(read: Collection[str], line: cst.BaseStatement) -> cst.BaseStatement | None:
    """`unread = f(x)` -> `f(x)`; `unread = x` -> nothing."""
    match line:
        case cst.SimpleStatementLine(
            body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=value)]
        ):
            if name not in read:
                return None if isinstance(value, cst.Name) else cst.SimpleStatementLine([cst.Expr(value)])
    return line


def _fold_return(lines: list[cst.BaseStatement]) -> list[cst.BaseStatement]:
    """`y = f(x)` / `return y` -> `return f(x)`."""
    if len(lines) < 2:
        return lines
    match (lines[-2], lines[-1]):
        case (
            cst.SimpleStatementLine(
                body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=value)]
            ),
            cst.SimpleStatementLine(body=[cst.Return(value=cst.Name(value=returned))]),
        ) if name == returned:
            return [*lines[:-2], cst.SimpleStatementLine([cst.Return(value)])]
    return lines


def text(node: cst.BaseStatement | Iterable[cst.BaseStatement]) -> str:
    """Python source of statements."""
    body = [node] if isinstance(node, cst.BaseStatement) else list(node)
    return cst.Module(body).code  # type: ignore[arg-type]
