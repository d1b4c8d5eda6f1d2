"""The only file that touches torch's private parts (`torch._*`), so that a new torch release is mended here.

Seen to work on torch 2.11 and 2.13; each access says what it falls back to where a release lacks it.
Lowest layer but for `environment`.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import importlib
import math
import operator
import re
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch._dynamo
import torch._functorch.config
import torch._inductor.config

from minify import environment

CONFIG_MODULES = ("torch._inductor.config", "torch._dynamo.config", "torch._functorch.config")
# Settings of a process, not of a program: they never travel with a case. Those named in _PROGRAM_KEYS only sound like it.
_PROCESS_KEYS = re.compile(
    r"^_|^trace\.|(^|[._])log_|_logp|logg|cache|remote|subproc|pgo|worker_|verbose|compile_threads|debug_dir|repro_"
)
_PROGRAM_KEYS = ("triton.skip_l1_cache", "cpp.gemm_cache_blocking", "cache_sdpa_constraint")
GraphCompiler = Callable[..., Any]


# --- names of functions -------------------------------------------------------------------------------------------

_NAMESPACES: tuple[tuple[str, Any], ...] = (
    ("torch", torch),
    ("torch.nn.functional", torch.nn.functional),
    *((f"torch.{name}", getattr(torch, name)) for name in ("special", "linalg", "fft", "sparse", "nested")),
    ("torch.nn.attention.flex_attention", importlib.import_module("torch.nn.attention.flex_attention")),
    ("operator", operator),
    ("math", math),
)
# Higher-order ops whose own form takes graph modules, by the function that users call.
_HIGHER_ORDER = {"cond": "torch.cond", "tag_activation_checkpoint": "torch.utils.checkpoint.checkpoint"}
_ALIASES = {"torch._C._set_grad_enabled": "torch.set_grad_enabled", "_operator": "operator"}


@functools.cache
def _public_names() -> dict[int, str]:
    names: dict[int, str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for prefix, module in _NAMESPACES:
            for name in dir(module):
                value = getattr(module, name, None)
                private = name.startswith("_") and not name.startswith("_foreach_")
                if callable(value) and not private and not isinstance(value, type):
                    names.setdefault(id(value), f"{prefix}.{name}")
    return names


def function_name(function: Any) -> str:
    """The dotted name under which `resolve` finds `function` again, public where there is one. Raises ValueError if none does."""
    if isinstance(function, torch._ops.OpOverload):
        return f"torch.ops.{function.namespace}.{function._schema.name.split('::')[1]}.{function._overloadname}"
    if isinstance(function, torch._ops.OpOverloadPacket):
        return f"torch.ops.{function}"
    if isinstance(function, torch._ops.HigherOrderOperator):
        return _HIGHER_ORDER.get(function.name(), f"torch.ops.higher_order.{function.name()}")
    known = _public_names().get(id(function))
    if known:
        return known
    module, qualname = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if getattr(torch.Tensor, name := qualname.rpartition(".")[2], None) is function:
        return f"torch.Tensor.{name}"
    owner = getattr(function, "__self__", None)
    if module is None and isinstance(owner, types.ModuleType):
        module = owner.__name__
    dotted = f"{_ALIASES.get(module or '', module)}.{qualname}"
    dotted = _ALIASES.get(dotted, dotted)
    with contextlib.suppress(AttributeError, ImportError, ValueError):
        if resolve(dotted) is function or dotted in _ALIASES.values():
            return dotted
    raise ValueError(f"no importable name for {function!r}")


def resolve(target: str) -> Callable[..., Any]:
    """The function behind a dotted name. Raises AttributeError or ImportError where torch has no such thing."""
    # A custom op may be defined anew, and calling the one that was is a segmentation fault (seen on torch 2.13).
    return _found(target) if target.startswith("torch.ops.") else _found_before(target)


def _found(target: str) -> Callable[..., Any]:
    parts = target.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        if not callable(found):
            raise AttributeError(f"{target} is not callable")
        return found  # type: ignore[no-any-return]
    raise ImportError(f"no module holds {target}")


_found_before = functools.cache(_found)


# --- configs and global switches ------------------------------------------------------------------------------------


def config_changes() -> list[tuple[str, str, Any]]:
    """(module, key, value) for every compiler config whose value is not the default that it has where no environment
    variable sets another; settings of the process left out."""
    changes, plain = [], _defaults_without_environment()
    for name, module in [(name, importlib.import_module(name)) for name in CONFIG_MODULES]:
        for key in sorted(module._config):
            if _PROCESS_KEYS.search(key) and key not in _PROGRAM_KEYS:
                continue
            with warnings.catch_warnings(), contextlib.suppress(AttributeError):
                warnings.simplefilter("ignore")
                value, default = getattr(module, key), plain.get((name, key), module._config[key].default)
                untouched = (name, key) not in plain and module._is_default(key)
                if module._config[key].alias is None and not untouched and value != default:
                    changes.append((name, key, value))
    return changes


@functools.cache
def _defaults_without_environment() -> dict[tuple[str, str], Any]:
    """Torch's own default of each config for which an environment variable, read at import, gives another."""
    names, found = environment.deciding(), {}
    for name in CONFIG_MODULES if names else ():
        module = importlib.import_module(name)
        plain, same = (environment.copy_without(module, unset)._config for unset in (names, ()))
        for key, entry in module._config.items():  # some defaults differ for other reasons: the current folder
            if plain[key].default != same[key].default == entry.default:
                found[name, key] = plain[key].default
    return found


