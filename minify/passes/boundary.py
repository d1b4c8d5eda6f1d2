"""The edge of a cut: what kept ops read from outside, turned into inputs, literals, or tuples of them.

Owns the naming of `Derived` values. One is a value of the base case as the first kept op that reads it finds it: `y`;
an item of a sequence, `y[0]`; and, where another version of `y` is an input too, `y@op`: its value just before `op`.
Cut writes are thus kept as values: two reads of one memory with a cut write in between become two inputs, while reads
with none in between go on sharing their storage.
"""

from __future__ import annotations

import bisect
import dataclasses

from minify.case import (
    Arg,
    Case,
    Derived,
    Input,
    Op,
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
from minify.passes.flow import BEFORE_ALL, Flow, Storage


@dataclasses.dataclass(frozen=True, slots=True)
class Writes:
    """The writes around a cut. `past`: positions of those that become part of recorded values, for each storage;
    `live`: the position of the first that still happens to what is read from outside; `inside`: the storages that
    kept ops allocate, so that no input shares them any more."""

    past: dict[Storage, list[int]]
    live: dict[Storage, int]
    inside: frozenset[Storage]


def sort_writes(case: Case, kept: frozenset[str], flow: Flow) -> Writes:
    origin: dict[Storage, str] = {}
    for name in flow.position:
        for storage in flow.memory[name]:
            origin.setdefault(storage, name)
    inside = frozenset(storage for storage, name in origin.items() if name in kept)
    past: dict[Storage, list[int]] = {}
    live: dict[Storage, int] = {}
    for index, op in enumerate(case.graph.ops):
        for name in written(op):
            for storage in flow.memory[name]:
                if op.name not in kept or (name in kept and storage in inside):
                    past.setdefault(storage, []).append(index)
                else:
                    live.setdefault(storage, index)
    return Writes(past, live, inside)


class Boundary:
    """Collects what the kept ops of `case` need from outside. An input is known by the object it stands for (a root, or
    an item of a sequence) and by the position of the last write that its value includes, its version."""

    def __init__(self, case: Case, kept: frozenset[str], base: str, flow: Flow) -> None:
        self.case = case
        self.kept = kept
        self.base = base
        self.flow = flow
        self.writes = sort_writes(case, kept, flow)
        self.originals = {item.name: item for item in case.inputs}
        self.made: dict[tuple[str, int], Input | ScalarInput] = {}
        self.taken = set(kept)
        self.moments: set[str] = set()
        self.numbers: dict[tuple[Storage, int], int] = {}
        every = (storage for memory in flow.memory.values() for storage in memory)
        self.next_number = 1 + max((storage for storage in every if isinstance(storage, int)), default=-1)

    def rewrite_all(self) -> tuple[Op, ...]:
        """The kept ops, reading only each other and inputs. Shape reads come last: any version of a value will do."""
        ops = [op for op in self.case.graph.ops if op.name in self.kept]
        done = {op.name: self.rewrite(op) for op in ops if not self.flow.is_shape_read(op.name)}
        done |= {op.name: self.rewrite(op) for op in ops if self.flow.is_shape_read(op.name)}
        return tuple(done[op.name] for op in ops)

    def inputs(self) -> tuple[Input | ScalarInput, ...]:
        """What was collected: the original parameters that stay, in their order, then the others in order of need."""
        known = {item.name: item for item in self.made.values()}
        stay = [known.pop(name) for name in self.originals if name in known]
        return (*stay, *known.values())

    def rewrite(self, op: Op) -> Op:
        return rewrite_op(op, lambda leaf: self.replace(leaf.name, op) if isinstance(leaf, Ref) else leaf)

    def replace(self, name: str, reader: Op) -> Arg:
        """What `reader` reads in place of `name`."""
        if name in self.kept:
            return Ref(name)
        root = self.flow.root[name]
        original = self.originals.get(root)
        if self.flow.is_shape_read(reader.name):
            for (known, _), item in self.made.items():
                if known == root:
                    return Ref(item.name)
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
        until = min(self.flow.position[reader.name], self.writes.live.get(meta.storage, len(self.flow.ops)))
        past = self.writes.past.get(meta.storage, [])
        index = bisect.bisect_left(past, until)
        version = past[index - 1] if index else BEFORE_ALL
        key = (item_text(self.flow.root[name], path), version)
        if key not in self.made:
            self.made[key] = self.new_input(name, path, meta, version, until)
        return Ref(self.made[key].name)

    def new_input(self, name: str, path: tuple[int, ...], meta: TensorMeta, version: int, until: int) -> Input:
        """An input for version `version` of a value, the first kept touch of which is at `until`."""
        root = self.flow.root[name]
        original = self.originals.get(root)
        own = self.unused("_".join((root if original else name, *map(str, path))))
        storage = self.number(meta.storage, version)
        if isinstance(original, Input) and version == BEFORE_ALL:
            return dataclasses.replace(original, name=own, meta=dataclasses.replace(original.meta, storage=storage))
        value = Derived(self.base, self.moment(name, path, version, until))
        layout = self.flow.metas.get(value.name, meta)
        flags = tuple(flag for flag in meta.flags if original or flag != "parameter")
        if meta.requires_grad and meta.storage in self.writes.live and "nonleaf" not in flags:
            flags += ("nonleaf",)
        layout = layout if isinstance(layout, TensorMeta) else meta
        layout = dataclasses.replace(layout, storage=storage, requires_grad=meta.requires_grad, flags=flags)
        return Input(own, layout, value, original.dynamic_dims if isinstance(original, Input) else ())

    def moment(self, name: str, path: tuple[int, ...], version: int, until: int) -> str:
        """The `Derived` name of a value that includes the write at position `version`."""
        text = item_text(name, path)
        if self.flow.position[name] < version:
            writer = self.case.graph.ops[version].name
            if not path and self.flow.root[writer] == self.flow.root[name]:
                text = writer
            elif text in self.moments:
                text = f"{text}@{self.case.graph.ops[until].name}"
        self.moments.add(text)
        return text

    def number(self, storage: int, version: int) -> int:
        """The storage number of one version of a storage: its own for the first one that lies outside."""
        if storage < 0:
            return storage
        key = (storage, version)
        if key not in self.numbers:
            fresh = storage in self.writes.inside or storage in self.numbers.values()
            self.numbers[key] = self.next_number if fresh else storage
            self.next_number += fresh
        return self.numbers[key]

    def unused(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name


def item_text(name: str, path: tuple[int, ...]) -> str:
    """`y`, or `y[0]` for an item of a sequence."""
    return name + "".join(f"[{index}]" for index in path)
