"""When cut ops write: the eras of each storage of a case that is being cut.

A cut write is a missing producer too: whoever reads the memory after it reads an input that holds what was written.
So each cut write to a storage ends an era of it, and a value belongs to the era in which it was made; a read in a later
era is a read from outside. Inputs of one storage and one era share their memory, others don't.
"""

from __future__ import annotations

import bisect

from minify.case import Case
from minify.passes.effects import written
from minify.passes.flow import BEFORE_ALL, Flow, Storage


class Eras:
    """An era is known by the position of the cut write that began it. `allocated` are the (storage, era) pairs that kept
    ops bring into being, so that no input lies in the same memory."""

    def __init__(self, case: Case, kept: frozenset[str], flow: Flow) -> None:
        self.kept = kept
        self.flow = flow
        self.cut_writes: dict[Storage, list[int]] = {}
        self.outer_writes: dict[Storage, list[int]] = {}  # by kept ops, to what a kept op made, through a cut value
        origin = origins(flow)
        self.sort_writes(case, origin)
        inside = ((storage, name) for storage, name in origin.items() if name in kept)
        self.allocated = frozenset((storage, self.at(storage, flow.position[name])) for storage, name in inside)

    def sort_writes(self, case: Case, origin: dict[Storage, str]) -> None:
        for index, op in enumerate(case.graph.ops):
            for name in written(op):
                for storage in self.flow.memory[name]:
                    if op.name not in self.kept:
                        self.cut_writes.setdefault(storage, []).append(index)
                    elif name not in self.kept and origin[storage] in self.kept:
                        self.outer_writes.setdefault(storage, []).append(index)

    def at(self, storage: Storage, position: int) -> int:
        """The last cut write to `storage` before `position`."""
        writes = self.cut_writes.get(storage, [])
        index = bisect.bisect_left(writes, position)
        return writes[index - 1] if index else BEFORE_ALL

    def is_current(self, name: str, position: int) -> bool:
        """Whether the kept value `name` still holds at `position` what it would in the original program."""
        made = self.made_at(name)
        return not any(
            any(made < write < position for write in writes.get(storage, ()))
            for storage in self.flow.memory[name]
            for writes in (self.cut_writes, self.outer_writes)
        )

    def made_at(self, name: str) -> int:
        """The position of the op that made a value; taking it out of a sequence is not making it."""
        while name in self.flow.free and self.flow.source(name) in self.flow.ops:
            name = self.flow.source(name)
        return self.flow.position[name]


def origins(flow: Flow) -> dict[Storage, str]:
    """For each storage, the first value that lies in it."""
    origin: dict[Storage, str] = {}
    for name in flow.position:
        for storage in flow.memory[name]:
            origin.setdefault(storage, name)
    return origin
