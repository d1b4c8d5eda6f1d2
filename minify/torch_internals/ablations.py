"""Make this torch leave out what an ablation says, and list what there was to leave out.

Whoever adds a kind adds a `Handle`. All of them are patches of torch while one program is compiled, which no cache of its knows of:
its caches have to be off.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from minify.ablation import RUN, WATCHED, Ablation, Listing
from minify.torch_internals import aot, inductor_fusion, inductor_lowering, inductor_options, inductor_passes
from minify.torch_internals.switches import Handle, Switch, replaced

_CALL = "torch._inductor.output_code:CompiledFxGraph.__call__"


@contextlib.contextmanager
def _not_run(switch: Switch) -> Iterator[None]:
    """What Inductor compiled raises in place of running."""

    def refuse(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("compiled, and not run")

    with replaced(_CALL, lambda call: refuse):
        yield


_NOT_RUN = Handle(RUN, (_CALL,), _not_run)
_ROOMS = (aot, inductor_passes, inductor_lowering, inductor_fusion, inductor_options)
HANDLES: dict[str, Handle] = {handle.kind: handle for room in _ROOMS for handle in room.HANDLES}


def cannot_ablate(ablation: Ablation | None) -> str:
    """Why this torch cannot leave that out; "" where it can."""
    known = HANDLES | {RUN: _NOT_RUN}
    for part in ablation.parts if ablation is not None and ablation.kind else ():
        handle = known.get(part.kind)
        lacking = f"nothing is known of a {part.kind!r}" if handle is None else handle.missing()
        if lacking:
            return lacking
    return ""


@contextlib.contextmanager
def ablated(ablation: Ablation | None, devices: frozenset[str]) -> Iterator[Callable[[], tuple[Listing, ...]]]:
    """Compile without it meanwhile; what is yielded says what was met up to now: of the ablation's kinds or, if it lists all, of
    every kind. `devices` are the types of those that the program runs on. What cannot be left out here is not."""
    with contextlib.ExitStack() as stack:
        listed: list[Callable[[], Listing]] = []
        if ablation is not None and ablation.of(RUN) and not _NOT_RUN.missing():
            stack.enter_context(_not_run(Switch(ablation, devices)))
        for kind, handle in HANDLES.items():
            part = ablation and (ablation.of(kind) or (WATCHED if ablation.lists_all else None))
            if not part:
                continue
            missing, switch = handle.missing(), Switch(part, devices)
            if not missing:
                stack.enter_context(handle.install(switch))
            listed.append(lambda kind=kind, switch=switch, missing=missing: Listing(kind, switch.found, missing))  # type: ignore[misc]
        yield lambda: tuple(make() for make in listed)
