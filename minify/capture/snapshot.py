"""The moment a compiled region is entered: its real inputs copied with their layout and sharing, and every setting in force."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from minify import interpret, replay, store, torch_internals
from minify.capture.convert import Converted, Param, Unrepresentable, python_arg
from minify.case import REPLAYS, Arg, Case, Const, Input, Program, Recipe, ScalarInput, Settings, TensorMeta, ValueMeta
from minify.features import CUDA_GRAPHS, uses

Naming = Callable[[object], "str | None"]


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """Copies of a region's inputs. `storages` maps a storage number to a copy of its content; `metas` describes each
    parameter in order (a number stands for itself); `level` is the graph's: `dynamo` or `aten`."""

    converted: Converted
    metas: tuple[TensorMeta | bool | int | float | complex, ...]
    storages: dict[int, torch.Tensor]
    settings: Settings
    level: str = "dynamo"

    def values(self) -> tuple[Any, ...]:
        """Fresh inputs: same layout, same sharing, leaves that require grad where the originals did."""
        bases = {number: storage.clone() for number, storage in self.storages.items()}
        for number in {meta.storage for meta in self.metas if isinstance(meta, TensorMeta) and self._grows(meta)}:
            bases[number] = bases[number].requires_grad_().clone()
        return tuple(self._rebuilt(meta, bases) for meta in self.metas)

    def _grows(self, meta: TensorMeta) -> bool:
        """Whether an input is no leaf because the memory it is a view of is none."""
        known = meta.storage in self.storages
        return known and "nonleaf" in meta.flags and self.storages[meta.storage].dtype == getattr(torch, meta.dtype)

    def _rebuilt(self, meta: Any, bases: Mapping[int, torch.Tensor]) -> Any:
        """An input in fresh memory, which `bases` has by storage number."""
        if not isinstance(meta, TensorMeta):
            return meta
        if "zerotensor" in meta.flags:
            return torch_internals.zerotensor(meta.shape, getattr(torch, meta.dtype), meta.device)
        grown = self._grows(meta)
        memory = bases[meta.storage] if grown else replay.typed(bases[meta.storage].detach(), meta)
        built = torch.as_strided(memory, meta.shape, meta.stride, meta.offset)
        if "conj" in meta.flags:
            built = built.conj()
        if "neg" in meta.flags:
            built = torch_internals.neg_view(built)
        if "parameter" in meta.flags:
            return torch.nn.Parameter(built, requires_grad=meta.requires_grad)
        return built if grown else built.requires_grad_(meta.requires_grad)

    def scope(self) -> dict[str, Any]:
        """The names that the graph's constants are looked up in."""
        names = interpret.namespace()
        for definition in self.converted.definitions:
            exec(definition, names)
        return names

    def case(self, root: Path, prelude: str = "") -> Case:
        """The case, its storages written to the store. Raises OSError."""
        users: dict[int, int] = {}
        for meta in self.metas:
            if isinstance(meta, TensorMeta) and meta.storage >= 0:
                users[meta.storage] = users.get(meta.storage, 0) + 1
        inputs: list[Input | ScalarInput] = []
        for param, meta in zip(self.converted.params, self.metas, strict=True):
            if not isinstance(meta, TensorMeta):
                inputs.append(ScalarInput(param.name, meta, param.dynamic))
                continue
            dims = () if self.settings.dynamic else param.dynamic_dims
            if "zerotensor" in meta.flags:
                inputs.append(
                    Input(param.name, dataclasses.replace(meta, storage=_fresh(users)), Recipe("zeros"), dims)
                )
                continue
            value = replay.recorded(self.storages[meta.storage], meta, root, shared=users[meta.storage] > 1)
            inputs.append(Input(param.name, meta, value, dims))
        prelude = "\n\n".join(part for part in (prelude, *self.converted.definitions) if part)
        return Case(Program(self.converted.graph, self.level, prelude), tuple(inputs), self._case_settings(inputs))

    def _case_settings(self, inputs: Sequence[Input | ScalarInput]) -> Settings:
        """The settings, and the config without which a compiler takes an int for a constant the first time it sees it. With CUDA
        graphs, the replays: the first run of a graph is none, and the second records it."""
        settings = self.settings
        names = [item.name for item in inputs if isinstance(item, ScalarInput) and item.dynamic]
        if names and not settings.dynamic:
            config = (*settings.config, *torch_internals.dynamic_numbers(names))
            settings = dataclasses.replace(settings, config=config)
        on_gpu = any(isinstance(item, Input) and item.meta.device.startswith("cuda") for item in inputs)
        return dataclasses.replace(settings, replays=REPLAYS) if on_gpu and uses(settings, CUDA_GRAPHS) else settings


