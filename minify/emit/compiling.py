"""How a case is compiled and under which settings it runs, as Python text that sets the same things the worker set.

Owns the choice between `torch.compile(options=...)` and a config module, and the contexts both runs share.
"""

from __future__ import annotations

import dataclasses

from minify import render
from minify.case import Arg, Case, DictArg, Settings

_INDUCTOR = "torch._inductor.config"
_WITHOUT_RANDOM_KERNELS = ("eager", "aot_eager")
SWITCHES = {
    "default_dtype": "torch.set_default_dtype({})",
    "deterministic": "torch.use_deterministic_algorithms({})",
    "matmul_precision": "torch.set_float32_matmul_precision({})",
    "cudnn_allow_tf32": "torch.backends.cudnn.allow_tf32 = {}",
}


@dataclasses.dataclass(frozen=True)
class Compiling:
    """`call` is the `torch.compile(...)` expression, `imports` and `statements` what has to run before it."""

    call: str
    imports: tuple[str, ...]
    statements: tuple[str, ...]


def compiling(case: Case, *, random: bool) -> Compiling:
    """`random` asks for random numbers drawn as eager draws them."""
    settings = case.settings
    config = list(settings.config)
    if random and settings.backend not in _WITHOUT_RANDOM_KERNELS:
        config = [item for item in config if item[1] != "fallback_random"] + [(_INDUCTOR, "fallback_random", True)]
    options: dict[str, Arg] = {}
    assigned = []
    for module, key, value in config:
        if _is_option(settings, module, key):
            options[key] = value
        else:
            assigned.append((module, f"{module}.{key} = {render.text_of(value)}"))
    options.update(settings.options)
    switches = [SWITCHES[name].format(render.text_of(value)) for name, value in settings.switches]
    imports = tuple(dict.fromkeys(f"import {module}" for module, _ in assigned))
    return Compiling(_call(settings, options), imports, (*(text for _, text in assigned), *switches))


def _is_option(settings: Settings, module: str, key: str) -> bool:
    """Whether `torch.compile(options=...)` takes the config: it does for Inductor, where no mode is given."""
    if settings.backend != "inductor" or settings.mode is not None or module != _INDUCTOR:
        return False
    from minify import torch_internals  # most cases have no config, and their runs no torch in this process

    return key in torch_internals.inductor_option_names()


def _call(settings: Settings, options: dict[str, Arg]) -> str:
    given: list[tuple[str, Arg]] = []
    if settings.backend != "inductor":
        given.append(("backend", settings.backend))
    if settings.mode is not None:
        given.append(("mode", settings.mode))
    if settings.dynamic is not None:
        given.append(("dynamic", settings.dynamic))
    if options:
        given.append(("options", DictArg(tuple(options.items()))))
    return f"torch.compile({', '.join(['fn', *(f'{key}={render.text_of(value)}' for key, value in given)])})"


def contexts(settings: Settings) -> list[str]:
    """Context managers that the inputs, the program and its backward run in."""
    found = {"no_grad": ["torch.no_grad()"], "inference": ["torch.inference_mode()"], "grad": []}[settings.grad_mode]
    return found + [f'torch.autocast("{device}", dtype=torch.{dtype})' for device, dtype in settings.autocast]
