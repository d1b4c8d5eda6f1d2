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
from minify.tolerance import Tolerance
from minify.verdict import Divergence

# Eager's error has to be exceeded by this much. Healthy programs were seen at 0.55-1.02 x eager's (5 seeds, RMSE);
# the margin covers the maximum, which scatters more than the mean.
EAGER_FACTOR = 4.0


@dataclasses.dataclass(frozen=True, slots=True)
class Compared:
    """The findings on one result: `wrong` is a divergence, `drift` is out of tolerance but explained by eager's own error,
    `within` gives the numbers of floats that keep their tolerance."""

    wrong: Divergence | None = None
    drift: Divergence | None = None
    within: Divergence | None = None


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
    disturbed by one unit in the last place: what those do as well is ill-conditioned, and counts as explained.

    A result of another dtype, shape or layout is that and nothing more: its values are not compared."""
    if not isinstance(eager, torch.Tensor) or not isinstance(out, torch.Tensor):
        return _compare_plain(where, out, eager, reference, tolerance, noisy)
    found = []
    for kind, ours, theirs in _metadata(out, eager, strides):
        if ours != theirs:
            found.append(Compared(Divergence(where, kind, expected=str(theirs), observed=str(ours))))
    if any(row.wrong and row.wrong.kind != "stride" for row in found):
        return found
    values = [value.detach() if isinstance(value, torch.Tensor) else None for value in (out, eager, reference)]
    if eager.layout is not torch.strided:
        values = [value if value is None else value.to_dense() for value in values]
    assert values[0] is not None and values[1] is not None
    return [*found, _compare_values(where, values[0], values[1], values[2], tolerance, noisy)]


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


def _compare_plain(
    where: str, out: Any, eager: Any, reference: Any, tolerance: Tolerance, noisy: Sequence[Any]
) -> list[Compared]:
    """Numbers, None and whatever else is no tensor on one side or on both."""
    lone, other = (out, eager) if isinstance(out, torch.Tensor) else (eager, out)
    if where.startswith("grad:") and other is None and isinstance(lone, torch.Tensor):
        if not bool(lone.count_nonzero()):
            return []  # no gradient and a gradient of zeros mean the same
    elif type(out) is type(eager):
        if out == eager:
            return []
        if isinstance(out, float | complex):  # rounding is allowed to show in `x.item()` as well
            got, near, true, *shaken = [_as_tensor(value) for value in (out, eager, reference, *noisy)]
            row = _compare_values(where, got, near, true, tolerance, shaken)
            if row.wrong is None:
                return [row]
    return [Compared(Divergence(where, "structure", expected=_short(eager), observed=_short(out)))]


def _as_tensor(number: Any) -> Any:
    """A Python number as a tensor, of the precision that numbers read from tensors mostly have."""
    if not isinstance(number, float | complex):
        return None
    return torch.tensor(number, dtype=torch.complex64 if isinstance(number, complex) else torch.float32)


def _short(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"tensor of shape {tuple(value.shape)}"
    return repr(value)[:80]


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` as data alone: lazy conjugate and negative bits carried out, floats in fp64, complex as pairs of them."""
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.is_complex():
        return torch.view_as_real(tensor.to(torch.complex128))
    return tensor.to(torch.float64) if tensor.is_floating_point() else tensor


