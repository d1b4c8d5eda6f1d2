"""How far a result may lie from the reference: `|out - ref| <= atol + rtol * |ref|`, by dtype. Plain data."""

from __future__ import annotations

import dataclasses

# (rtol, atol): half types as in the mission's sources; fp32 rtol from there, atol as torch.testing.assert_close has it.
_DEFAULTS = {
    "float16": (1e-2, 1e-3),
    "bfloat16": (1e-2, 1e-3),
    "complex32": (1e-2, 1e-3),
    "float32": (1e-5, 1e-5),
    "complex64": (1e-5, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex128": (1e-7, 1e-7),
}
# One unit in the last place of 1.0. No result can be held to less than two of them: rounding it costs up to half of one, and
# the compiled program may well keep in a wider type what eager rounds, or the other way round.
_EPS = {
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "complex32": 2.0**-10,
    "float32": 2.0**-23,
    "complex64": 2.0**-23,
    "float64": 2.0**-52,
    "complex128": 2.0**-52,
}
NOISE = 5  # runs of eager on shaken inputs, which must not explain a float that is said to be wrong


@dataclasses.dataclass(frozen=True, slots=True)
class Tolerance:
    """Bounds of `|out - ref| <= atol + rtol * |ref|`; None takes the default of the output's dtype. `factor` widens both."""

    rtol: float | None = None
    atol: float | None = None
    factor: float = 1.0

    def of(self, dtype: str) -> tuple[float, float]:
        """(rtol, atol) for an output of a dtype, `float32` say; wide ones for a dtype that is not known here. An rtol that is
        asked for counts as no less than two units in the last place, unless the default is less than that."""
        rtol, atol = _DEFAULTS.get(dtype, (1e-2, 1e-2))
        asked = rtol if self.rtol is None else max(self.rtol, min(rtol, 2 * _EPS.get(dtype, 0.0)))
        bounds = asked, atol if self.atol is None else self.atol
        return bounds if self.factor == 1 else (_plain(bounds[0] * self.factor), _plain(bounds[1] * self.factor))


def _plain(number: float) -> float:
    """Without the digits that binary arithmetic adds."""
    return float(f"{number:.6g}")
