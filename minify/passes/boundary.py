"""The edge of a cut: what kept ops read from outside, turned into inputs, literals, or tuples of them.

Owns the naming of `Derived` values. One is a value of the base case as the first kept op that reads it finds it: `y`;
an item of a sequence, `y[0]`; and, where another era of `y` is an input too, `y@op`: its value just before `op`.
"""

from __future__ import annotations

import dataclasses
from collections import Counter

from minify.case import (
    Arg,
    Case,
    Derived,
    Input,
    Op,
    Recipe,
    Recorded,
    Ref,
    ScalarInput,
    ScalarMeta,
    SequenceMeta,
    TensorMeta,
    ValueMeta,
    Window,
    rewrite_op,
)
from minify.errors import InvalidCandidate
from minify.passes.eras import Eras
from minify.passes.flow import BEFORE_ALL, Flow, has_memory


class Boundary:
    """Collects, in `made`, what the kept ops of `case` need from outside: an input for each object and era."""

    def __init__(self, case: Case, kept: frozenset[str], base: str, flow: Flow) -> None:
        self.case = case
        self.kept = kept
        self.base = base
        self.flow = flow
        self.originals = {item.name: item for item in case.inputs}
        self.symbolic = symbolic_sizes(case)
        self.eras = Eras(case, kept, flow)
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
        """What was collected: the original parameters that stay as they are, in their order, then the others in order of
        need, so that the first of those that share memory holds what it was before any of them was written to."""
        users = Counter(item.meta.storage for item in self.made.values() if isinstance(item, Input))
        shared = {storage for storage, count in users.items() if count > 1}
        needed = [self.in_shared_memory(item, shared) for item in self.made.values()]
        known = {item.name: item for item in needed}
        same = [name for name, item in self.originals.items() if name in known and known[name].value == item.value]
        return (*(known.pop(name) for name in same), *known.values())

    def in_shared_memory(self, item: Input | ScalarInput, shared: set[int]) -> Input | ScalarInput:
        """`item`, its recorded data exchanged for that of the base where its memory has views now but holds other data
        than was recorded (dims that have shrunk)."""
        if isinstance(item, ScalarInput) or item.meta.storage not in shared or not isinstance(item.value, Recorded):
            return item
        if item.value.window in (None, Window(item.meta.shape, item.meta.stride, item.meta.offset)):
            return item
        return dataclasses.replace(item, value=Derived(self.base, item.name))

    def rewrite(self, op: Op) -> Op:
        return rewrite_op(op, lambda leaf: self.replace(leaf.name, op) if isinstance(leaf, Ref) else leaf)

    def relabel(self, op: Op) -> Op:
        """`op` with the storages of its result numbered as those of the inputs are."""

        def relabelled(meta: ValueMeta) -> ValueMeta:
            if isinstance(meta, SequenceMeta):
                return SequenceMeta(tuple(map(relabelled, meta.items)))
            if not isinstance(meta, TensorMeta) or not has_memory(meta):
                return meta
            block = (meta.storage, self.eras.at(meta.storage, self.eras.made_at(op.name)))
            outside = block in self.numbers and block not in self.eras.allocated
            return dataclasses.replace(meta, storage=self.number(block if outside else ("inside", *block)))

        return dataclasses.replace(op, meta=None if op.meta is None else relabelled(op.meta))

    def replace(self, name: str, reader: Op) -> Arg:
        """What `reader` reads in place of `name`."""
        root, position = self.flow.root[name], self.flow.position[reader.name]
        free = reader.name in self.flow.free
        if name in self.kept and (free or self.eras.is_current(name, position)):
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
        era = self.eras.at(meta.storage, self.flow.position[reader.name])
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
        dims = original.dynamic_dims if isinstance(original, Input) else self.dynamic_dims(layout)
        return Input(own, layout, Recipe("zeros") if "zerotensor" in flags else value, dims)

    def dynamic_dims(self, meta: TensorMeta) -> tuple[int, ...]:
        return tuple(dim for dim, size in enumerate(meta.shape) if size in self.symbolic)

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


def symbolic_sizes(case: Case) -> frozenset[int]:
    """Sizes that only dynamic dims of the inputs have, so that an intermediate's dim of that size is taken for dynamic too.
    A size that some static dim has as well tells nothing."""
    tensors = [item for item in case.inputs if isinstance(item, Input)]
    dynamic = {item.meta.shape[dim] for item in tensors for dim in item.dynamic_dims}
    static = {size for item in tensors for dim, size in enumerate(item.meta.shape) if dim not in item.dynamic_dims}
    return frozenset(dynamic - static - {0, 1})


def item_text(name: str, path: tuple[int, ...]) -> str:
    """`y`, or `y[0]` for an item of a sequence."""
    return name + "".join(f"[{index}]" for index in path)
