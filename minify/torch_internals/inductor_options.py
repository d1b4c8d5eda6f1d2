"""Choices of Inductor that a config turns off: precision, layouts, memory, and how code is generated."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from collections.abc import Callable, Iterator
from typing import Any

from minify.torch_internals.configs import config_patch
from minify.torch_internals.switches import Handle, Switch

_INDUCTOR = "torch._inductor.config"
CPU, GPU = "cpu", "cuda"


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """A choice of `kind` that is not made where config `key` is `off`. It matters to programs on `device`; "" to all."""

    kind: str
    key: str
    off: Any
    device: str = ""

    @property
    def setting(self) -> str:
        return f"{_INDUCTOR}.{self.key} = {self.off!r}"


# In the order in which the compiler comes to them. What a release does not have is no choice of its.
OPTIONS = (
    # Without it, what is fused keeps float32 where eager rounds to half in between.
    Option("precision", "emulate_precision_casts", True),
    Option("layout", "shape_padding", False),
    Option("layout", "layout_optimization", False),
    Option("layout", "comprehensive_padding", False),
    Option("memory", "reorder_for_peak_memory", False),
    Option("memory", "memory_planning", False),
    Option("memory", "allow_buffer_reuse", False),
    Option("memory", "inplace_buffers", False),
    Option("codegen", "split_reductions", False),
    Option("codegen", "unroll_reductions_threshold", 1),
    Option("codegen", "loop_ordering_after_fusion", False),
    Option("codegen", "pick_loop_orders", False),
    Option("codegen", "use_fast_math", False),
    Option("codegen", "coordinate_descent_tuning", False),
    Option("codegen", "cpp.simdlen", 1, CPU),
    Option("codegen", "cpp.enable_loop_tail_vec", False, CPU),
    Option("codegen", "cpp.enable_tiling_heuristics", False, CPU),
    Option("codegen", "cpp.threads", 1, CPU),
    Option("codegen", "cpp.enable_floating_point_contract_flag", "off", CPU),
    Option("codegen", "cpp.enable_unsafe_math_opt_flag", False, CPU),
    Option("codegen", "triton.persistent_reductions", False, GPU),
    Option("codegen", "triton.mix_order_reduction", False, GPU),
    Option("codegen", "triton.cooperative_reductions", False, GPU),
    Option("codegen", "triton.multi_kernel", 0, GPU),
    Option("codegen", "triton.coalesce_tiling_analysis", False, GPU),
    Option("codegen", "triton.max_tiles", 1, GPU),
    Option("codegen", "triton.autotune_pointwise", False, GPU),
    Option("codegen", "triton.divisible_by_16", False, GPU),
)


def _install(kind: str) -> Callable[[Switch], contextlib.AbstractContextManager[None]]:
    @contextlib.contextmanager
    def choices(switch: Switch) -> Iterator[None]:
        config: Any = importlib.import_module(_INDUCTOR)
        changes = []
        for option in OPTIONS:
            here = option.kind == kind and (not option.device or option.device in switch.devices)
            if not here or option.key not in config._config or _value(config, option.key) == option.off:
                continue
            if not switch(option.key, option.setting):
                changes.append((_INDUCTOR, option.key, option.off))
        with config_patch(changes):
            yield

    return choices


def _value(config: Any, key: str) -> Any:
    for part in key.split("."):
        config = getattr(config, part)
    return config


HANDLES = tuple(
    Handle(kind, (f"{_INDUCTOR}:patch",), _install(kind)) for kind in dict.fromkeys(option.kind for option in OPTIONS)
)
