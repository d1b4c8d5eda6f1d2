"""What a program may ask of Inductor beyond the plain compile, as data, and its settings without it.

Plain data. Which rung of the ladder is without what is said in `localize.stages`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from minify.case import Settings

INDUCTOR = "torch._inductor.config"


@dataclasses.dataclass(frozen=True, slots=True)
class Feature:
    """Something that a program may ask of Inductor. `modes` says which mode each mode that turns it on becomes without it,
    `configs` which Inductor configs turn it on."""

    modes: Mapping[str, str | None]
    configs: tuple[str, ...]


MAX_AUTOTUNE = Feature(
    {"max-autotune": "reduce-overhead", "max-autotune-no-cudagraphs": None},
    ("max_autotune", "max_autotune_pointwise", "max_autotune_gemm", "coordinate_descent_tuning"),
)
CUDA_GRAPHS = Feature({"max-autotune": "max-autotune-no-cudagraphs", "reduce-overhead": None}, ("triton.cudagraphs",))


def without(settings: Settings, feature: Feature) -> Settings:
    """`settings` that do not ask for `feature`."""
    return dataclasses.replace(
        settings,
        mode=feature.modes.get(settings.mode or "", settings.mode),
        options=tuple(
            (key, value) for key, value in settings.options if not (value and config_key(key) in feature.configs)
        ),
        config=tuple(
            (module, key, value)
            for module, key, value in settings.config
            if not (value and module == INDUCTOR and key in feature.configs)
        ),
    )


def uses(settings: Settings, feature: Feature) -> bool:
    return settings.backend == "inductor" and without(settings, feature) != settings


def config_key(option: str) -> str:
    return option.replace("-", "_")
