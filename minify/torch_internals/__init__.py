"""The only folder that touches torch's private parts (`torch._*`), so that a new torch release is mended here.

One file per topic, all of it reached as `torch_internals.<name>`. Seen to work on torch 2.11 and 2.13; each access says what
it falls back to where a release lacks it. Lowest layer but for `environment`.
"""

from minify.torch_internals.ablations import ablated, cannot_ablate
from minify.torch_internals.aot import forget_decompositions, inductor_decompositions, tracing_like
from minify.torch_internals.artifacts import artifacts_written
from minify.torch_internals.configs import (
    CONFIG_MODULES,
    config_changes,
    config_patch,
    configs_kept,
    dynamic_numbers,
    fallback_random,
    inductor_option_names,
    inductor_patches,
    no_caches,
)
from minify.torch_internals.cpp_build import cpp_command
from minify.torch_internals.dynamo import (
    GraphCompiler,
    backend,
    hint,
    is_symbolic_float,
    placeholder_example,
    shape_symbol,
    watched_compiles,
)
from minify.torch_internals.functorch import functional_guard, functorch_levels_kept
from minify.torch_internals.graphs import watched_graphs
from minify.torch_internals.inductor_kernels import Argument as KernelArgument
from minify.torch_internals.inductor_kernels import Launch as KernelLaunch
from minify.torch_internals.inductor_kernels import (
    cannot_watch_kernels,
    compiler_versions,
    kernels_watched,
    replace_libdevice,
)
from minify.torch_internals.names import function_name, resolve
from minify.torch_internals.start_up import survived_fork, synchronise, warm_up
from minify.torch_internals.symbols import SymbolicShapes
from minify.torch_internals.tensors import is_zerotensor, map_leaves, neg_view, storage_key, version, zerotensor

__all__ = [
    "CONFIG_MODULES",
    "GraphCompiler",
    "KernelArgument",
    "KernelLaunch",
    "SymbolicShapes",
    "ablated",
    "artifacts_written",
    "backend",
    "cannot_ablate",
    "cannot_watch_kernels",
    "compiler_versions",
    "config_changes",
    "config_patch",
    "configs_kept",
    "cpp_command",
    "dynamic_numbers",
    "fallback_random",
    "forget_decompositions",
    "function_name",
    "functional_guard",
    "functorch_levels_kept",
    "hint",
    "inductor_decompositions",
    "inductor_option_names",
    "inductor_patches",
    "is_symbolic_float",
    "is_zerotensor",
    "kernels_watched",
    "map_leaves",
    "neg_view",
    "no_caches",
    "placeholder_example",
    "replace_libdevice",
    "resolve",
    "shape_symbol",
    "storage_key",
    "survived_fork",
    "synchronise",
    "tracing_like",
    "version",
    "warm_up",
    "watched_compiles",
    "watched_graphs",
    "zerotensor",
]
