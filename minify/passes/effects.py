"""What an op does to memory besides its result, read off its name and its arguments.

Owns the answer to "which of its operands does this call write to", "is its result one of its operands" and "must it
stay although nobody reads it". Knows nothing of cases, storages or passes.
"""

from __future__ import annotations

from minify.case import Arg, Op, OpaqueMeta, Ref, ScalarMeta, refs
from minify.graph import BUILTIN_NAMESPACES

AUGMENTED = frozenset((
    "operator.iadd", "operator.isub", "operator.imul", "operator.imatmul", "operator.itruediv", "operator.ifloordiv",
    "operator.imod", "operator.ipow", "operator.iand", "operator.ior", "operator.ixor", "operator.ilshift",
    "operator.irshift",
))  # fmt: skip

WRITING_DUNDERS = frozenset(("setitem", "__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__"))

# Where torch.nn.functional takes `inplace` by position.
INPLACE_POSITION = {
    "relu": 1, "relu6": 1, "selu": 1, "silu": 1, "mish": 1, "hardswish": 1, "hardsigmoid": 1,
    "elu": 2, "celu": 2, "leaky_relu": 2, "threshold": 3, "hardtanh": 3, "rrelu": 4,
    "dropout": 3, "dropout1d": 3, "dropout2d": 3, "dropout3d": 3, "alpha_dropout": 3, "feature_alpha_dropout": 3,
}  # fmt: skip

# Where a normalisation in training mode keeps its running statistics, and where its mode is given.
RUNNING_STATISTICS = {
    "torch.nn.functional.batch_norm": ((1, 2), 5, "training"),
    "torch.nn.functional.instance_norm": ((1, 2), 5, "use_input_stats"),
    "torch.batch_norm": ((3, 4), 5, "training"),
    "torch.native_batch_norm": ((3, 4), 5, "training"),
    "torch.ops.aten.native_batch_norm.default": ((3, 4), 5, "training"),
}
STATISTICS_KEYWORDS = ("running_mean", "running_var")


def written(op: Op) -> tuple[str, ...]:
    """Names of the operands whose memory `op` writes to, its `out=` included."""
    kwargs = dict(op.kwargs)
    names = tuple(refs(kwargs.get("out")))
    if mutates_first(op) and op.args:
        names += tuple(refs(op.args[0]))
    if op.target in RUNNING_STATISTICS:
        names += written_statistics(op)
    return names


def written_statistics(op: Op) -> tuple[str, ...]:
    """The running mean and variance, when `op` is a normalisation in training mode."""
    positions, mode_position, mode_name = RUNNING_STATISTICS[op.target]
    kwargs = dict(op.kwargs)
    mode = op.args[mode_position] if len(op.args) > mode_position else kwargs.get(mode_name, False)
    if mode is not True:
        return ()
    positional = tuple(op.args[position] for position in positions if position < len(op.args))
    return tuple(refs(positional)) + tuple(refs(tuple(kwargs.get(name) for name in STATISTICS_KEYWORDS)))


def mutates_first(op: Op) -> bool:
    """Whether `op` writes to its first argument: `.add_`, `operator.iadd`, `setitem`, `relu(x, inplace=True)`."""
    name = base_name(op.target)
    if op.target in AUGMENTED or name in WRITING_DUNDERS:
        return True
    if name.endswith("_") and not name.endswith("__") and not op.target.startswith("operator."):
        return True
    return dict(op.kwargs).get("inplace") is True or positional_inplace(op)


def positional_inplace(op: Op) -> bool:
    position = INPLACE_POSITION.get(base_name(op.target))
    return (
        position is not None
        and op.target.startswith("torch.nn.functional.")
        and len(op.args) > position
        and op.args[position] is True
    )


def base_name(target: str) -> str:
    """`add_` for `.add_`, `torch.add_` and `torch.ops.aten.add_.Tensor`."""
    parts = target.split(".")
    if target.startswith("torch.ops.") and len(parts) > 3:
        return parts[3]
    return parts[-1]


def returned_operand(op: Op) -> str | None:
    """The operand that `op` returns as the very same object (`y = x.add_(1)`: `y` is `x`), if any."""
    if base_name(op.target) in ("setitem", "__setitem__"):
        return None
    out = dict(op.kwargs).get("out")
    if isinstance(out, Ref):
        return out.name
    first: Arg = op.args[0] if op.args else None
    return first.name if mutates_first(op) and isinstance(first, Ref) else None


def is_barrier(op: Op) -> bool:
    """Whether `op` acts on something other than its operands (a grad mode, an autocast context) or may write to these
    without saying so, as a custom op may. Such an op is never dead code: only an edit that names it takes it out."""
    if mutates_first(op):
        return False
    if op.target.startswith("torch.ops.") and op.target.split(".")[2] not in BUILTIN_NAMESPACES:
        return True
    nothing = isinstance(op.meta, ScalarMeta) and op.meta.value is None
    return nothing or isinstance(op.meta, OpaqueMeta)
