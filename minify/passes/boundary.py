"""The edge of a cut: what kept ops read from outside, turned into inputs, literals, or tuples of them.

A cut write is a missing producer too: whoever reads the memory after it reads an input that holds what was written.
So each cut write to a storage ends an era of it, and a value belongs to the era in which it was made; a read in a later
era is a read from outside. Inputs of one storage and one era share their memory, others don't.

Owns the naming of `Derived` values. One is a value of the base case as the first kept op that reads it finds it: `y`;
an item of a sequence, `y[0]`; and, where another era of `y` is an input too, `y@op`: its value just before `op`.
"""

from __future__ import annotations

import bisect
import dataclasses
from typing import TypeAlias

from minify.case import (
    Arg,
    Case,
    Derived,
    Input,
    Op,
    Recipe,
    Ref,
    ScalarInput,
    ScalarMeta,
    SequenceMeta,
    TensorMeta,
    ValueMeta,
    rewrite_op,
)
from minify.errors import InvalidCandidate
from minify.passes.effects import written
from minify.passes.flow import BEFORE_ALL, Flow, Storage, has_memory

Block: TypeAlias = "tuple[Storage, int]"


class Boundary:
    """Collects, in `made`, what the kept ops of `case` need from outside. A `Block` is a storage in one era, named by the
    position of the cut write that began it."""

    def __init__(self, case: Case, kept: frozenset[str], base: str, flow: Flow) -> None:
        self.case = case
        self.kept = kept
        self.base = base
        self.flow = flow
        self.originals = {item.name: item for item in case.inputs}
        self.cut_writes = cut_writes(case, kept, flow)
        self.allocated = self.allocated_blocks()
        self.made: dict[tuple[str, int], Input | ScalarInput] = {}
        self.numbers: dict[tuple[object, ...], int] = {}
        self.taken = set(kept)
        self.moments: set[str] = set()

    def ops(self) -> tuple[Op, ...]:
        """The kept ops, reading only each other and inputs. Free ops come last: they take whatever era is there."""
        ops = [op for op in self.case.graph.ops if op.name in self.kept]
        done = {op.name: self.rewrite(op) for op in ops if op.name not in self.flow.free}
        done |= {op.name: self.rewrite(op) for op in ops if op.name in self.flow.free}
        return tuple(self.relabel(done[op.name]) for op in ops)

    def inputs(self) -> tuple[Input | ScalarInput, ...]:
        """What was collected: the original parameters that stay, in their order, then the others in order of need."""
        known = {item.name: item for item in self.made.values()}
        stay = [known.pop(name) for name in self.originals if name in known]
        return (*stay, *known.values())

    def era(self, storage: Storage, position: int) -> int:
        """The last cut write to `storage` before `position`."""
        writes = self.cut_writes.get(storage, [])
        index = bisect.bisect_left(writes, position)
        return writes[index - 1] if index else BEFORE_ALL

    def blocks(self, name: str, position: int) -> frozenset[Block]:
        """Where the memory of `name` is at some position."""
        return frozenset((storage, self.era(storage, position)) for storage in self.flow.memory[name])

    def made_at(self, name: str) -> int:
        """The position of the op that made a value; taking it out of a sequence is not making it."""
        while name in self.flow.free and self.flow.source(name) in self.flow.ops:
            name = self.flow.source(name)
        return self.flow.position[name]

    def allocated_blocks(self) -> frozenset[Block]:
        """The blocks that kept ops allocate, so that no input lies in the same memory."""
        origin: dict[Storage, str] = {}
        for name in self.flow.position:
            for storage in self.flow.memory[name]:
                origin.setdefault(storage, name)
        inside = ((storage, name) for storage, name in origin.items() if name in self.kept)
        return frozenset((storage, self.era(storage, self.flow.position[name])) for storage, name in inside)

    def rewrite(self, op: Op) -> Op:
        return rewrite_op(op, lambda leaf: self.replace(leaf.name, op) if isinstance(leaf, Ref) else leaf)

    def relabel(self, op: Op) -> Op:
        """`op` with the storages of its result numbered as those of the inputs are."""

        def relabelled(meta: ValueMeta) -> ValueMeta:
            if isinstance(meta, SequenceMeta):
                return SequenceMeta(tuple(map(relabelled, meta.items)))
            if not isinstance(meta, TensorMeta) or not has_memory(meta):
                return meta
            block = (meta.storage, self.era(meta.storage, self.made_at(op.name)))
            outside = block in self.numbers and block not in self.allocated
            return dataclasses.replace(meta, storage=self.number(block if outside else ("inside", *block)))

        return dataclasses.replace(op, meta=None if op.meta is None else relabelled(op.meta))

    def replace(self, name: str, reader: Op) -> Arg:
        """What `reader` reads in place of `name`."""
        root, position = self.flow.root[name], self.flow.position[reader.name]
        free = reader.name in self.flow.free
        if name in self.kept and (free or self.blocks(name, position) == self.blocks(name, self.made_at(name))):
            return Ref(name)
        if free:
            for (known, _), item in self.made.items():
                if known == root:
                    return Ref(item.name)
        original = self.originals.get(root)
        if isinstance(original, ScalarInput):
            return Ref(self.made.setdefault((root, BEFORE_ALL), original).name)
        return self.stand_in(name, (), self.flow.metas[name], reader)

    def stand_in(self, name: str, path: tuple[int, ...], meta: ValueMeta | None, reader: Op) -> Arg:
        """The input, literal or tuple that takes the place of item `path` of value `name`."""
        if isinstance(meta, ScalarMeta):
            return meta.value
        if isinstance(meta, SequenceMeta):
            return tuple(self.stand_in(name, (*path, index), item, reader) for index, item in enumerate(meta.items))
        if not isinstance(meta, TensorMeta):
            raise InvalidCandidate(f"{name} cannot become an input: it is neither a tensor nor a number")
        if len(path) == 1 and (name, path[0]) in self.flow.items:
            name, path = self.flow.items[name, path[0]], ()
        era = self.era(meta.storage, self.flow.position[reader.name])
        key = (item_text(self.flow.root[name], path), era)
        if key not in self.made:
            self.made[key] = self.new_input(name, path, meta, era, reader)
        return Ref(self.made[key].name)

    def new_input(self, name: str, path: tuple[int, ...], meta: TensorMeta, era: int, reader: Op) -> Input:
        """An input that holds a value as `reader`, the first kept op to read it in this era, finds it."""
        root = self.flow.root[name]
        original = self.originals.get(root)
        own = self.unused("_".join((root if original else name, *map(str, path))))
        storage = self.number((meta.storage, era) if has_memory(meta) else ("no memory", own))
        if isinstance(original, Input) and era == BEFORE_ALL:
            return dataclasses.replace(original, name=own, meta=dataclasses.replace(original.meta, storage=storage))
        value = Derived(self.base, self.moment(name, path, era, reader))
        layout = self.flow.metas.get(value.name, meta)
        layout = layout if isinstance(layout, TensorMeta) else meta
        flags = tuple(flag for flag in meta.flags if original or flag != "parameter")
        layout = dataclasses.replace(layout, storage=storage, requires_grad=meta.requires_grad, flags=flags)
        dims = original.dynamic_dims if isinstance(original, Input) else ()
        return Input(own, layout, Recipe("zeros") if "zerotensor" in flags else value, dims)

    def moment(self, name: str, path: tuple[int, ...], era: int, reader: Op) -> str:
        """The `Derived` name of a value in the era that began with the write at position `era`."""
        text = item_text(name, path)
        if self.flow.position[name] < era:
            writer = self.case.graph.ops[era].name
            if not path and self.flow.root[writer] == self.flow.root[name]:
                text = writer
            elif text in self.moments:
                text = f"{text}@{reader.name}"
        self.moments.add(text)
        return text

    def number(self, key: tuple[object, ...]) -> int:
        """The number that all values in one piece of memory share."""
        return self.numbers.setdefault(key, len(self.numbers))

    def unused(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name


def cut_writes(case: Case, kept: frozenset[str], flow: Flow) -> dict[Storage, list[int]]:
    """For each storage, the positions of the cut ops that write to it."""
    found: dict[Storage, list[int]] = {}
    for index, op in enumerate(case.graph.ops):
        if op.name not in kept:
            for storage in frozenset[Storage]().union(*(flow.memory[name] for name in written(op))):
                found.setdefault(storage, []).append(index)
    return found


def item_text(name: str, path: tuple[int, ...]) -> str:
    """`y`, or `y[0]` for an item of a sequence."""
    return name + "".join(f"[{index}]" for index in path)
