"""A graph module as Dynamo hands it to a backend -> our `Graph`, taken before any compiler pass can change it.

Owns names, argument forms, symbolic sizes and subgraphs. Knows nothing of values: `snapshot` adds those at run time.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import Any, cast

import torch

from minify import torch_internals
from minify.capture.autograd_function import AutogradFunction, definition
from minify.graph import BUILTIN_NAMESPACES, Arg, Const, DictArg, Graph, ListArg, Op, Ref, SliceArg, Subgraph
from minify.render import identifier

# How Dynamo reads sizes off a tensor inside the body of a higher-order op, and the method that does it in eager.
_SIZE_READS = {
    "torch.ops.aten.sym_size.int": ".size",
    "torch.ops.aten.sym_stride.int": ".stride",
    "torch.ops.aten.sym_numel.default": ".numel",
    "torch.ops.aten.sym_storage_offset.default": ".storage_offset",
}
# The number means something only to the process that traced the program, so a worker would run another kernel or none.
_TRITON_KERNELS = ("triton_kernel_wrapper_mutation", "triton_kernel_wrapper_functional")
_AUGMENTED = (
    "iadd",
    "isub",
    "imul",
    "itruediv",
    "ifloordiv",
    "imod",
    "ipow",
    "iand",
    "ior",
    "ixor",
    "ilshift",
    "irshift",
)


class Unrepresentable(Exception):
    """The graph holds something that cannot be written down as plain data; the text names it."""


@dataclasses.dataclass(frozen=True)
class Param:
    """One graph input. `source` is the placeholder's position; `dynamic_dims` its symbolic dims; `constant` a tensor the
    graph carries itself."""

    name: str
    source: int | None
    is_scalar: bool = False
    dynamic: bool = False
    dynamic_dims: tuple[int, ...] = ()
    constant: torch.Tensor | None = None


@dataclasses.dataclass(frozen=True)
class Converted:
    """A graph and what its parameters are; `namespaces` of custom ops it calls, `definitions` of the classes it calls."""

    graph: Graph
    params: tuple[Param, ...]
    namespaces: frozenset[str]
    definitions: tuple[str, ...] = ()


def convert(module: torch.fx.GraphModule) -> Converted:
    """Write a graph module down as data. Raises Unrepresentable where it cannot be."""
    return _Converter(module).convert()


class _Converter:
    def __init__(
        self, module: torch.fx.GraphModule, *, nested: bool = False, definitions: list[str] | None = None
    ) -> None:
        self.module = module
        self.nested = nested
        self.bare = False  # whether the graph returns its only output itself: the mask of flex_attention, say
        self.definitions: list[str] = [] if definitions is None else definitions
        self.names: dict[str, str] = {}
        self.taken: set[str] = set()
        self.params: list[Param] = []
        self.numbers: set[str] = set()
        self.ops: list[Op] = []
        self.namespaces: set[str] = set()
        self.subgraphs: dict[str, Subgraph] = {}
        self.sources: dict[str, tuple[int, ...]] = {}

    def convert(self) -> Converted:
        placeholders = [node for node in self.module.graph.nodes if node.op == "placeholder"]
        symbols = self._placeholders(placeholders)
        outputs: tuple[Arg, ...] = ()
        for name, owner, dim in symbols:
            self.ops.append(Op(name, ".size", (Ref(owner), dim)))
        for node in self.module.graph.nodes:
            if node.op == "get_attr":
                self._attribute(node)
            elif self._is_known_number(node):
                self.names[node.name] = self.names[node.args[0].name]
            elif node.op in ("call_function", "call_method"):
                self.ops.append(self._call(node))
            elif node.op == "output":
                outputs = self._outputs(node.args[0])
            elif node.op != "placeholder":
                raise Unrepresentable(f"{node.op} {node.target}")
        graph = Graph(tuple(param.name for param in self.params), tuple(self.ops), outputs)
        return Converted(graph, tuple(self.params), frozenset(self.namespaces), tuple(self.definitions))

    def _name(self, node: torch.fx.Node) -> str:
        name = identifier(node.name, self.taken)
        self.taken.add(name)
        self.names[node.name] = name
        return name

    def _placeholders(self, nodes: list[torch.fx.Node]) -> list[tuple[str, str, int]]:
        """Declare inputs. A symbolic size that some tensor input shows becomes a read of that tensor's shape, if it is read
        at all; the body of a higher-order op keeps every parameter, since it is called with all of them."""
        examples = [torch_internals.placeholder_example(node) for node in nodes]
        owners: dict[str, tuple[int, int]] = {}
        for position, example in enumerate(examples):
            for dim, size in enumerate(example.shape) if isinstance(example, torch.Tensor) else ():
                symbol = torch_internals.shape_symbol(size)
                if symbol:
                    owners.setdefault(symbol, (position, dim))
        reads = []
        for position, (node, example) in enumerate(zip(nodes, examples, strict=True)):
            symbol = torch_internals.shape_symbol(example)
            if symbol in owners and not self.nested:
                if node.users:
                    reads.append((self._name(node), *owners[symbol]))
                continue
            name = self._name(node)
            if torch_internals.is_symbolic_float(node):
                self.numbers.add(node.name)
                self.params.append(Param(name, position, is_scalar=True, dynamic=True))
            elif isinstance(example, torch.Tensor):
                dims = tuple(dim for dim, size in enumerate(example.shape) if torch_internals.shape_symbol(size))
                self.params.append(Param(name, position, dynamic_dims=dims))
            else:
                self.params.append(Param(name, position, is_scalar=True, dynamic=bool(symbol)))
        return [(name, self.names[nodes[owner].name], dim) for name, owner, dim in reads]

    def _is_known_number(self, node: torch.fx.Node) -> bool:
        """Whether `node` reads a float back from the tensor that Dynamo made of it."""
        return node.target == "item" and bool(node.args) and getattr(node.args[0], "name", "") in self.numbers

    def _attribute(self, node: torch.fx.Node) -> None:
        value: Any = self.module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if isinstance(value, torch.fx.GraphModule):
            nested = not all(map(_is_branching, node.users))
            inner = _Converter(value, nested=nested, definitions=self.definitions)
            converted = inner.convert()
            if any(param.constant is not None for param in converted.params):
                raise Unrepresentable(f"subgraph {node.target} holds a constant tensor")
            self.namespaces |= converted.namespaces
            self.subgraphs[node.name] = Subgraph(converted.graph, inner.bare)
            self.sources[node.name] = tuple(param.source for param in converted.params if param.source is not None)
        elif isinstance(value, torch.Tensor):
            self.params.append(Param(self._name(node), None, constant=value.detach()))
        else:
            raise Unrepresentable(f"attribute {node.target} of type {type(value).__name__}")

    def _call(self, node: torch.fx.Node) -> Op:
        name = getattr(node.target, "__name__", "")
        if name == "autograd_function_apply":
            return self._autograd_function(node)
        if name in _TRITON_KERNELS:
            raise Unrepresentable("a Triton kernel of the program's own, which the graph knows only by a number")
        if node.op == "call_method":
            target = f".{node.target}"
        else:
            try:
                target = torch_internals.function_name(_plain_operator(node))
                target = _SIZE_READS.get(target, target)
            except ValueError as error:
                raise Unrepresentable(str(error)) from error
            if target.startswith("torch.ops.") and target.split(".")[2] not in BUILTIN_NAMESPACES:
                self.namespaces.add(target.split(".")[2])
        args = tuple(self._arg(arg) for arg in node.args)
        if _is_branching(node):
            args = (*args[:3], self._operands(node))
        kwargs = tuple((key, self._arg(value)) for key, value in node.kwargs.items())
        return Op(self._name(node), target, args, kwargs)

    def _autograd_function(self, node: torch.fx.Node) -> Op:
        """The class goes into the prelude, the call stays."""
        forward, backward, *operands = (self._arg(arg) for arg in node.args)
        if not isinstance(forward, Subgraph) or not isinstance(backward, Subgraph):
            raise Unrepresentable("an autograd function without graphs")
        positions = [
            node.kwargs.get(key, ()) for key in ("saved_for_backward_idx", "dirty_idx", "non_differentiable_idx")
        ]
        function = AutogradFunction(forward.graph, backward.graph, *positions)  # type: ignore[arg-type]
        name = f"Function{len(self.definitions)}"
        try:
            self.definitions.append(definition(function, name))
        except ValueError as error:
            raise Unrepresentable(str(error)) from error
        return Op(self._name(node), ".apply", (Const(name), *operands))

    def _operands(self, node: torch.fx.Node) -> tuple[Arg, ...]:
        """What the branches of a `torch.cond` are called with: tensors alone, since eager takes nothing else. Sizes are read
        off them inside the branch."""
        branch, operands = cast(torch.fx.Node, node.args[1]), cast("tuple[Any, ...]", node.args[3])
        kept = self.sources[branch.name]
        return tuple(self._arg(operand) for position, operand in enumerate(operands) if position in kept)

    def _outputs(self, value: Any) -> tuple[Arg, ...]:
        self.bare = not isinstance(value, list | tuple)
        flat = (value,) if self.bare else value
        return tuple(self._arg(item) for item in flat)

    def _arg(self, value: Any) -> Arg:
        if isinstance(value, torch.fx.Node):
            return self.subgraphs.get(value.name) or Ref(self.names[value.name])
        return python_arg(value, self._arg)


def _is_branching(node: torch.fx.Node) -> bool:
    """Whether `node` is a `torch.cond` in its usual form, both branches graphs of their own."""
    branches = node.args[1:3]
    return (
        getattr(node.target, "__name__", "") == "cond"
        and len(node.args) == 4
        and all(isinstance(branch, torch.fx.Node) and branch.op == "get_attr" for branch in branches)
    )


def _plain_operator(node: torch.fx.Node) -> Any:
    """`n += 1` on a symbolic number gives a new one: `n + 1`."""
    name = getattr(node.target, "__name__", "")
    first = node.args[0] if node.args else None
    example = torch_internals.placeholder_example(first) if isinstance(first, torch.fx.Node) else first
    if getattr(operator, name, None) is node.target and not isinstance(example, torch.Tensor | list | None):
        plain = {"iand": "and_", "ior": "or_"}.get(name, name[1:])
        return getattr(operator, plain, node.target) if name in _AUGMENTED else node.target
    return node.target


def python_arg(value: Any, inner: Any = None) -> Arg:
    """A plain Python value as an argument; `inner` converts the items of containers. Raises Unrepresentable."""
    inner = inner or python_arg
    if value is None or isinstance(value, bool | int | float | complex | str):
        return value
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        number = torch_internals.hint(value)
        if isinstance(number, bool | int | float):
            return number
        return int(number)
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        return Const(str(value))
    if isinstance(value, torch.device):
        return Const(f"torch.device({str(value)!r})")
    if value is Ellipsis:
        return Const("...")
    if isinstance(value, slice):
        return SliceArg(inner(value.start), inner(value.stop), inner(value.step))
    if isinstance(value, tuple):
        return tuple(inner(item) for item in value)
    if isinstance(value, list):
        return ListArg(tuple(inner(item) for item in value))
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return DictArg(tuple((key, inner(item)) for key, item in value.items()))
    if value in (int, float, bool, operator.index):
        return Const(value.__name__)
    raise Unrepresentable(f"an argument of type {type(value).__name__}")
