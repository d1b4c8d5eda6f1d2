"""AOTAutograd: that a graph gets rid of writes in place, what ops are broken down into, how forward is parted from backward; and
tracing with fake examples as they are."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from minify.torch_internals.switches import Handle, Switch, replaced

_CONFIG = "torch._functorch._aot_autograd.schemas:AOTConfig"
_MADE = f"{_CONFIG}.__init__"
_DECOMPOSE = "torch.fx.experimental.proxy_tensor:maybe_handle_decomp"
_MERGE = "torch._functorch.partitioners:fx_graph_cse"
_PARTITION = "min_cut_rematerialization_partition"
_PARTITION_STEP = "torch._inductor.compile_fx:partition_fn"
_PARTITIONERS = tuple(
    f"{module}:{_PARTITION}" for module in ("torch._inductor.compile_fx", "torch._dynamo.backends.debugging")
)


def inductor_decompositions() -> dict[Any, Callable[..., Any]]:
    """What Inductor has AOTAutograd break ops down into."""
    return importlib.import_module("torch._inductor.decomposition").select_decomp_table()  # type: ignore[no-any-return]


def forget_decompositions() -> None:
    """Inductor makes the table that it hands to AOTAutograd once a process; an op that the next program defines anew under the
    same name would not be in it, and what the program registered for the op would go unused."""
    made = getattr(importlib.import_module("torch._inductor.decomposition"), "fast_random_decomps", None)
    clear = getattr(made, "cache_clear", None)
    if clear is not None:
        clear()


def tracing_like(examples: Sequence[Any]) -> contextlib.AbstractContextManager[Any]:
    """Where AOTAutograd takes fake `examples` as they are, symbolic sizes included."""
    from torch._guards import TracingContext, tracing
    from torch._subclasses import FakeTensor

    modes = [example.fake_mode for example in examples if isinstance(example, FakeTensor)]
    return tracing(TracingContext(modes[0]) if modes else None)


@contextlib.contextmanager
def _functionalization(switch: Switch) -> Iterator[None]:
    """That a write in place becomes a new value, which is copied where it belongs at the end. Off, the graph has the program's own
    writes and views. A pattern of Inductor's is traced outside of any program."""
    guards = importlib.import_module("torch._guards")

    def wrap(init: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(init)
        def made(config: Any, *args: Any, **kwargs: Any) -> None:
            if guards.TracingContext.try_get() is not None and not switch("functionalization"):
                kwargs["disable_functionalization"] = True
            init(config, *args, **kwargs)

        return made

    with replaced(_MADE, wrap):
        yield


@contextlib.contextmanager
def _decompositions(switch: Switch) -> Iterator[None]:
    """Named by the op, all calls of which are broken down or none is. One that declines is no application, nor is one in a pattern
    of Inductor's: those are traced once in a process, outside of any program."""
    guards = importlib.import_module("torch._guards")

    def wrap(decompose: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(decompose)
        def asked(mode: Any, op: Any, args: Any, kwargs: Any) -> Any:
            if guards.TracingContext.try_get() is None:
                return decompose(mode, op, args, kwargs)
            if not switch.keeps(str(op)):
                return NotImplemented
            result: Any = None
            try:
                result = decompose(mode, op, args, kwargs)
                return result
            finally:
                if result is not NotImplemented:
                    switch.note(str(op))

        return asked

    with replaced(_DECOMPOSE, wrap):
        yield


@contextlib.contextmanager
def _partitioning(switch: Switch) -> Iterator[None]:
    """Of a program with a backward: that the forward saves what a minimum cut says, the rest being computed again. Off, it saves
    what the backward reads. A partitioner of the user's own is an application too; without it Inductor takes its own."""
    inductor: Any = importlib.import_module("torch._inductor.config")
    default = importlib.import_module("torch._functorch.partitioners").default_partition

    def wrap(partition: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(partition)
        def asked(module: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if switch("min-cut", "the default partitioner in its place"):
                return partition(module, inputs, *args, **kwargs)
            return default(module, inputs, **{key: kwargs[key] for key in kwargs if key != "compiler"})

        return asked

    def wrap_step(step: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(step)
        def asked(*args: Any, **kwargs: Any) -> Any:
            own = getattr(inductor, "custom_partitioner_fn", None)
            if own is None or switch("custom_partitioner_fn", type(own).__name__):
                return step(*args, **kwargs)
            with inductor.patch(custom_partitioner_fn=None):
                return step(*args, **kwargs)

        return asked

    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(_PARTITION_STEP, wrap_step))
        for place in _PARTITIONERS:
            stack.enter_context(replaced(place, wrap))
        yield


@contextlib.contextmanager
def _cse(switch: Switch) -> Iterator[None]:
    """That equal calls become one, before the minimum cut is sought."""

    def wrap(merge: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(merge)
        def asked(graph: Any) -> Any:
            return merge(graph) if switch("cse", "torch._functorch.config.cse = False") else graph

        return asked

    with replaced(_MERGE, wrap):
        yield


HANDLES = (
    Handle("functionalization", (f"{_CONFIG}.disable_functionalization", _MADE), _functionalization),
    Handle("decomposition", (_DECOMPOSE,), _decompositions),
    Handle(
        "partitioning",
        (*_PARTITIONERS, _PARTITION_STEP, "torch._functorch.partitioners:default_partition"),
        _partitioning,
    ),
    Handle("cse", (_MERGE,), _cse),
)