_in_patch = contextvars.ContextVar("in_patch", default=False)


@contextlib.contextmanager
def config_patch(changes: list[tuple[str, str, Any]]) -> Iterator[None]:
    """Apply config changes and take all of them back; meanwhile environment variables set no other config, since a case
    must mean the same without them. A key this torch does not know raises AttributeError."""
    plain = {} if _in_patch.get() else _defaults_without_environment()
    with contextlib.ExitStack() as stack:
        stack.callback(_in_patch.reset, _in_patch.set(True))
        for name, key, value in [*((*at, default) for at, default in plain.items()), *changes]:
            stack.enter_context(importlib.import_module(name).patch({key: value}))
        yield


def dynamic_numbers(names: Sequence[str]) -> tuple[tuple[str, str, str], ...]:
    """The config change that makes parameters of the compiled function symbolic from the first call; none before torch 2.8."""
    try:
        known = importlib.import_module("torch.compiler.config")._config
    except ImportError:
        return ()
    sources = ",".join(f"L['{name}']" for name in names)
    return (("torch.compiler.config", "dynamic_sources", sources),) if "dynamic_sources" in known else ()


def inductor_option_names() -> frozenset[str]:
    """Keys that `torch.compile(options=...)` takes."""
    return frozenset(torch._inductor.config.get_config_copy())


def no_caches() -> contextlib.AbstractContextManager[None]:
    """Inductor and AOTAutograd compile anew: a candidate must never be answered from another one's cache."""
    changes = [
        ("torch._inductor.config", "force_disable_caches", True),
        ("torch._inductor.config", "compile_threads", 1),
        ("torch._dynamo.config", "automatic_dynamic_local_pgo", False),
        ("torch._dynamo.config", "recompile_limit", 64),
    ]
    return config_patch([change for change in changes if change[1] in importlib.import_module(change[0])._config])


def fallback_random() -> contextlib.AbstractContextManager[None]:
    """Compiled code draws the same random numbers as eager, so that dropout can be compared at all."""
    return config_patch([("torch._inductor.config", "fallback_random", True)])


