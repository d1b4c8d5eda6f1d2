"""Compiler configs: which differ from their defaults, setting some for a while, putting all back."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import importlib
import re
import warnings
from collections.abc import Iterator, Sequence
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
_PROGRAM_KEYS = (
    "triton.skip_l1_cache", "cpp.gemm_cache_blocking", "cache_sdpa_constraint",
    "_pre_fusion_custom_pass", "_post_fusion_custom_pass",
)  # fmt: skip


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


def inductor_patches(mode: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """The config changes that `mode` and `options` of torch.compile amount to. Raises RuntimeError for a mode that this torch
    does not have."""
    return {**(torch._inductor.list_mode_options(mode) if mode and mode != "default" else {}), **options}


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
