"""Inductor's own kernels, told of as its wrapper calls them: each call with its source text, its arguments and what they hold.

What a buffer holds is known by the node of the post-grad graph that it was lowered from. Calls of extern kernels are not told of.
All of it is taken from where Inductor hands it on (`AsyncCompile`, `generate_kernel_call`), none from its output code; its caches
have to be off.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch.fx

from minify.torch_internals.switches import Handle, Switch, replaced

_CPP = "torch._inductor.async_compile:AsyncCompile.cpp_pybinding"
_TRITON = "torch._inductor.async_compile:AsyncCompile.triton"
_RUN = "torch._inductor.graph:GraphLowering.run"
_MODULE = "torch._inductor.graph:GraphLowering.compile_to_module"
_CALL = "torch._inductor.codegen.wrapper:PythonWrapperCodegen.generate_kernel_call"
_BINDING = "torch._inductor.codecache:CppPythonBindingsCodeCache.load_pybinding"
_OUTPUTS = ("out_ptr", "in_out_ptr")  # how Inductor calls the parameters that a Triton kernel writes to


@dataclasses.dataclass(slots=True)
class Argument:
    """What one parameter of a kernel is given. `node` is the one of the post-grad graph whose value the `buffer` holds after the call
    if the kernel `writes` it, and before if not; "" where that is not known. `type` is that of the C++ parameter."""

    name: str
    value: Any
    buffer: str = ""
    node: str = ""
    type: str = ""
    writes: bool = False


@dataclasses.dataclass(slots=True)
class Launch:
    """One call of a kernel. `grid`, `constants` and `options` are of a Triton kernel, and known once it has run."""

    language: str
    name: str
    source: str
    arguments: list[Argument]
    grid: tuple[int, ...] = ()
    constants: dict[str, Any] = dataclasses.field(default_factory=dict)
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


class Observer(Protocol):
    """Is told of each compiled graph that is called, and of each kernel that it calls."""

    def entered(self, module: torch.fx.GraphModule, inputs: Sequence[Any], nodes: frozenset[str]) -> None:
        """`module` is the graph as it was lowered, `nodes` are those whose values kernels hand on. The inputs are not to be kept."""

    def around(self, launch: Launch) -> contextlib.AbstractContextManager[None]:
        """Entered before the kernel runs, left once it has."""


@dataclasses.dataclass(slots=True)
class _Graph:
    """A graph that was lowered, and the calls of its kernels by their names: for each the buffers and nodes of its arguments."""

    module: torch.fx.GraphModule
    calls: dict[str, list[list[tuple[str, str]]]] = dataclasses.field(default_factory=dict)
    final: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def nodes(self) -> frozenset[str]:
        held = {node for calls in self.calls.values() for call in calls for _, node in call if node}
        return frozenset(held | set(self.final.values()))


@dataclasses.dataclass(slots=True)
class _Running:
    graph: _Graph
    done: dict[str, int] = dataclasses.field(default_factory=dict)

    def next_call(self, name: str) -> list[tuple[str, str]]:
        """The arguments of the next call of that kernel, [] where there is none on record."""
        place, calls = self.done.get(name, 0), self.graph.calls.get(name, [])
        self.done[name] = place + 1
        return calls[min(place, len(calls) - 1)] if calls else []


@dataclasses.dataclass
class _Watch:
    """Where the hooks meet: which graph is being lowered, which one runs, and what each kernel was compiled from."""

    observer: Observer
    graphs: dict[int, tuple[Any, _Graph]] = dataclasses.field(default_factory=dict)  # by the id of its GraphLowering
    running: list[_Running] = dataclasses.field(default_factory=list)
    names: dict[int, str] = dataclasses.field(default_factory=dict)  # of the kernels that modules hold
    sources: dict[str, str] = dataclasses.field(default_factory=dict)  # of Triton kernels, by their names
    wrapped: list[Any] = dataclasses.field(default_factory=list)

    # --- while a graph is compiled ----------------------------------------------------------------------------------

    def lowering(self, run: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(run)
        def asked(lowered: Any, *args: Any, **kwargs: Any) -> Any:
            module = lowered.module
            copied = (
                torch.fx.GraphModule(module, _copied(module.graph))
                if isinstance(module, torch.fx.GraphModule)
                else None
            )
            if copied is not None:
                self.graphs[id(lowered)] = (lowered, _Graph(copied, final=_final_writes(copied.graph)))
            return run(lowered, *args, **kwargs)

        return asked

    def calling(self, generate: Callable[..., Any]) -> Callable[..., Any]:
        virtualized: Any = importlib.import_module("torch._inductor.virtualized")

        @functools.wraps(generate)
        def asked(wrapper: Any, kernel_name: str, call_args: Any, *args: Any, **kwargs: Any) -> Any:
            lowered = virtualized.V.graph
            if id(lowered) in self.graphs:
                held = [(arg, _node_of(lowered, arg)) if isinstance(arg, str) else ("", "") for arg in call_args]
                self.graphs[id(lowered)][1].calls.setdefault(kernel_name, []).append(held)
            return generate(wrapper, kernel_name, call_args, *args, **kwargs)

        return asked

    def loading(self, load: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(load)
        def asked(lowered: Any) -> Any:
            module = load(lowered)
            for name, value in list(vars(module).items()):
                self.names[id(value)] = name
                self._watch_triton(name, value)  # not before: until here it may be a promise of another process
            if id(lowered) in self.graphs:
                graph, call = self.graphs[id(lowered)][1], module.call

                @functools.wraps(call)
                def run(args: Any) -> Any:
                    self.observer.entered(graph.module, list(args), graph.nodes)
                    self.running.append(_Running(graph))
                    try:
                        return call(args)
                    finally:
                        self.running.pop()

                module.call = run
            return module

        return asked

    # --- kernels ----------------------------------------------------------------------------------------------------

    def cpp(self, define: Callable[..., Any]) -> Callable[..., Any]:
        codecache: Any = importlib.import_module("torch._inductor.codecache")

        @functools.wraps(define)
        def asked(compiler: Any, argtypes: list[str], source_code: str) -> Any:
            kernel = codecache.CppPythonBindingsCodeCache.load_pybinding(argtypes, source_code)

            def call(*args: Any) -> Any:
                launch = self._launch("cpp", id(call), source_code, [f"arg{place}" for place in range(len(args))], args)
                if launch is None:
                    return kernel(*args)
                for argument, declared in zip(launch.arguments, argtypes, strict=True):
                    argument.type = declared
                    argument.writes = isinstance(argument.value, torch.Tensor) and not declared.startswith("const")
                with self.observer.around(self._settled(launch)):
                    return kernel(*args)

            self.wrapped.append(call)
            return call

        return asked

    def triton(self, define: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(define)
        def asked(compiler: Any, kernel_name: str, source_code: str, *args: Any, **kwargs: Any) -> Any:
            self.sources[kernel_name] = source_code
            return define(compiler, kernel_name, source_code, *args, **kwargs)

        return asked

    def _watch_triton(self, name: str, kernel: Any) -> None:
        if hasattr(kernel, "run") and hasattr(kernel, "inductor_meta") and name in self.sources:
            kernel.run = self._recorded_run(kernel, self.sources[name])
            self.wrapped.append(kernel)

    def _recorded_run(self, kernel: Any, source: str) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            right = functools.partial(type(kernel).run, kernel)
            if kwargs.get("benchmark_run"):
                return right(*args, **kwargs)
            names = [name for name, constant in parameters(kernel).items() if not constant]
            extra = tuple(kernel.inductor_meta.get("extra_launcher_args", ()))
            launch = self._launch("triton", id(kernel), source, [*names, *extra], args)
            if launch is None:
                return right(*args, **kwargs)
            written = set(getattr(kernel, "mutated_arg_names", ()))
            for argument in launch.arguments:
                pointer = isinstance(argument.value, torch.Tensor)
                argument.writes = pointer and (argument.name.startswith(_OUTPUTS) or argument.name in written)
            given = {argument.name: argument.value for argument in launch.arguments}
            launch.arguments = [argument for argument in launch.arguments if argument.name not in extra]
            with self.observer.around(self._settled(launch)):
                result = right(*args, **kwargs)
                configure(launch, kernel, given)
            return result

        return run

    def _launch(self, language: str, key: int, source: str, names: list[str], args: Sequence[Any]) -> Launch | None:
        """None where no graph that we know of is running, or the call is not as it was generated."""
        name = self.names.get(key, "")
        if not self.running or not name or len(names) != len(args):
            return None
        held = self.running[-1].next_call(name)
        held = [*held, *[("", "")] * len(args)][: len(args)]  # a template's grid is no argument of the generated call
        rows = zip(names, args, held, strict=True)
        arguments = [
            Argument(each, value, *(where if isinstance(value, torch.Tensor) else ("", "")))
            for each, value, where in rows
        ]
        return Launch(language, name, source, arguments)

    def _settled(self, launch: Launch) -> Launch:
        """An input of the graph that is written to holds what the graph copies to it in the end."""
        final = self.running[-1].graph.final
        for argument in launch.arguments:
            if argument.writes and argument.buffer in final:
                argument.node = final[argument.buffer]
        return launch

    def forget(self) -> None:
        for kernel in self.wrapped:
            vars(kernel).pop("run", None)


def _copied(graph: torch.fx.Graph) -> torch.fx.Graph:
    copied = torch.fx.Graph()
    names: dict[torch.fx.Node, torch.fx.Node] = {}
    copied.output(copied.graph_copy(graph, names))
    for node, twin in names.items():
        twin.meta, twin.name = dict(node.meta), node.name
    return copied


def _final_writes(graph: torch.fx.Graph) -> dict[str, str]:
    """For each placeholder that the graph writes to, the node that does so last."""
    copies = graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
    return {node.args[0].name: node.name for node in copies if node.args[0].op == "placeholder"}


def _node_of(lowered: Any, buffer: str) -> str:
    found = lowered.try_get_buffer(buffer)
    origin = found.get_origin_node() if hasattr(found, "get_origin_node") else None
    return "" if origin is None or origin.op == "placeholder" else str(origin.name)


def parameters(kernel: Any) -> dict[str, bool]:
    """The parameters of a Triton kernel in their order, and whether each is a constant rather than given when it is called."""
    known = getattr(kernel.fn, "params", None)
    if known is not None:
        return {param.name: bool(param.is_constexpr) for param in known}
    declared = inspect.signature(kernel.fn.fn).parameters  # of one that is interpreted
    return {name: "constexpr" in str(parameter.annotation) for name, parameter in declared.items()}


def configure(launch: Launch, kernel: Any, given: dict[str, Any]) -> None:
    """Note how a Triton kernel was launched, of the one configuration that was left of those tried."""
    heuristics: Any = importlib.import_module("torch._inductor.runtime.triton_heuristics")
    config = kernel.launchers[0].config if kernel.launchers else kernel.configs[0]
    launch.grid = tuple(map(int, heuristics.GridExpr.from_meta(kernel.inductor_meta, config).eval_slow(dict(given))))
    constants = {
        name: value for name, value in kernel.triton_meta.get("constants", {}).items() if isinstance(name, str)
    }
    known = {name for name, constant in parameters(kernel).items() if constant}
    launch.constants = {name: value for name, value in {**constants, **config.kwargs}.items() if name in known}
    launch.options = {"num_warps": config.num_warps, "num_stages": config.num_stages}


@contextlib.contextmanager
def kernels_watched(observer: Observer) -> Iterator[None]:
    """`observer` is told of all that is compiled and called meanwhile."""
    watch = _Watch(observer)
    hooks = (
        (_RUN, watch.lowering),
        (_CALL, watch.calling),
        (_MODULE, watch.loading),
        (_CPP, watch.cpp),
        (_TRITON, watch.triton),
    )
    with contextlib.ExitStack() as stack:
        for place, wrap in hooks:
            stack.enter_context(replaced(place, wrap))
        try:
            yield
        finally:
            watch.forget()


def replace_libdevice(library: Any) -> None:
    """For good: Inductor's own functions for Triton call `library`."""
    for name in ("triton_compat", "triton_helpers"):
        module: Any = importlib.import_module(f"torch._inductor.runtime.{name}")
        if hasattr(module, "libdevice"):
            module.libdevice = library


def compiler_versions() -> dict[str, str]:
    """Of torch and Triton; "" for a Triton that is not installed."""
    try:
        triton = str(importlib.import_module("triton").__version__)
    except ImportError:
        triton = ""
    return {"torch": str(torch.__version__), "triton": triton}


def cannot_watch_kernels() -> str:
    """What this torch lacks for it, "" if nothing."""
    return Handle("kernel", (_RUN, _CALL, _MODULE, _CPP, _TRITON, _BINDING), _none).missing()


@contextlib.contextmanager
def _none(switch: Switch) -> Iterator[None]:
    yield
