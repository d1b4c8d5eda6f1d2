"""When does a compiled result diverge? Tolerances, error statistics and the exact checks (design §4).

An element diverges when it breaks `|out - ref| <= atol + rtol * |ref|` and eager's own error does not explain it.
Everything that is not a float value is compared exactly with eager. Runs nothing; takes tensors, returns `Divergence`s.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from minify import torch_internals
from minify.verdict import Divergence

# (rtol, atol): half types as in the mission's sources; fp32 rtol from there, atol as torch.testing.assert_close has it.
_DEFAULTS = {
    torch.float16: (1e-2, 1e-3),
    torch.bfloat16: (1e-2, 1e-3),
    torch.complex32: (1e-2, 1e-3),
    torch.float32: (1e-5, 1e-5),
    torch.complex64: (1e-5, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex128: (1e-7, 1e-7),
}
# Eager's error has to be exceeded by this much. Healthy programs were seen at 0.55-1.02 x eager's (5 seeds, RMSE);
# the margin covers the maximum, which scatters more than the mean.
EAGER_FACTOR = 4.0


@dataclasses.dataclass(frozen=True, slots=True)
class Tolerance:
    """Bounds of `|out - ref| <= atol + rtol * |ref|`; None takes the default of the output's dtype."""

    rtol: float | None = None
    atol: float | None = None

    def of(self, dtype: torch.dtype) -> tuple[float, float]:
        """(rtol, atol) for one output."""
        rtol, atol = _DEFAULTS.get(dtype, (1e-2, 1e-2))
        return (rtol if self.rtol is None else self.rtol, atol if self.atol is None else self.atol)


@dataclasses.dataclass(frozen=True, slots=True)
class Compared:
    """The findings on one result: `wrong` is a divergence, `drift` is out of tolerance but explained by eager's own error."""

    wrong: Divergence | None = None
    drift: Divergence | None = None


def compare_results(
    where: str,
    out: Any,
    eager: Any,
    reference: Any,
    tolerance: Tolerance,
    noisy: Sequence[Any] = (),
    strides: bool = True,
) -> list[Compared]:
    """Everything that departs in one result: metadata first, then values. `noisy` are eager's results on inputs
    disturbed by one unit in the last place: what those do as well is ill-conditioned, and counts as explained."""
    if not isinstance(eager, torch.Tensor) or not isinstance(out, torch.Tensor):
        return _compare_plain(where, out, eager)
    found = []
    for kind, ours, theirs in _metadata(out, eager, strides):
        if ours != theirs:
            found.append(Compared(Divergence(where, kind, expected=str(theirs), observed=str(ours))))
    if out.shape == eager.shape and out.layout == torch.strided and eager.layout == torch.strided:
        found.append(_compare_values(where, out.detach(), eager.detach(), _detached(reference), tolerance, noisy))
    return found


def _metadata(out: torch.Tensor, eager: torch.Tensor, strides: bool) -> list[tuple[str, Any, Any]]:
    rows: list[tuple[str, Any, Any]] = [
        ("dtype", out.dtype, eager.dtype),
        ("shape", tuple(out.shape), tuple(eager.shape)),
        ("structure", (out.layout, out.device), (eager.layout, eager.device)),
    ]
    dense = out.layout == torch.strided and eager.layout == torch.strided
    if strides and dense and out.shape == eager.shape and eager.numel() > 0:
        rows.append(("stride", out.stride(), eager.stride()))
    return rows


def _compare_plain(where: str, out: Any, eager: Any) -> list[Compared]:
    """Numbers, None and whatever else is no tensor on one side or on both."""
    lone = out if isinstance(out, torch.Tensor) else eager
    other = eager if isinstance(out, torch.Tensor) else out
    if (
        where.startswith("grad:")
        and other is None
        and isinstance(lone, torch.Tensor)
        and not bool(lone.count_nonzero())
    ):
        return []  # no gradient and a gradient of zeros mean the same
    same = type(out) is type(eager) and (out == eager or (out != out and eager != eager))
    if isinstance(out, torch.Tensor) or isinstance(eager, torch.Tensor) or not same:
        return [Compared(Divergence(where, "structure", expected=_short(eager), observed=_short(out)))]
    return []


