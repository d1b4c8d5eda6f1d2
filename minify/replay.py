"""Bring a case to life in this process: its functions, its inputs (fresh on each call) and its settings.

Owns the way back from data to running Python. Compiles nothing; `worker` does.
"""

from __future__ import annotations

import ast
import collections
import contextlib
import dataclasses
import functools
import hashlib
import linecache
import re
import sys
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from minify import inputs as input_text
from minify import interpret, render, store, torch_internals
from minify.case import (
    Arg,
    Case,
    Derived,
    Input,
    Op,
    Recorded,
    ScalarInput,
    TensorMeta,
    Window,
    op_refs,
    tensor_inputs,
)
from minify.release import releasing


class Values:
    """Real data by input name, a fresh copy with the recorded layout on each look-up (in-place ops must not leak)."""

    def __init__(self, sources: Mapping[str, Callable[[], torch.Tensor]]) -> None:
        self._sources = sources

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._sources[name]()


@dataclasses.dataclass(frozen=True)
class Replay:
    """A case ready to run: `fn` is the program, `eager_fn` the same letting go of each value after its last reader,
    `make_inputs()` its inputs, `other_inputs(turn)` the same with other values, `scope` the names all live among."""

    case: Case
    fn: Callable[..., Any]
    eager_fn: Callable[..., Any]
    make_inputs: Callable[[], tuple[Any, ...]]
    other_inputs: Callable[[int], tuple[Any, ...]]
    scope: dict[str, Any]

    def python(self, arg: Arg) -> Any:
        """The Python value of a setting; a `Const` may name something in the prelude."""
        return interpret.map_arg_values(arg, lambda text: eval(text, self.scope))


def replay(case: Case, root: Path) -> Replay:
    """Load a case. `root` is the store its recorded values are in. Raises whatever the prelude or an input raises."""
    values = Values(_sources(case, root))  # first, since a base that values come from is replayed for them
    module = types.ModuleType("minify_replay")
    sys.modules[module.__name__] = module  # where Dynamo looks up the globals of a nested function
    scope = vars(module)
    scope.update(interpret.namespace())
    _run_prelude(case.program.prelude, scope)
    functions = [render.function(case.graph, "fn"), input_text.make_inputs(case), input_text.other_inputs(case)]
    source = render.text(functions)
    code = compile(source, _findable(source, "case"), "exec")
    exec(code, scope)
    fn = scope["fn"]
    exec(compile(releasing(ast.parse(source), "fn"), "<eager case>", "exec"), scope)
    eager_fn, scope["fn"] = scope["fn"], fn
    # Apart, since an operator that the prelude registers holds on to the module for good, and must not to the values.
    scope = {**scope, "recorded": values}
    exec(code, scope)
    return Replay(case, fn, eager_fn, scope["make_inputs"], scope["other_inputs"], scope)


# What each statement of a prelude bound when it first ran in this process. It keeps a `Library` alive, with which its
# operators would go.
_FIRST_BOUND: dict[tuple[str, int], dict[str, Any]] = {}
_REGISTERED = re.compile(
    r"Tried to register an operator|Only a single TORCH_LIBRARY|already (a kernel )?registered|already has an? "
)


def _run_prelude(source: str, scope: dict[str, Any]) -> None:
    """Execute a prelude; a statement that registers what this process has already is left at what it bound the first time.

    An operator can be defined only once in a process the classic way (`torch.library.define`, `Library(ns, "DEF")`),
    while each candidate of a reduction brings its prelude along, and a pass may have left out other statements of it."""
    tree = ast.parse(source)
    name, lines = _findable(source, "prelude"), source.splitlines()
    futures = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    for node in tree.body:
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
        key = ("\n".join(lines[first - 1 : node.end_lineno]), node.col_offset)
        before = dict(scope)
        try:
            exec(compile(ast.Module([*futures, node], []), name, "exec"), scope)
        except Exception as error:
            if key not in _FIRST_BOUND or not _REGISTERED.search(str(error)):
                raise
            # Such an object, and the module of its first run that it reads its globals from, is shared by all candidates;
            # everything else is made anew for each, so that what one of them does to it never reaches the next.
            scope.update(_FIRST_BOUND[key])
        else:
            bound = {name: value for name, value in scope.items() if name not in before or before[name] is not value}
            _FIRST_BOUND.setdefault(key, bound)


def _findable(source: str, name: str) -> str:
    """A file name under which the source of text can be looked up, as `triton.jit` and tracebacks want it."""
    name = f"<{name} {hashlib.sha256(source.encode()).hexdigest()[:12]}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    return name


# --- recorded values ---------------------------------------------------------------------------------------------------


def _sources(case: Case, root: Path) -> dict[str, Callable[[], torch.Tensor]]:
    shared = {members[0].name for members in input_text.groups(case).values() if len(members) > 1}
    derived = _derive(case, root)
    found: dict[str, Callable[[], torch.Tensor]] = {}
    for item in tensor_inputs(case):
        if isinstance(item.value, Recorded):
            storage = store.load_storage(root, item.value.digest).to(item.meta.device)
        elif isinstance(item.value, Derived) and item.name in derived:
            storage = derived[item.name]
        else:
            continue
        storage = elements(storage, item)
        if item.name in shared:
            found[item.name] = storage.clone
        else:
            found[item.name] = functools.partial(lay_out, storage, item)
    return found


