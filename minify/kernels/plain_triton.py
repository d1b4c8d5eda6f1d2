"""A generated Triton kernel without what is Inductor's own around it: plain Triton that the interpreter takes.

Owns that text. Runs nothing.
"""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m

# What Inductor imports for its decorator, or what there is a stand-in for.
_DROPPED_NAMES = ("triton_heuristics", "libdevice")
_DROPPED_MODULES = ("triton_heuristics", "hints")
_JIT = cst.Decorator(cst.Attribute(cst.Name("triton"), cst.Name("jit")))
_STAND_INS = "from minify.kernels.stand_ins import libdevice\n"
_REAL = "from torch._inductor.runtime.triton_helpers import libdevice\n"


def plain_triton(source: str, *, interpreted: bool = True) -> str:
    """The module as text; it calls its last kernel KERNEL. One that is `interpreted` has stand-ins for CUDA's own functions.

    Raises ValueError where there is none, or `source` does not parse."""
    try:
        tree = cst.parse_module(source.lstrip())
    except cst.ParserSyntaxError as error:
        raise ValueError(str(error)) from error
    seen = _Plain()
    plain = tree.visit(seen)
    if not seen.kernels:
        raise ValueError("there is no kernel in it")
    return f"{_STAND_INS if interpreted else _REAL}{plain.code}\n\nKERNEL = {seen.kernels[-1]}\n"


class _Plain(cst.CSTTransformer):
    """Every decorated function is a kernel, or a function that one calls: `@triton.jit`, and no other decorator, is what it needs."""

    def __init__(self) -> None:
        self.kernels: list[str] = []
        self._depth = 0

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._depth += 1

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        self._depth -= 1
        if not updated_node.decorators:
            return updated_node
        self.kernels.append(updated_node.name.value)
        return updated_node.with_changes(decorators=[_JIT])

    def leave_ImportFrom(
        self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom
    ) -> cst.ImportFrom | cst.RemovalSentinel:
        module = updated_node.module
        last = module.attr.value if isinstance(module, cst.Attribute) else getattr(module, "value", "")
        if last in _DROPPED_MODULES or isinstance(updated_node.names, cst.ImportStar):
            return cst.RemoveFromParent() if last in _DROPPED_MODULES else updated_node
        kept = [alias for alias in updated_node.names if alias.evaluated_name not in _DROPPED_NAMES]
        if not kept:
            return cst.RemoveFromParent()
        kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return updated_node.with_changes(names=kept)

    def leave_Expr(self, original_node: cst.Expr, updated_node: cst.Expr) -> cst.Expr | cst.RemovalSentinel:
        """What the module does as it is imported: asking for the GPU's driver."""
        at_top = self._depth == 0 and m.matches(updated_node, m.Expr(m.Call()))
        return cst.RemoveFromParent() if at_top else updated_node
