"""Which operations Inductor's scheduler puts into one kernel, pair by pair."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from minify.torch_internals.inductor_lowering import graph_name
from minify.torch_internals.switches import Handle, Switch, replaced

_CAN_FUSE = "torch._inductor.scheduler:Scheduler.can_fuse"
_FUSE = "torch._inductor.scheduler:Scheduler.fuse_two_nodes"


@contextlib.contextmanager
def _fusions(switch: Switch) -> Iterator[None]:
    """Each merge of two kernels is named by one operation of each, the nearest two: names that it has whatever was merged before.
    A pair that is off stays apart, in whatever company."""

    def wrap_can(can_fuse: Callable[..., bool]) -> Callable[..., bool]:
        @functools.wraps(can_fuse)
        def asked(scheduler: Any, one: Any, other: Any, *args: Any, **kwargs: Any) -> bool:
            return _stays(switch, one, other) and can_fuse(scheduler, one, other, *args, **kwargs)

        return asked

    def wrap_fuse(fuse: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fuse)
        def noted(scheduler: Any, one: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
            pair = _nearest(one, other)
            switch.note(_name(*pair), " with ".join(_origin(each) for each in pair))
            return fuse(scheduler, one, other, *args, **kwargs)

        return noted

    with replaced(_CAN_FUSE, wrap_can), replaced(_FUSE, wrap_fuse):
        yield


def _stays(switch: Switch, one: Any, other: Any) -> bool:
    """Whether two kernels may become one: no pair between them is off and, where only some pairs stay, one of those is."""
    if switch.watches:
        return True
    kept = [switch.keeps(_name(a, b)) for a in one.get_nodes() for b in other.get_nodes()]
    return any(kept) if switch.only else all(kept)


def _nearest(one: Any, other: Any) -> tuple[Any, Any]:
    """The first two, one of each, of which one reads what the other writes; else the first two that read the same; else any."""
    pairs = [(a, b) for a in one.get_nodes() for b in other.get_nodes()]
    ranks = [_rank(a, b) for a, b in pairs]
    return pairs[ranks.index(min(ranks))]


def _rank(a: Any, b: Any) -> int:
    reads = [{dependency.name for dependency in node.read_writes.reads} for node in (a, b)]
    writes = [node.get_buffer_names() for node in (a, b)]
    if reads[1] & set(writes[0]) or reads[0] & set(writes[1]):
        return 0
    return 1 if reads[0] & reads[1] else 2


def _name(a: Any, b: Any) -> str:
    first, second = sorted((a.get_name(), b.get_name()), key=lambda name: (len(name), name))
    return graph_name(f"{first}+{second}")


def _origin(node: Any) -> str:
    """The FX node that an operation was lowered from, by name; the operation's own where it is not known."""
    held = getattr(node, "node", None)
    origin = getattr(held, "origin_node", None)
    origins = [origin] if origin is not None else list(getattr(held, "origins", ()))
    return "/".join(dict.fromkeys(str(each) for each in origins)) or str(node.get_name())


HANDLES = (Handle("fusion", (_CAN_FUSE, _FUSE), _fusions),)
