"""What a repro's run hands back and how it tells compiled from eager, as Python text: one check, of one result.

Owns the choice of the leading divergence and the public-API form of each check in `minify.compare`.
"""

from __future__ import annotations

import dataclasses
import re

from minify.case import Case, Input, OpaqueMeta, Ref, TensorMeta, ValueMeta, tensor_inputs
from minify.tolerance import Tolerance
from minify.verdict import VALUE_KINDS, Divergence, Observation, Signature, counted

PRINTED_WHOLE = 16  # elements
_COMPARED_AS_THEY_ARE = ("float32", "float64", "complex64", "complex128")


@dataclasses.dataclass(frozen=True)
class Probe:
    """`result` is what `run` returns, `good` compares `observed` with `expected`, `shown` is what is printed of each,
    a suffix such as `[3, 5].item()`. `backward` says that `result` reads `gradients`."""

    result: str
    good: str
    shown: str = ""
    backward: bool = False


def leading(observation: Observation, signature: Signature) -> Divergence | None:
    """The divergence that the repro checks, None for a crash. Raises ValueError where the failure was not observed."""
    if signature.kind == "crash":
        return None
    rows = counted(observation.divergences, signature)
    if not rows:
        raise ValueError(f"the observation shows no {signature}, but {observation.divergences or 'no divergence'}")
    return max(rows, key=lambda row: (row.kind == signature.name, row.excess))


def probe(case: Case, observation: Observation, row: Divergence, tolerance: Tolerance) -> Probe:
    """The check of one divergence."""
    value, meta = _located(case, observation, row.where)
    backward = row.where.startswith("grad:")
    if row.kind in VALUE_KINDS:
        return dataclasses.replace(_of_values(case, row, tolerance, value, meta), backward=backward)
    if row.kind == "structure" and _is_float(row.expected) and _is_float(row.observed):
        return Probe(f"torch.tensor({value})", _close(row, tolerance, "float32"))
    results = {
        "dtype": f"{value}.dtype",
        "shape": f"tuple({value}.shape)",
        "stride": f"{value}.stride()",
        "structure": _structure(row, value),
        "aliasing": _sharing(case, observation, value),
    }
    return Probe(results[row.kind], "observed == expected", backward=backward)


def metas(case: Case, observation: Observation) -> dict[str, ValueMeta | None]:
    """What is known of every named value, by name; what the last run saw wins."""
    known: dict[str, ValueMeta | None] = {item.name: item.meta for item in tensor_inputs(case)}
    known.update({op.name: op.meta for op in case.graph.ops})
    known.update(observation.trace)
    return known


def output_text(case: Case, position: int) -> str:
    return "output" if len(case.graph.outputs) == 1 else f"outputs[{position}]"


def _located(case: Case, observation: Observation, where: str) -> tuple[str, ValueMeta | None]:
    """The expression of a result inside `run`, and what is known of it."""
    kind, _, name = where.partition(":")
    if kind == "grad":
        wanted = [item.name for item in tensor_inputs(case) if item.meta.requires_grad]
        value = f"gradients[{wanted.index(name)}]"
    elif kind == "input":
        value = f"inputs[{[item.name for item in case.inputs].index(name)}]"
    else:
        value = output_text(case, _position(case, name))
    return value, metas(case, observation).get(name)


def _position(case: Case, name: str) -> int:
    for position, output in enumerate(case.graph.outputs):
        if name in (getattr(output, "name", str(position)), str(output)):
            return position
    raise ValueError(f"no output is called {name}")


def _of_values(case: Case, row: Divergence, tolerance: Tolerance, value: str, meta: ValueMeta | None) -> Probe:
    """The check of one tensor's elements; a complex one has its parts compared only where they are NaN or infinite."""
    dtype = meta.dtype if isinstance(meta, TensorMeta) else "float32"
    if case.settings.grad_mode == "grad" and not row.where.startswith("grad:"):
        value += ".detach()"
    if isinstance(meta, OpaqueMeta):
        value += ".to_dense()"
    index = row.index
    if dtype.startswith("complex") and row.kind == "nonfinite":
        value = f"torch.view_as_real({value}.resolve_conj())"
    elif dtype.startswith("complex"):
        index = index[:-1]
    shown = "" if row.total <= PRINTED_WHOLE or not index else f"[{', '.join(map(str, index))}].item()"
    if row.kind == "integer":
        return Probe(value, "torch.equal(observed, expected)", shown)
    return Probe(value, _close(row, tolerance, dtype), shown)


def _close(row: Divergence, tolerance: Tolerance, dtype: str) -> str:
    rtol, atol = tolerance.of(dtype)
    atol = max(atol, _noise(row, atol))
    wide = "" if dtype in _COMPARED_AS_THEY_ARE else ".to(torch.complex64)" if dtype == "complex32" else ".double()"
    bounds = f"rtol={number(rtol)}, atol={number(atol)}, equal_nan=True"
    return f"torch.allclose(observed{wide}, expected{wide}, {bounds})"


def _noise(row: Divergence, atol: float) -> float:
    """An absolute tolerance that also covers twice eager's own error, so that a healthy compiler passes; 0 where the
    divergence does not stand well clear of it."""
    if row.kind != "value" or not row.eager_abs or not row.excess:
        return 0.0
    error = abs(float(row.observed) - float(row.expected))
    wide = float(f"{2 * row.eager_abs:.1g}")
    return wide if wide > atol and error - row.eager_abs > 2 * (wide + error / row.excess) else 0.0


def number(value: float) -> str:
    """`1e-5` rather than `1e-05`."""
    return repr(value).replace("e-0", "e-")


def _is_float(text: str) -> bool:
    """Whether `text` is what Python prints of a float."""
    return re.fullmatch(r"-?(\d+\.\d+(e[+-]?\d+)?|\d+e[+-]?\d+|inf|nan)", text) is not None


def _structure(row: Divergence, value: str) -> str:
    if row.expected.startswith("(torch."):  # layout and device of a tensor
        return f"({value}.layout, {value}.device)"
    if "tensor of shape" in row.expected + row.observed or row.where.startswith("grad:"):
        return f"type({value}).__name__"
    return f"repr({value})"


def _sharing(case: Case, observation: Observation, value: str) -> str:
    """The names of the inputs and other outputs that lie in the same memory as one output."""
    known = metas(case, observation)
    shares = []
    for position, item in enumerate(case.inputs):
        if isinstance(item, Input):
            shares.append((item.name, f"inputs[{position}]"))
    for position, output in enumerate(case.graph.outputs):
        if isinstance(output, Ref) and isinstance(known.get(output.name), TensorMeta | None):
            shares.append((output.name, output_text(case, position)))
    others = ", ".join(f'("{name}", {other})' for name, other in shares if other != value)
    memory = "untyped_storage().data_ptr()"
    return f"[name for name, other in [{others}] if other.{memory} == {value}.{memory}]"