def synchronise() -> None:
    """Wait for the GPU, so that an error of what was launched is raised here and not at some later call."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def warm_up() -> None:
    """Import what the first compile would import, so that its time is not counted as the compile's."""
    importlib.import_module("torch._inductor.compile_fx")
    try:
        with environment.probing():
            importlib.import_module("torch._inductor.cpu_vec_isa").pick_vec_isa()
    except Exception as error:  # noqa: BLE001 - no compiler, say: the first real compile will report it better
        warnings.warn(f"no vector instructions: {error}", stacklevel=2)


def survived_fork() -> bool:
    """Whether a fork of a process that imported torch can use the GPU: not where that process looked for one itself."""
    return not torch.cuda._is_in_bad_fork()


def backend(name: str) -> GraphCompiler:
    """The graph compiler registered under `name`. Raises torch's InvalidBackend for an unknown one."""
    return importlib.import_module("torch._dynamo.backends.registry").lookup_backend(name)  # type: ignore[no-any-return]


def inductor_patches(mode: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """The config changes that `mode` and `options` of torch.compile amount to."""
    return {**(torch._inductor.list_mode_options(mode) if mode and mode != "default" else {}), **options}


# --- watching what a script compiles ---------------------------------------------------------------------------------


@contextlib.contextmanager
def watched_compiles(wrap: Callable[[GraphCompiler, dict[str, Any]], GraphCompiler]) -> Iterator[None]:
    """Let `wrap(compiler, how)` stand in for the graph compiler of every `torch.compile` made meanwhile.

    `how` has `backend` (as given), `mode`, `options`, `dynamic` as far as they are known."""
    eval_frame = torch._dynamo.eval_frame
    original, compile_ = eval_frame.get_compiler_fn, torch.compile
    pending: list[dict[str, Any]] = []

    def get_compiler_fn(compiler: Any) -> Any:
        how = dict(pending[-1]) if pending else _how_wrapped(compiler)
        inner = original(compiler)
        return _keep_identity(wrap(inner, how), inner)

    @functools.wraps(compile_)
    def compile_and_note(*args: Any, **kwargs: Any) -> Any:
        if not args and "model" not in kwargs:  # the decorator form calls back with the function
            return lambda model: compile_and_note(model, **kwargs)
        names = ("model", "fullgraph", "dynamic", "backend", "mode", "options")
        pending.append({key: kwargs[key] for key in names[1:] if key in kwargs})
        try:
            return compile_(*args, **kwargs)
        finally:
            pending.pop()

    eval_frame.get_compiler_fn, torch.compile = get_compiler_fn, compile_and_note  # type: ignore[assignment]
    try:
        yield
    finally:
        eval_frame.get_compiler_fn, torch.compile = original, compile_


def _how_wrapped(compiler: Any) -> dict[str, Any]:
    """How a graph compiler was asked for, where `torch.compile` was taken out of torch before it was watched: it then hands
    on a wrapper that holds what it was given."""
    known = {"dynamic": getattr(compiler, "dynamic", None)}
    if hasattr(compiler, "compiler_name") and hasattr(compiler, "config"):
        return {"backend": compiler.compiler_name, "options": dict(compiler.config), **known}
    if hasattr(compiler, "compiler_fn") and hasattr(compiler, "kwargs"):
        named = getattr(compiler, "compiler_name", "") in torch._dynamo.list_backends(exclude_tags=())
        return {"backend": compiler.compiler_name if named else compiler.compiler_fn, **compiler.kwargs, **known}
    return {"backend": compiler}


def _keep_identity(outer: Any, inner: Any) -> Any:
    for name in ("_torchdynamo_orig_backend", "get_compiler_config", "__name__", "compiler_name"):
        if hasattr(inner, name):
            setattr(outer, name, getattr(inner, name))
    return outer


def shape_symbol(value: Any) -> str:
    """The text of a symbolic int (`s77`), "" for a plain one or one whose value is already fixed."""
    if not isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return ""
    return "" if value.node.expr.is_number else str(value.node.expr)


def hint(value: Any) -> Any:
    """The number a symbolic value stands for in this run."""
    return value.node.hint if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool) else value


