"""Write ATen calls as the torch calls a user would write: `torch.ops.aten.add.Tensor` as `torch.add`.

May lose: the exact overload, a decomposition that the torch call goes through and the ATen call does not, and that
autograd or autocast sees the call. Calls without a counterpart of the same meaning stay as they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from minify.case import Arg, Case, Const, ListArg, Op, SliceArg
from minify.passes.aten_names import FUNCTIONAL_FUNCTIONS, METHODS, RENAMED, TORCH_FUNCTIONS
from minify.passes.contract import Pass, Site
from minify.passes.effects import base_name
from minify.passes.prune import with_graph

ATEN = "torch.ops.aten."
FUNCTIONAL = "torch.nn.functional."
LAST = 2**63 - 1  # how ATen writes an open end
REDUCTIONS = ("none", "mean", "sum")


def find(case: Case) -> tuple[Site, ...]:
    return tuple((op.name,) for op in case.graph.ops if idiomatic(op) is not None)


def rewrite(case: Case, sites: tuple[Site, ...]) -> Case:
    chosen = {site[0] for site in sites}
    ops = tuple((idiomatic(op) or op) if op.name in chosen else op for op in case.graph.ops)
    return with_graph(case, ops, case.graph.outputs)


def idiomatic(op: Op) -> Op | None:
    """`op` as a user would write it; None where it is no ATen call or has no such form."""
    name, overload = base_name(op.target), op.target.rpartition(".")[2]
    if not op.target.startswith(ATEN) or "out" in overload:
        return None
    if name in SPECIAL:
        return SPECIAL[name](op)
    if name in TORCH_FUNCTIONS:
        return dataclasses.replace(op, target=f"torch.{name}")
    if name in FUNCTIONAL_FUNCTIONS:
        return dataclasses.replace(op, target=FUNCTIONAL + name)
    if name in METHODS or (name.endswith("_") and name[:-1] in TORCH_FUNCTIONS):
        return dataclasses.replace(op, target=f".{name}")
    return dataclasses.replace(op, target=RENAMED[name]) if name in RENAMED else None


def softmax(op: Op) -> Op | None:
    """`_softmax(x, dim, half_to_float)`; the last is a float32 result of half-precision input."""
    if len(op.args) != 3:
        return None
    target = "torch.softmax" if base_name(op.target) == "_softmax" else "torch.log_softmax"
    kwargs: tuple[tuple[str, Arg], ...] = (("dtype", Const("torch.float32")),) if op.args[2] is True else ()
    return dataclasses.replace(op, target=target, args=op.args[:2], kwargs=kwargs)


def to_copy(op: Op) -> Op | None:
    """`_to_copy(x, dtype=...)`, which copies even where nothing changes."""
    kwargs = {key: value for key, value in op.kwargs if value is not None and value is not False}
    if kwargs.get("layout") == Const("torch.strided"):
        del kwargs["layout"]
    if not kwargs.keys() <= {"dtype", "device", "memory_format", "non_blocking"}:
        return None
    return dataclasses.replace(op, target=".to", kwargs=(*kwargs.items(), ("copy", True)))


def embedding(op: Op) -> Op | None:
    """`embedding(weight, indices, padding_idx=-1, scale_grad_by_freq, sparse)`: operands change places."""
    if len(op.args) < 2 or op.kwargs:
        return None
    weight, indices, *rest = op.args
    padding = rest[0] if rest and rest[0] != -1 else None
    if any(flag is not False for flag in rest[1:]):
        return None
    args = (indices, weight) if padding is None else (indices, weight, padding)
    return dataclasses.replace(op, target=FUNCTIONAL + "embedding", args=args)


def convolution(op: Op) -> Op | None:
    """`convolution(x, w, bias, stride, padding, dilation, transposed, output_padding, groups)`."""
    if len(op.args) != 9 or op.args[6] is not False or not isinstance(op.args[3], ListArg | tuple):
        return dataclasses.replace(op, target="torch.convolution")
    stride = op.args[3].items if isinstance(op.args[3], ListArg) else op.args[3]
    if len(stride) not in (1, 2, 3):
        return dataclasses.replace(op, target="torch.convolution")
    return dataclasses.replace(op, target=f"{FUNCTIONAL}conv{len(stride)}d", args=(*op.args[:6], op.args[8]))


def index(op: Op) -> Op | None:
    """`index(x, [i, None, j])` is `x[i, :, j]`."""
    indices = op.args[1].items if isinstance(op.args[1], ListArg) else op.args[1]
    if not isinstance(indices, tuple) or not indices:
        return None
    keys = tuple(SliceArg(None, None, None) if key is None else key for key in indices)
    return dataclasses.replace(op, target="operator.getitem", args=(op.args[0], keys[0] if len(keys) == 1 else keys))


def slicing(op: Op) -> Op | None:
    """`slice(x, dim, start, end, step)` is `x[:, start:end:step]`."""
    defaults: tuple[Arg, ...] = (0, None, None, 1)
    source, dim, start, end, step = op.args + defaults[len(op.args) - 1 :]
    if op.kwargs or not isinstance(dim, int) or dim < 0:
        return None
    key = SliceArg(start or None, None if end == LAST else end, None if step == 1 else step)
    keys = (*(SliceArg(None, None, None) for _ in range(dim)), key)
    return dataclasses.replace(op, target="operator.getitem", args=(source, keys if dim else key))


def index_put(op: Op) -> Op | None:
    """`index_put(x, indices, values)`; torch's takes tensors only, no None that skips a dim."""
    indices = op.args[1].items if isinstance(op.args[1], ListArg) else op.args[1]
    if not isinstance(indices, tuple) or None in indices:
        return None
    name = base_name(op.target)
    return dataclasses.replace(op, target=f".{name}", args=(op.args[0], indices, *op.args[2:]))


def loss(op: Op) -> Op | None:
    """A loss whose reduction is a number in ATen and a word in torch."""
    reduction = op.args[2] if len(op.args) == 3 else 1
    if op.kwargs or len(op.args) > 3 or not isinstance(reduction, int):
        return None
    kwargs: tuple[tuple[str, Arg], ...] = (("reduction", REDUCTIONS[reduction]),) if reduction != 1 else ()
    return dataclasses.replace(op, target=FUNCTIONAL + base_name(op.target), args=op.args[:2], kwargs=kwargs)


def max_pool(op: Op) -> Op | None:
    target = FUNCTIONAL + base_name(op.target).removesuffix("_with_indices")
    return dataclasses.replace(op, target=target, kwargs=(*op.kwargs, ("return_indices", True)))


SPECIAL: dict[str, Callable[[Op], Op | None]] = {
    "_softmax": softmax,
    "_log_softmax": softmax,
    "_to_copy": to_copy,
    "embedding": embedding,
    "convolution": convolution,
    "index": index,
    "_unsafe_index": index,
    "index_put": index_put,
    "index_put_": index_put,
    "slice": slicing,
    "mse_loss": loss,
    "smooth_l1_loss": loss,
    "huber_loss": loss,
    "max_pool2d_with_indices": max_pool,
    "max_pool3d_with_indices": max_pool,
}


IDIOMATIC_CALLS = Pass("idiomatic calls", find, rewrite, polish=True)