def _fresh(users: dict[int, int]) -> int:
    number = max(users, default=-1) + 1
    users[number] = 1
    return number


def given(param: Param, args: Sequence[Any]) -> Any:
    """What a graph that was called with `args` was given for one parameter: a tensor or a number."""
    value = param.constant if param.source is None else args[param.source]
    if isinstance(value, torch.Tensor):
        return value.item() if param.is_scalar else value
    return torch_internals.hint(value)


def take(converted: Converted, args: Sequence[Any], settings: Settings) -> Snapshot:
    """Copy the inputs of a region about to run. Raises Unrepresentable for tensors without strides (sparse, quantised, subclasses)."""
    numbers = interpret.StorageNumbers()
    metas: list[Any] = []
    storages: dict[int, torch.Tensor] = {}
    with torch.no_grad(), interpret.NoDispatch():
        for param in converted.params:
            value = given(param, args)
            if not isinstance(value, torch.Tensor):
                metas.append(value)
                continue
            meta = _describe(value, numbers, param.name)
            metas.append(meta)
            if meta.storage >= 0 and meta.storage not in storages:
                storages[meta.storage] = store.storage_of(value).clone()
    return Snapshot(converted, tuple(metas), storages, settings)


def _describe(value: torch.Tensor, numbers: interpret.StorageNumbers, name: str) -> TensorMeta:
    if type(value) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        raise Unrepresentable(f"input {name} is a {type(value).__name__}")
    meta: ValueMeta = interpret.describe(value, numbers, name)
    if not isinstance(meta, TensorMeta):
        raise Unrepresentable(f"input {name} is a {value.layout} tensor")
    if meta.requires_grad and not value.is_leaf:
        meta = dataclasses.replace(meta, flags=(*meta.flags, "nonleaf"))
    return meta


def current_settings(how: Mapping[str, Any], naming: Naming, *, backward: bool) -> Settings:
    """Every setting in force now. Raises Unrepresentable for a setting that has no name outside this process."""

    def written(value: Any) -> Arg:
        try:
            return python_arg(value)
        except Unrepresentable:
            name = naming(value)
            if name is None:
                raise
            return Const(name)

    grad_mode = interpret.grad_mode()
    autocast = tuple(
        (device, interpret.dtype_name(torch.get_autocast_dtype(device)))
        for device in ("cpu", "cuda")
        if torch.is_autocast_enabled(device)
    )
    config = []
    for module, key, value in torch_internals.config_changes():
        try:
            config.append((module, key, written(value)))
        except Unrepresentable as error:
            raise Unrepresentable(f"config {module}.{key}: {error}") from error
    backend = how.get("backend") or "inductor"
    return Settings(
        backend=written(backend),
        mode=how.get("mode"),
        options=tuple(sorted((key, written(value)) for key, value in (how.get("options") or {}).items())),
        dynamic=how.get("dynamic"),
        config=tuple(config),
        grad_mode=grad_mode,
        backward="randn" if backward and grad_mode == "grad" else "",
        autocast=autocast,
        switches=tuple(sorted((name, written(value)) for name, value in replay.switch_changes().items())),
    )