def _short(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"tensor of shape {tuple(value.shape)}"
    return repr(value)[:80]


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else None


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` as data alone: lazy conjugate and negative bits carried out, floats in fp64, complex as pairs of them."""
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.is_complex():
        return torch.view_as_real(tensor.to(torch.complex128))
    return tensor.to(torch.float64) if tensor.is_floating_point() else tensor


def _compare_values(
    where: str, out: torch.Tensor, eager: torch.Tensor, reference: Any, tolerance: Tolerance, noisy: Sequence[Any]
) -> Compared:
    if out.numel() == 0:
        return Compared()
    reference = eager if reference is None or reference.shape != eager.shape else reference.to(eager.device)
    if not (eager.is_floating_point() or eager.is_complex()):
        return _compare_exact(where, out, eager, reference, noisy)
    if not (out.is_floating_point() or out.is_complex()):
        out = out.to(eager.dtype)
    got, near, true = plain(out), plain(eager), plain(reference)
    if got.shape != near.shape or true.shape != near.shape:
        return Compared()  # complex against real: the dtype row says it
    rtol, atol = tolerance.of(eager.dtype)
    stray = _nonfinite(where, got, near, true)
    finite = torch.isfinite(got) & torch.isfinite(near) & torch.isfinite(true)
    limit = atol + rtol * true.abs()
    zero = torch.zeros_like(true)
    error = torch.where(finite, (got - true).abs(), zero)
    own = torch.where(finite, (near - true).abs(), zero)
    for other in noisy:
        if isinstance(other, torch.Tensor) and other.shape == eager.shape and other.dtype == eager.dtype:
            shaken = (plain(other.detach()) - near).abs()
            own = torch.maximum(own, torch.where(torch.isfinite(shaken), shaken, zero))
    over = error > limit
    explained = (error <= 2 * own) | (error / limit <= EAGER_FACTOR * (own / limit).max())
    if stray is not None:
        return Compared(stray)
    if not bool(over.any()):
        return Compared()
    wrong = over & ~explained
    chosen = wrong if bool(wrong.any()) else over
    statistics = _statistics(where, "value", chosen, got, true, own, error, limit)
    return Compared(wrong=statistics) if bool(wrong.any()) else Compared(drift=statistics)


def _nonfinite(where: str, got: torch.Tensor, near: torch.Tensor, true: torch.Tensor) -> Divergence | None:
    """NaN must meet NaN and inf the inf of its sign, wherever eager and the reference agree what is due."""

    def kind(values: torch.Tensor) -> torch.Tensor:
        return torch.where(values.isnan(), 2, torch.where(values.isinf(), values.sign(), 0))

    due = kind(near)
    wrong = (due == kind(true)) & (kind(got) != due)
    if not bool(wrong.any()):
        return None
    zero = torch.zeros_like(true)
    return _statistics(where, "nonfinite", wrong, got, true, zero, zero, zero + 1)


def _compare_exact(
    where: str, out: torch.Tensor, eager: torch.Tensor, reference: torch.Tensor, noisy: Sequence[Any]
) -> Compared:
    """Integers and bools against eager; where the reference, or eager on shaken inputs, disagrees with eager the element
    is decided by rounding and proves nothing."""
    if out.is_floating_point() or out.is_complex():
        return Compared()  # the dtype row says it
    differs = out != eager
    unsure = (
        reference != eager
        if not (reference.is_floating_point() or reference.is_complex())
        else torch.zeros_like(differs)
    )
    for other in noisy:
        if isinstance(other, torch.Tensor) and other.shape == eager.shape:
            unsure = unsure | (other != eager)
    wrong = differs & ~unsure
    chosen = wrong if bool(wrong.any()) else differs
    if not bool(chosen.any()):
        return Compared()
    got, near = plain(out).to(torch.float64), plain(eager).to(torch.float64)
    zero = torch.zeros_like(near)
    row = _statistics(where, "integer", chosen, got, near, zero, (got - near).abs(), zero + 1)
    return Compared(wrong=row) if bool(wrong.any()) else Compared(drift=row)


def _statistics(
    where: str,
    kind: str,
    chosen: torch.Tensor,
    got: torch.Tensor,
    true: torch.Tensor,
    own: torch.Tensor,
    error: torch.Tensor,
    limit: torch.Tensor,
) -> Divergence:
    """Numbers of the chosen elements: worst first."""
    score = torch.where(chosen, error / limit, torch.full_like(error, -1.0))
    flat = int(score.argmax()) if bool((score > 0).any()) else int(chosen.to(torch.uint8).argmax())
    index = tuple(int(part) for part in torch.unravel_index(torch.tensor(flat), chosen.shape)) if chosen.dim() else ()
    floor = true.abs().clamp_min(torch.finfo(torch.float64).tiny)
    return Divergence(
        where,
        kind,
        max_abs=float(error[chosen].max()),
        max_rel=float((error / floor)[chosen].max()),
        eager_abs=float(own.max()),
        excess=float((error / limit)[chosen].max()),
        bad=int(chosen.sum()),
        total=chosen.numel(),
        index=index,
        expected=f"{float(true[index]):.9g}",
        observed=f"{float(got[index]):.9g}",
    )


def alias_pattern(inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    """For each output the positions (inputs first, then outputs) that share its storage, itself apart."""
    values = [*inputs, *outputs]
    keys = [
        torch_internals.storage_key(value)
        if isinstance(value, torch.Tensor) and value.layout == torch.strided
        else None
        for value in values
    ]
    rows = []
    for position in range(len(inputs), len(values)):
        key = keys[position]
        rows.append(tuple(i for i, other in enumerate(keys) if other is not None and other == key and i != position))
    return tuple(rows)
