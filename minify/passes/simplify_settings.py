"""Put settings back to their defaults, one part at a time; what is left over is what the failure needs.

May lose: any mode, option, config, switch, autocast region, gradient, dynamic dim or symbolic number that decides.
The backend stays: `localize` is where backends are compared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from minify.case import Arg, Case, Input, Ref, ScalarInput, Settings, map_refs, rewrite_op
from minify.passes.contract import Pass, Site
from minify.passes.prune import with_graph

WHOLE_DEFAULTS: dict[str, object] = {"mode": None, "dynamic": None, "seed": 0, "replays": 0}


def find(case: Case) -> tuple[Site, ...]:
    """Sites of the settings, then of the inputs: tuples that start with what is put back."""
    settings = case.settings
    sites: list[Site] = [(name,) for name, default in WHOLE_DEFAULTS.items() if getattr(settings, name) != default]
    sites += [("options", key) for key, _ in settings.options]
    sites += [("config", module, key) for module, key, _ in settings.config]
    sites += [("switch", name) for name, _ in settings.switches]
    sites += [("autocast", index) for index in range(len(settings.autocast))]
    if settings.backward:
        sites.append(("backward", ""))
    if settings.backward not in ("", "ones"):
        sites.append(("backward", "ones"))
    if settings.replays > 1:
        sites.append(("fewer", "replays"))
    if settings.grad_mode != "no_grad" and not settings.backward:
        sites.append(("grad_mode", "no_grad"))
    return (*sites, *(site for item in case.inputs for site in input_sites(item)))


def input_sites(item: Input | ScalarInput) -> list[Site]:
    if isinstance(item, ScalarInput):
        return [("literal", item.name)]
    sites: list[Site] = [("dynamic_dims", item.name)] if item.dynamic_dims else []
    if item.meta.requires_grad:
        sites.append(("requires_grad", item.name))
    return sites + [("flag", item.name, flag) for flag in item.meta.flags if flag in ("parameter", "nonleaf")]


def rewrite(case: Case, sites: tuple[Site, ...]) -> Case:
    settings = case.settings
    for site in sites:
        if site[0] in SETTINGS:
            settings = SETTINGS[str(site[0])](settings, site)
    settings = without_autocast(settings, {site[1] for site in sites if site[0] == "autocast"})
    chosen = frozenset(sites)
    inputs = tuple(plainer(item, chosen) if isinstance(item, Input) else item for item in case.inputs)
    case = dataclasses.replace(case, settings=settings, inputs=inputs)
    numbers = {
        item.name: item.value
        for item in case.inputs
        if ("literal", item.name) in chosen and isinstance(item, ScalarInput)
    }
    return with_literals(case, numbers) if numbers else case


def whole(settings: Settings, site: Site) -> Settings:
    name = str(site[0])
    return dataclasses.replace(settings, **{name: WHOLE_DEFAULTS[name]})  # type: ignore[arg-type]


def without_option(settings: Settings, site: Site) -> Settings:
    return dataclasses.replace(settings, options=tuple(item for item in settings.options if item[0] != site[1]))


def without_config(settings: Settings, site: Site) -> Settings:
    return dataclasses.replace(settings, config=tuple(item for item in settings.config if item[:2] != site[1:]))


def without_switch(settings: Settings, site: Site) -> Settings:
    return dataclasses.replace(settings, switches=tuple(item for item in settings.switches if item[0] != site[1]))


def without_backward(settings: Settings, site: Site) -> Settings:
    """No backward, or the plainest cotangents; where both are asked for, no backward wins."""
    return dataclasses.replace(settings, backward=str(site[1]) if settings.backward else "")


def without_grad(settings: Settings, site: Site) -> Settings:
    return dataclasses.replace(settings, grad_mode="no_grad")


def fewer_replays(settings: Settings, site: Site) -> Settings:
    """One; where none is asked for as well, none wins."""
    return dataclasses.replace(settings, replays=min(settings.replays, 1))


def without_autocast(settings: Settings, dropped: set[object]) -> Settings:
    left = tuple(item for index, item in enumerate(settings.autocast) if index not in dropped)
    return dataclasses.replace(settings, autocast=left)


SETTINGS: dict[str, Callable[[Settings, Site], Settings]] = {
    **dict.fromkeys(WHOLE_DEFAULTS, whole),
    "options": without_option,
    "config": without_config,
    "switch": without_switch,
    "backward": without_backward,
    "grad_mode": without_grad,
    "fewer": fewer_replays,
}


def plainer(item: Input, chosen: frozenset[Site]) -> Input:
    dropped = {flag for flag in item.meta.flags if ("flag", item.name, flag) in chosen}
    meta = dataclasses.replace(
        item.meta,
        requires_grad=item.meta.requires_grad and ("requires_grad", item.name) not in chosen,
        flags=tuple(flag for flag in item.meta.flags if flag not in dropped),
    )
    dims = () if ("dynamic_dims", item.name) in chosen else item.dynamic_dims
    return dataclasses.replace(item, meta=meta, dynamic_dims=dims)


def with_literals(case: Case, numbers: dict[str, bool | int | float | complex]) -> Case:
    """`case` with some number parameters written into the program."""

    def literal(leaf: Arg) -> Arg:
        return numbers.get(leaf.name, leaf) if isinstance(leaf, Ref) else leaf

    ops = tuple(rewrite_op(op, literal) for op in case.graph.ops)
    outputs = tuple(map_refs(output, literal) for output in case.graph.outputs)
    case = with_graph(case, ops, outputs)
    graph = dataclasses.replace(case.graph, params=tuple(name for name in case.graph.params if name not in numbers))
    inputs = tuple(item for item in case.inputs if item.name not in numbers)
    return dataclasses.replace(case, program=dataclasses.replace(case.program, graph=graph), inputs=inputs)


SIMPLIFY_SETTINGS = Pass("settings", find, rewrite, polish=True)
