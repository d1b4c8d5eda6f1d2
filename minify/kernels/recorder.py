"""Watch a program's kernels run, hold what each writes against what is due, and cut out the first that writes something wrong."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.fx

from minify import torch_internals
from minify.interpret import dtype_name, leaves
from minify.kernels.record import Argument, Kernel, Memory
from minify.kernels.tensors import due_of, judged, memory_content
from minify.tolerance import Tolerance
from minify.truth import Truth, truths

MOST_BYTES = 64 << 20  # what a kernel may have in hand and still be kept


@dataclasses.dataclass
class Recorder:
    """Implements `torch_internals.KernelObserver`. Afterwards `kernels` has the first that writes something wrong, or all if
    `every`; `right` names those that wrote nothing wrong before it, `unknown` the buffers of which it is not known what is due,
    `spoilt` those that a kernel found wrong already, and `too_large` the kernels that have too much in hand to be kept. `shaken`
    runs of the graph on shaken inputs say how far rounding moves what is due."""

    every: bool = False
    shaken: int = 2
    tolerance: Tolerance = dataclasses.field(default_factory=Tolerance)
    kernels: list[Kernel] = dataclasses.field(default_factory=list)
    right: list[str] = dataclasses.field(default_factory=list)
    unknown: list[str] = dataclasses.field(default_factory=list)
    spoilt: list[str] = dataclasses.field(default_factory=list)
    too_large: list[str] = dataclasses.field(default_factory=list)
    _due: dict[str, Truth] = dataclasses.field(default_factory=dict)

    @property
    def done(self) -> bool:
        """Whether there is no more to look for."""
        return not self.every and bool(self.kernels or self.spoilt or self.too_large)

    def entered(self, module: torch.fx.GraphModule, inputs: Sequence[Any], nodes: frozenset[str]) -> None:
        self._due = {} if self.done else truths(module, inputs, nodes, self.shaken)

    @contextlib.contextmanager
    def around(self, launch: torch_internals.KernelLaunch) -> Iterator[None]:
        if self.done:
            yield
            return
        tensors = [argument.value for argument in launch.arguments if isinstance(argument.value, torch.Tensor)]
        kept = {torch_internals.storage_key(tensor): tensor for tensor in tensors}
        if sum(tensor.untyped_storage().nbytes() for tensor in kept.values()) > MOST_BYTES:
            self.too_large.append(launch.name)
            yield
            return
        found_wrong = [] if self.every else self._found_wrong(launch)
        before = {key: memory_content(tensor) for key, tensor in kept.items()}
        yield
        if found_wrong:  # by a kernel that is not Inductor's own, say
            self.spoilt += found_wrong
            return
        torch_internals.synchronise()
        contents = [Memory(before[key], memory_content(tensor)) for key, tensor in kept.items()]
        places = {key: place for place, key in enumerate(kept)}
        arguments = tuple(self._argument(argument, places) for argument in launch.arguments)
        wrong = tuple(
            ours.name
            for ours, theirs in zip(arguments, launch.arguments, strict=True)
            if ours.due is not None and judged(theirs.value, ours, self.tolerance).wrong
        )
        if wrong or self.every:
            self.kernels.append(_kernel(launch, arguments, tuple(contents), wrong))
        else:
            self.right.append(launch.name)

    def _argument(self, argument: torch_internals.KernelArgument, places: dict[int, int]) -> Argument:
        value = argument.value
        if not isinstance(value, torch.Tensor):
            return Argument(argument.name, argument.type, value if isinstance(value, int | float | bool) else None)
        due = None
        if argument.writes:
            truth = self._of(argument)
            due = None if truth is None else due_of(truth.eager, truth.reference, truth.shaken)
            if truth is None:
                self.unknown.append(argument.buffer or argument.name)
        return Argument(
            argument.name,
            argument.type,
            None,
            places[torch_internals.storage_key(value)],
            int(value.storage_offset()) * value.element_size(),
            dtype_name(value.dtype),
            tuple(value.shape),
            tuple(value.stride()),
            argument.writes,
            argument.buffer,
            argument.node,
            due,
        )

    def _of(self, argument: torch_internals.KernelArgument) -> Truth | None:
        """What is due of a buffer, in its shape and dtype; None where the node's value is no such thing: a part of a reduction, say.
        Of a node with several values it is not said which: the one that comes nearest."""
        truth, held = self._due.get(argument.node), argument.value
        if truth is None:
            return None
        rows = zip(leaves(truth.eager), leaves(truth.reference), *(leaves(one) for one in truth.shaken), strict=True)
        shape = [size for size in held.shape if size != 1]
        fitting = [
            Truth(
                eager.reshape(held.shape).to(held.dtype),
                reference.reshape(held.shape),
                tuple(one.reshape(held.shape).to(held.dtype) for one in shaken),
            )
            for eager, reference, *shaken in rows
            if [size for size in eager.shape if size != 1] == shape
            and eager.is_floating_point() == held.is_floating_point()
        ]
        return min(fitting, key=lambda one: _distance(held, one.reference), default=None)

    def _found_wrong(self, launch: torch_internals.KernelLaunch) -> list[str]:
        """Buffers that are wrong before the kernel has run."""
        found = []
        for argument in launch.arguments:
            truth = None if argument.writes or not isinstance(argument.value, torch.Tensor) else self._of(argument)
            if truth is None:
                continue
            due = due_of(truth.eager, truth.reference, truth.shaken)
            value = argument.value
            row = Argument(argument.name, dtype=dtype_name(value.dtype), shape=tuple(value.shape), due=due)
            if judged(value, row, self.tolerance).wrong:
                found.append(argument.buffer)
        return found


def _distance(held: torch.Tensor, due: torch.Tensor) -> float:
    if held.dtype == torch.bool or not held.numel():
        return float((held != due).sum())
    return float((held.to(due.dtype) - due).abs().nan_to_num().max())


def _kernel(
    launch: torch_internals.KernelLaunch,
    arguments: tuple[Argument, ...],
    memories: tuple[Memory, ...],
    wrong: tuple[str, ...],
) -> Kernel:
    return Kernel(
        launch.language,
        launch.name,
        launch.source,
        arguments,
        memories,
        wrong,
        launch.grid,
        dict(launch.constants),
        dict(launch.options),
        torch_internals.compiler_versions(),
    )