def _inexact(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _compare_values(
    where: str, out: torch.Tensor, eager: torch.Tensor, reference: Any, tolerance: Tolerance, noisy: Sequence[Any]
) -> Compared:
    """Values of two tensors of one shape and dtype."""
    same = torch.equal(out, eager)
    if same and (where.startswith("input:") or not _inexact(eager)):  # the cheap way out, for inputs nobody wrote to
        return Compared()
    comparable = reference is not None and reference.shape == eager.shape and _inexact(reference) == _inexact(eager)
    reference = reference.to(eager.device) if comparable else eager
    trials = [other.detach() for other in noisy if _same_kind(other, eager)]
    if not _inexact(eager):
        return _compare_exact(where, out, eager, reference, trials)
    got, near, true = plain(out), plain(eager), plain(reference)
    shaken = [plain(other) for other in trials]
    if true.shape != near.shape:
        true = near
    stray = _nonfinite(where, got, near, true, shaken)
    if stray is not None:
        return Compared(stray)
    size = _size(true, eager)
    rtol, atol = tolerance.of(str(eager.dtype).removeprefix("torch."))
    rounding = size * torch.finfo(eager.dtype).eps / 2
    found = _compare_finite(where, got, near, true, shaken, atol + rtol * size, rounding)
    return Compared(within=found.within or found.drift) if same else found  # eager's own error is all there is


def _same_kind(other: Any, eager: torch.Tensor) -> bool:
    return isinstance(other, torch.Tensor) and other.shape == eager.shape and other.dtype == eager.dtype


def _size(true: torch.Tensor, eager: torch.Tensor) -> torch.Tensor:
    """What each element's rounding is relative to. The parts of a complex number share its modulus, as they share that."""
    size = true.abs()
    if eager.is_complex():
        modulus = size.norm(dim=-1, keepdim=True).expand_as(size)
        size = torch.where(modulus.isfinite(), modulus, size)
    return size


def _compare_finite(
    where: str,
    got: torch.Tensor,
    near: torch.Tensor,
    true: torch.Tensor,
    shaken: Sequence[torch.Tensor],
    limit: torch.Tensor,
    rounding: torch.Tensor,
) -> Compared:
    """Finite elements of which one may be off by `limit`, and `rounding` is what to round it once can cost."""
    finite = torch.isfinite(got) & torch.isfinite(near) & torch.isfinite(true)
    zero = torch.zeros_like(true)
    limit = torch.where(finite, limit, zero + 1)
    error = torch.where(finite, (got - true).abs(), zero)
    own = torch.where(finite, (near - true).abs(), zero)
    moved = zero
    for other in shaken:
        by = (other - near).abs()
        moved = torch.maximum(moved, torch.where(finite & by.isfinite(), by, zero))
    over = error > limit
    if not bool(over.any()):
        return Compared(within=_kept(where, got, true, own, error, limit, finite))
    explained = (error <= 2 * torch.maximum(own, moved)) | _within_eagers(error, own, limit)
    # One unit in the last place of a half is more than its tolerance wherever a result cancels to nearly nothing. That
    # explains as much elsewhere, and not the same multiple of results that are large.
    explained |= _within_eagers(error, moved, limit) & (error <= EAGER_FACTOR * moved.max())
    wrong = over & ~explained
    chosen = wrong if bool(wrong.any()) else over
    noise = torch.maximum(own, moved)
    statistics = _statistics(where, "value", chosen, got, true, noise, error, limit)
    statistics = dataclasses.replace(statistics, ratio=_ratio(statistics.excess, noise, rounding, limit, finite))
    return Compared(wrong=statistics) if bool(wrong.any()) else Compared(drift=statistics)


def _within_eagers(error: torch.Tensor, own: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
    """Where the error, in units of its limit, is no more than a few times the worst of eager's anywhere. Elements that may
    have no error at all (atol 0 and a true value of 0) have no such units, and are held against each other."""
    strict = limit == 0
    unit = torch.where(strict, torch.ones_like(limit), limit)
    theirs = own / unit
    worst = torch.where(strict, (theirs * strict).max(), (theirs * ~strict).max())
    return error / unit <= EAGER_FACTOR * worst


def _ratio(
    excess: float, noise: torch.Tensor, rounding: torch.Tensor, limit: torch.Tensor, finite: torch.Tensor
) -> float:
    """The worst error in units of the most that eager's own, shaken inputs, or a single rounding cost anywhere."""
    due = torch.maximum(noise, rounding) / limit
    worst = float(torch.where(finite & due.isfinite(), due, torch.zeros_like(due)).max())
    return excess / worst if worst else float("inf")


def _nonfinite(
    where: str, got: torch.Tensor, near: torch.Tensor, true: torch.Tensor, shaken: Sequence[torch.Tensor]
) -> Divergence | None:
    """NaN must meet NaN and inf the inf of its sign, wherever eager, shaken or not, and the reference agree what is due."""

    def kind(values: torch.Tensor) -> torch.Tensor:
        return torch.where(values.isnan(), 2, torch.where(values.isinf(), values.sign(), 0))

    due = kind(near)
    wrong = (due == kind(true)) & (kind(got) != due)
    for other in shaken:
        wrong = wrong & (kind(other) == due)
    if not bool(wrong.any()):
        return None
    zero = torch.zeros_like(true)
    return _statistics(where, "nonfinite", wrong, got, true, zero, zero, zero + 1)


def _compare_exact(
    where: str, out: torch.Tensor, eager: torch.Tensor, reference: torch.Tensor, noisy: Sequence[torch.Tensor]
) -> Compared:
    """Integers and bools against eager; where the reference, or a `noisy` run of eager, disagrees with eager the element
    is decided by rounding and proves nothing. Nor do a few such more than noise was seen to change: it changes others each time."""
    differs = out != eager
    unsure = reference != eager
    for other in noisy:
        unsure = unsure | (other != eager)
    wrong = differs & ~unsure
    changed = max((int((other != eager).sum()) for other in noisy), default=0)
    if int(wrong.sum()) <= EAGER_FACTOR * changed:
        wrong = torch.zeros_like(wrong)
    chosen = wrong if bool(wrong.any()) else differs
    got, near = out.to(torch.float64), eager.to(torch.float64)
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
    """Numbers of the chosen elements; `index`, `expected` and `observed` are of the worst (of a complex number, the part)."""
    score = torch.where(chosen, error / limit, torch.full_like(error, -1.0))
    flat = int(score.argmax()) if bool((score > 0).any()) else int(chosen.to(torch.uint8).argmax())
    index = tuple(int(part) for part in torch.unravel_index(torch.tensor(flat), chosen.shape)) if chosen.dim() else ()
    floor = true.abs().clamp_min(torch.finfo(torch.float64).tiny)
    digits = ".0f" if kind == "integer" else ".9g"
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
        expected=f"{float(true[index]):{digits}}",
        observed=f"{float(got[index]):{digits}}",
    )


def _kept(
    where: str,
    got: torch.Tensor,
    true: torch.Tensor,
    own: torch.Tensor,
    error: torch.Tensor,
    limit: torch.Tensor,
    finite: torch.Tensor,
) -> Divergence | None:
    """Numbers of floats that keep their tolerance; relative ones where the true value is not zero."""
    if not bool(finite.any()):
        return None
    row = _statistics(where, "value", finite, got, true, own, error, torch.where(limit == 0, 1.0, limit))
    relative = (error / true.abs())[finite & (true != 0)]
    return dataclasses.replace(row, max_rel=float(relative.max()) if relative.numel() else 0.0, bad=0)


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
