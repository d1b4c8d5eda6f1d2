"""The rungs of the ladder as data: each row is one step of the compile chain, and how a case is compiled up to it.

Whoever adds a rung adds a row. Asks nothing; a rung is the same case with other settings.
"""

from __future__ import annotations

import dataclasses

from minify import case as cases
from minify.case import Arg, Case, Settings
from minify.features import CUDA_GRAPHS, INDUCTOR, MAX_AUTOTUNE, Feature, config_key, without


@dataclasses.dataclass(frozen=True, slots=True)
class Stage:
    """A rung: the program compiled through the chain up to and including step `name`, which may be `part_of` a larger one.

    The case keeps its own settings but for what stands here: another `backend`, to which mode and options mean nothing;
    another `mode` of Inductor; `without` features; `config` changes (module, key, value) in place of its own."""

    name: str
    backend: str = ""
    mode: str = ""
    without: tuple[Feature, ...] = ()
    config: tuple[tuple[str, str, Arg], ...] = ()
    part_of: str = ""

    def of(self, case: Case) -> Case:
        """The question that this rung asks of `case`."""
        settings = case.settings
        for feature in self.without:
            settings = without(settings, feature)
        if self.backend:
            settings = dataclasses.replace(settings, backend=self.backend, mode=None, options=())
        if self.mode:
            settings = dataclasses.replace(_options_as_configs(settings), mode=self.mode)
        changed = {change[:2] for change in self.config}
        kept = tuple(change for change in settings.config if change[:2] not in changed)
        settings = dataclasses.replace(
            settings,
            options=tuple(item for item in settings.options if (INDUCTOR, config_key(item[0])) not in changed),
            config=(*kept, *self.config),
        )
        return dataclasses.replace(case, settings=settings)


# What lies inside Inductor goes between its extern calls and Inductor as a whole, as `part_of` the latter.
STAGES: tuple[Stage, ...] = (
    Stage("eager", backend="eager", config=(("torch._dynamo.config", "disable", True),)),
    Stage("Dynamo", backend="eager"),
    Stage("AOTAutograd", backend="aot_eager"),
    Stage("decompositions", backend="aot_eager_decomp_partition"),
    # Every op a call of eager's own kernel, nothing decomposed, no pass run: memory, wrapper code and the calls are left.
    Stage("Inductor's extern calls", mode="lite", without=(MAX_AUTOTUNE, CUDA_GRAPHS), part_of="Inductor"),
    Stage("Inductor", without=(MAX_AUTOTUNE, CUDA_GRAPHS)),
    Stage("max-autotune", without=(CUDA_GRAPHS,)),
    Stage("CUDA graphs"),  # replayed, as the case itself is
)


def ladder(case: Case) -> tuple[tuple[Stage, Case], ...]:
    """The rungs that a case stands on, the lowest first, and the question that each asks; the last one is the case itself.

    What a backend of the user's own goes through is known only up to Dynamo."""
    own = backend_name(case)
    place = next((place for place, stage in enumerate(STAGES) if stage.backend == own and not stage.config), None)
    if own == "inductor":
        stages = STAGES
    elif place is not None:
        stages = (*STAGES[:place], Stage(STAGES[place].name))
    else:
        stages = (*(stage for stage in STAGES if stage.backend == "eager"), Stage(f"the backend `{own}`"))
    rungs: dict[str, tuple[Stage, Case]] = {}
    for stage in stages:
        question = stage.of(case)
        rungs.setdefault(cases.digest(question), (stage, question))  # a feature that a case does not use adds no rung
    return tuple(rungs.values())


def backend_name(case: Case) -> str:
    backend = case.settings.backend
    return backend if isinstance(backend, str) else str(getattr(backend, "text", backend))


def _options_as_configs(settings: Settings) -> Settings:
    """`torch.compile` takes a mode or options, not both."""
    options = {config_key(key): value for key, value in settings.options}
    kept = tuple(change for change in settings.config if change[0] != INDUCTOR or change[1] not in options)
    configs = tuple((INDUCTOR, key, value) for key, value in options.items())
    return dataclasses.replace(settings, options=(), config=(*kept, *configs))