def placeholder_example(node: torch.fx.Node) -> Any:
    """The fake tensor or symbolic number Dynamo keeps for a graph input, None if it has none."""
    return node.meta.get("example_value", node.meta.get("val"))


def is_symbolic_float(node: torch.fx.Node) -> bool:
    """Whether a graph input is a Python float that Dynamo hands over as a tensor and reads back with `.item()`."""
    argument = node.meta.get("grapharg")
    wrapped = bool(getattr(argument, "pass_arg_as_tensor", False)) and not getattr(argument, "is_tensor", True)
    uses = [user for user in node.users if not (user.op == "call_method" and user.target == "item")]
    return wrapped and not uses


# --- tensors ----------------------------------------------------------------------------------------------------------


def map_leaves(change: Callable[[Any], Any], value: Any) -> Any:
    """`value` rebuilt with `change` applied to every leaf of the tuples, lists and dicts (pytrees) it is made of."""
    return importlib.import_module("torch.utils._pytree").tree_map(change, value)


def is_zerotensor(tensor: torch.Tensor) -> bool:
    return bool(tensor._is_zerotensor())


def zerotensor(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    """The zero that autograd keeps without memory."""
    return torch._efficientzerotensor(shape, dtype=dtype, device=device)


def neg_view(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory read with the opposite sign, or, of such a view, the memory as it is."""
    return torch._neg_view(tensor)


def version(tensor: torch.Tensor) -> int:
    """Counts the in-place writes to the memory of `tensor`; always 0 for inference tensors, which keep no count."""
    return 0 if tensor.is_inference() else int(tensor._version)


def storage_key(tensor: torch.Tensor) -> int:
    """Equal for two tensors exactly when they lie in the same live memory."""
    return int(tensor.untyped_storage()._cdata)


@contextlib.contextmanager
def configs_kept() -> Iterator[None]:
    """Every compiler config is afterwards as it was, whoever assigns to it meanwhile."""
    modules = [importlib.import_module(name) for name in CONFIG_MODULES]
    before = [(module, key, _override(entry)) for module in modules for key, entry in module._config.items()]
    try:
        yield
    finally:
        for module, key, value in before:
            if _override(module._config[key]) is not value:
                setattr(module, key, getattr(module, key))  # what the module computed of its keys is stale now
                _override(module._config[key], value)


def _override(entry: Any, *value: Any) -> Any:
    """What a config is set to, which is a plain attribute before torch 2.12 and a context variable since; sets `value`."""
    held = entry.user_override
    if isinstance(held, contextvars.ContextVar):
        return held.set(*value) if value else held.get()
    if value:
        entry.user_override = value[0]
    return held


@contextlib.contextmanager
def functorch_levels_kept() -> Iterator[None]:
    """Functorch levels that are entered meanwhile and not left are left afterwards."""
    depth = _functorch_depth()
    try:
        yield
    finally:
        while _functorch_depth() > depth:
            torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)


def _functorch_depth() -> int:
    return len(torch._C._functorch.get_interpreter_stack() or ())


def functional_guard() -> bool:
    """Whether a functorch transform (vmap, grad) is active, in which case results must not be touched from outside."""
    return torch._C._functorch.peek_interpreter_stack() is not None


# --- AOTAutograd ------------------------------------------------------------------------------------------------------


def inductor_decompositions() -> dict[Any, Callable[..., Any]]:
    """What Inductor has AOTAutograd break ops down into."""
    return importlib.import_module("torch._inductor.decomposition").select_decomp_table()  # type: ignore[no-any-return]


def tracing_like(examples: Sequence[Any]) -> contextlib.AbstractContextManager[Any]:
    """Where AOTAutograd takes fake `examples` as they are, symbolic sizes included."""
    from torch._guards import TracingContext, tracing
    from torch._subclasses import FakeTensor

    modes = [example.fake_mode for example in examples if isinstance(example, FakeTensor)]
    return tracing(TracingContext(modes[0]) if modes else None)