def elements(storage: torch.Tensor, item: Input) -> torch.Tensor:
    """What was recorded of a storage as elements of the dtype that `item` has: converted (complex numbers to their real
    parts) where it had another when they were recorded."""
    if not isinstance(item.value, Recorded) or not item.value.dtype:
        return typed(storage, item.meta)
    held = typed(storage, dataclasses.replace(item.meta, dtype=item.value.dtype))
    dtype = getattr(torch, item.meta.dtype)
    return (held.real.contiguous() if held.is_complex() and not dtype.is_complex else held).to(dtype)


def typed(storage: torch.Tensor, meta: TensorMeta) -> torch.Tensor:
    """The same bytes as elements of the dtype of `meta`; what is left over at the end is cut off."""
    dtype = getattr(torch, meta.dtype)
    if storage.dtype == dtype:
        return storage
    raw = storage.view(torch.uint8)
    return raw[: raw.numel() // dtype.itemsize * dtype.itemsize].view(dtype)


def lay_out(storage: torch.Tensor, item: Input) -> torch.Tensor:
    """A tensor with exactly the layout of `item`, alone in fresh memory, its elements taken from recorded `storage`."""
    meta, value = item.meta, item.value
    window = value.window if isinstance(value, Recorded) else None
    if window is None:
        return torch.as_strided(storage.clone(), meta.shape, meta.stride, meta.offset)
    fresh = torch.zeros(meta.storage_size, dtype=storage.dtype, device=storage.device)
    target = torch.as_strided(fresh, meta.shape, meta.stride, meta.offset)
    source = torch.as_strided(storage, window.shape, window.stride, window.offset)
    for dim, step in enumerate(meta.stride):  # an expanded dim holds one row only, and cannot be written through
        if step == 0 and meta.shape[dim] > 1:
            target, source = target.narrow(dim, 0, 1), source.narrow(dim, 0, 1)
    target.copy_(source)
    return torch.as_strided(fresh, meta.shape, meta.stride, meta.offset)


def _derive(case: Case, root: Path) -> dict[str, torch.Tensor]:
    """Storages of the inputs that are values of a base case, from one eager run of it."""
    wanted: dict[str, list[Input]] = {}
    for item in tensor_inputs(case):
        if isinstance(item.value, Derived) and "zerotensor" not in item.meta.flags:
            wanted.setdefault(item.value.base, []).append(item)
    found: dict[str, torch.Tensor] = {}
    for base, items in wanted.items():
        found.update(_values_of(store.load_base(root, base), root, items, case))
    return found


def _values_of(base: Case, root: Path, items: list[Input], candidate: Case) -> dict[str, torch.Tensor]:
    """Run `base` eagerly and copy the storage behind each of `items` when it is what the candidate is to see.

    That is just before `op` for `y@op`; else just before the candidate's first reader of that memory would run (an op in
    between may have written to it), or as soon as it exists where the base has no such reader. `y[0]` is an item of a
    sequence."""
    due: dict[str, list[Input]] = {}
    base_ops = {op.name for op in base.graph.ops}
    for item in items:
        due.setdefault(_moment(item, base_ops, candidate), []).append(item)
    copies: dict[str, torch.Tensor] = {}
    previous = list(base.graph.params)
    pending = collections.Counter(_owner(_derived_name(item)) for item in items)

    def take(wanted: list[Input], env: interpret.Env) -> None:
        for item in wanted:
            copies[item.name] = store.storage_of(_item(env, _derived_name(item))).clone()
            pending.subtract([_owner(_derived_name(item))])
        for name in [name for name, count in pending.items() if count <= 0]:
            del pending[name]  # nobody waits for it: the run may let go of it
        if not pending:
            raise _AllTaken

    def before(op: Op | None, env: interpret.Env) -> None:
        while previous:
            take(due.get(f"after {previous.pop()}", []), env)
        if op is not None:
            take([item for item in due.get(op.name, []) if _owner(_derived_name(item)) in env], env)
            previous.append(op.name)

    live = replay(base, root)
    with applied(live), interpret.modes_kept():
        values = live.make_inputs()
        with seeded(base), contextlib.suppress(_AllTaken):
            interpret.run(base.graph, values, before, pending.keys(), live.scope)
    return copies


class _AllTaken(Exception):
    """The rest of the base need not run."""


def _moment(item: Input, base_ops: Collection[str], candidate: Case) -> str:
    """The op of the base that `item` is copied before, or `after y`."""
    name = _derived_name(item)
    group = {member.name for member in input_text.groups(candidate)[item.meta.storage]}
    readers = [op.name for op in candidate.graph.ops if op.name in base_ops and group & set(op_refs(op))]
    return name.partition("@")[2] or (readers[0] if readers else f"after {_owner(name)}")


def _derived_name(item: Input) -> str:
    assert isinstance(item.value, Derived)
    return item.value.name


def _owner(name: str) -> str:
    """The op or input that a derived name is about: `y` for `y[0]@op`."""
    return name.partition("@")[0].partition("[")[0]


def _item(env: interpret.Env, name: str) -> torch.Tensor:
    value = env[_owner(name)]
    for index in re.findall(r"\[(\d+)\]", name.partition("@")[0]):
        value = value[int(index)]
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} is a {type(value).__name__}, no tensor")
    return value


def materialised(case: Case, root: Path) -> Case:
    """`case` with every derived value written to the store and its range noted, so that it stands without its base."""
    shared = {number for number, members in input_text.groups(case).items() if len(members) > 1}
    derived = _derive(case, root)
    inputs: list[Input | ScalarInput] = []
    for item in case.inputs:
        if isinstance(item, Input) and isinstance(item.value, Derived) and item.name in derived:
            value = recorded(derived[item.name], item.meta, root, shared=item.meta.storage in shared)
            inputs.append(dataclasses.replace(item, value=value))
        else:
            inputs.append(item)
    return dataclasses.replace(case, inputs=tuple(inputs))


def recorded(storage: torch.Tensor, meta: TensorMeta, root: Path, *, shared: bool) -> Recorded:
    """Save a storage and describe the part of it that an input with layout `meta` shows."""
    digest = store.save_storage(root, storage)
    window = None if shared else Window(meta.shape, meta.stride, meta.offset)
    low, high = value_range(torch.as_strided(typed(storage, meta), meta.shape, meta.stride, meta.offset))
    return Recorded(digest, window, low, high)


def value_range(tensor: torch.Tensor) -> tuple[float | None, float | None]:
    """Smallest and largest element, (None, None) for complex and empty tensors; NaN wins as torch has it."""
    if tensor.numel() == 0 or tensor.is_complex():
        return None, None
    wide = (
        tensor.to(torch.float64) if tensor.is_floating_point() or tensor.dtype == torch.bool else tensor.to(torch.int64)
    )
    return float(wide.min()), float(wide.max())


# --- settings -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def applied(live: Replay) -> Iterator[None]:
    """The case's grad mode, autocast, switches and compiler configs; everything is put back on leaving.

    Raises RuntimeError for a mode and AttributeError for a config that this torch does not have."""
    settings = live.case.settings
    with contextlib.ExitStack() as stack:
        if settings.backend == "inductor":
            torch_internals.inductor_patches(
                settings.mode, {}
            )  # torch would take a mode it lacks for a failing compile
        configs = [(module, key, live.python(value)) for module, key, value in settings.config]
        stack.enter_context(torch_internals.config_patch(configs))
        for name, value in settings.switches:
            stack.enter_context(switched(name, live.python(value)))
        if settings.grad_mode == "inference":
            stack.enter_context(torch.inference_mode())
        else:
            stack.enter_context(torch.set_grad_enabled(settings.grad_mode == "grad"))
        for device, dtype in settings.autocast:
            stack.enter_context(torch.autocast(device, dtype=getattr(torch, dtype)))
        yield


# As statements of a repro: `emit.compiling.SWITCHES`.
_SWITCHES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "default_dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "deterministic": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    "matmul_precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "cudnn_allow_tf32": (
        lambda: torch.backends.cudnn.allow_tf32,
        lambda value: setattr(torch.backends.cudnn, "allow_tf32", value),
    ),
}
_SWITCH_DEFAULTS: dict[str, Any] = {
    "default_dtype": torch.float32,
    "deterministic": False,
    "matmul_precision": "highest",
    "cudnn_allow_tf32": True,
}


def switch_changes() -> dict[str, Any]:
    """Global switches that differ from torch's defaults now. A switch torch refuses to read is left out."""
    found = {}
    for name, (read, _) in _SWITCHES.items():
        with contextlib.suppress(RuntimeError):
            if read() != _SWITCH_DEFAULTS[name]:
                found[name] = read()
    return found


@contextlib.contextmanager
def switched(name: str, value: Any) -> Iterator[None]:
    """One global switch set, and set back."""
    read, write = _SWITCHES[name]
    before = read()
    write(value)
    try:
        yield
    finally:
        write(before)


@contextlib.contextmanager
def switches_kept() -> Iterator[None]:
    """Every global switch is afterwards as it was, whoever sets it meanwhile. One that torch refuses to read is left alone."""
    before = []
    for read, write in _SWITCHES.values():
        with contextlib.suppress(RuntimeError):
            before.append((write, read()))
    try:
        yield
    finally:
        for write, value in before:
            write(value)


@contextlib.contextmanager
def seeded(case: Case) -> Iterator[None]:
    """Random generators reseeded for a run, and their state given back."""
    state = interpret.random_state()
    torch.manual_seed(case.settings.seed)
    try:
        yield
    finally:
        interpret.restore_random(state)
