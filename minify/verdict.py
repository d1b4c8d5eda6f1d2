"""What a worker saw (`Observation`), what identifies a failure (`Signature`), and the oracle's answer (`Verdict`).

`classify` is the one place where an observation becomes an outcome. Pure data: no torch, no processes.
"""

from __future__ import annotations

import dataclasses
import enum
import math

from minify.ablation import Ablation, Listing
from minify.case import Case
from minify.graph import ValueMeta


class Outcome(enum.Enum):
    """The oracle's answer. FAILS: the same failure shows. PASSES: the compiler is right. SLIPPED: it fails otherwise."""

    FAILS = "fails"
    PASSES = "passes"
    SLIPPED = "slipped"
    INVALID = "invalid"
    TIMED_OUT = "timed out"
    BROKEN_WORKER = "broken worker"


VALUE_KINDS = ("nonfinite", "value", "integer", "mutation")
# How much of the original's error, in units of what rounding costs eager, a candidate's has to keep, or it has slipped into
# rounding (decision 21). Of an original that is far off no more is asked than tells a fault from rounding: a threshold further
# down can make a large error of a small one.
RATIO_KEPT = 0.2
FAR_OFF = 100.0
METADATA_KINDS = ("dtype", "shape", "aliasing", "structure", "stride")
# How much of the error that moved a metric, in units of the tolerance, an error has to keep once the metric cannot be asked any
# more (decision 28).
EXCESS_KEPT = 0.2
SHOWN = 4  # numbers of a metric
METRIC_FACTOR = 2.0  # as for one element: eager's own error, twice over, explains an error
# How torch, Triton and the driver tell of a CUDA context that is past use. Such an error is reported where the GPU is next
# waited for, which may be in another candidate than the one that caused it.
POISON = ("CUDA error", "CUDA driver error", "Triton Error [CUDA]", "an illegal memory access", "device-side assert")


@dataclasses.dataclass(frozen=True, slots=True)
class Divergence:
    """One result that departs from what it should be.

    `where` names it: `output:<name>`, `grad:<input>` or `input:<name>` (its content after the run). `kind` is one of
    `value` (floats out of tolerance), `nonfinite` (NaN or inf in one of the two), `integer`, `dtype`, `shape`, `stride`,
    `aliasing`, `structure`. `max_abs`, `max_rel` compare compiled with the reference; `eager_abs` is eager's own error;
    `excess` is the worst error in units of the tolerance, `ratio` the same in units of the most that rounding costs eager."""

    where: str
    kind: str
    max_abs: float = 0.0
    max_rel: float = 0.0
    eager_abs: float = 0.0
    excess: float = 0.0
    ratio: float = 0.0
    bad: int = 0
    total: int = 0
    index: tuple[int, ...] = ()
    expected: str = ""
    observed: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """What the user's metric makes of the compiled, the eager and the reference results, a number for each that it returns;
    `spread` is how far eager's moves when its inputs do by one unit in the last place."""

    compiled: tuple[float, ...]
    eager: tuple[float, ...]
    reference: tuple[float, ...]
    spread: tuple[float, ...]
    tolerance: float = 0.0

    @property
    def by(self) -> float:
        """How far the compiled result moves the metric; infinite where it is no finite number any more."""
        steps = [abs(ours - true) for ours, true in zip(self.compiled, self.reference, strict=True)]
        return max((step if math.isfinite(step) else math.inf for step in steps), default=0.0)

    @property
    def moved(self) -> bool:
        """Whether that is over the tolerance, and more than eager's own distance from the reference, or rounding, explains."""
        rows = zip(self.compiled, self.eager, self.reference, self.spread, strict=True)
        return any(
            not math.isfinite(ours)
            or abs(ours - true) > max(self.tolerance, METRIC_FACTOR * max(abs(near - true), spread))
            for ours, near, true, spread in rows
        )

    def __str__(self) -> str:
        shown = [
            f"{', '.join(f'{number:.6g}' for number in row[:SHOWN])}{', ...' if len(row) > SHOWN else ''} {whose}"
            for row, whose in (
                (self.compiled, "compiled"),
                (self.eager, "in eager"),
                (self.reference, "by the reference"),
            )
        ]
        verdict = "moves" if self.moved else "lets it pass"
        return f"the metric {verdict} ({', '.join(shown)}, tolerance {self.tolerance:g})"


@dataclasses.dataclass(frozen=True, slots=True)
class Signature:
    """The identity of a failure.

    Accuracy: `kind="accuracy"`, `family` is `value` or `metadata`, `name` the leading divergence kind. With `least`, it is a float
    off by at least so many times its tolerance, and nothing else. A float whose `ratio` is less than that of the signature does
    not count; this is a bound, and no part of the identity.
    Crash: `kind="crash"`, `family` is `exception`, `signal` or `hang`; `name` the exception type or signal, `frame` the
    innermost compiler frame (`file.py:function`), `message` with numbers, names and paths stripped."""

    kind: str
    family: str
    name: str = ""
    frame: str = ""
    message: str = ""
    least: float = 0.0
    ratio: float = dataclasses.field(default=0.0, compare=False)

    def __str__(self) -> str:
        where = f" in {self.frame}" if self.frame else ""
        return (
            f"{self.family} {self.name}{where}: {self.message}" if self.message else f"{self.family} {self.name}{where}"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class GraphSeen:
    """An ATen graph that Inductor compiled, the `forward` or the `backward`, beside the same one interpreted on the same inputs.

    `wrong` is the first of its own outputs that differs, None for a graph that is right. `node` is the first node that does where
    every value is returned as well, a call of `call` in the line `source` of the program, with its `numbers`; `why` says why there
    is none."""

    part: str
    wrong: Divergence | None = None
    node: str = ""
    call: str = ""
    source: str = ""
    numbers: Divergence | None = None
    why: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Observation:
    """What one run of one case in one worker showed. No opinion yet on whether it is the failure that was asked for.

    `phase` is how far it got: `load`, `eager`, `reference`, `compile`, `run`, `done`. `invalid` says why the case is no
    case (eager itself fails). `crash` is set when the compiler or the compiled program raised, died or hung.
    `drift` lists results out of tolerance that eager's own error explains, or that the user's metric lets pass: `metric` has its
    numbers where it was asked. `within` is the worst of those that keep their tolerance (`bad` 0). `trace` describes every op's
    value, `drew` names the ops that drew random numbers. `frames` are torch's own of an exception, innermost last, as
    `torch/_inductor/graph.py:run_node`. `applications` are those of the compiler that could be left out, where the question asks
    for them; there are none where the process died. `graphs` answer the question `graphs`."""

    phase: str
    invalid: str = ""
    crash: Signature | None = None
    crash_text: str = ""
    divergences: tuple[Divergence, ...] = ()
    drift: tuple[Divergence, ...] = ()
    notes: tuple[str, ...] = ()
    trace: tuple[tuple[str, ValueMeta], ...] = ()
    random: bool = False
    seconds: float = 0.0
    timed_out: bool = False
    worker_lost: str = ""
    drew: tuple[str, ...] = ()
    within: Divergence | None = None
    frames: tuple[str, ...] = ()
    metric: Measured | None = None
    applications: tuple[Listing, ...] = ()
    graphs: tuple[GraphSeen, ...] = ()

    @property
    def retire_worker(self) -> bool:
        """Whether the process that saw this can see no more: a CUDA error poisons its context."""
        return any(sign in text for sign in POISON for text in (self.crash_text, self.invalid))


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """The oracle's answer for one case: an outcome, the signature seen (if any) and the observation behind it."""

    outcome: Outcome
    observation: Observation
    signature: Signature | None = None
    cached: bool = False

    @property
    def fails(self) -> bool:
        return self.outcome is Outcome.FAILS

    def answers(self, wanted: Signature) -> bool:
        """Whether it says anything of the case: a worker lived to tell, and time did not run out before the compiler had its
        turn. A program that hangs in eager is no hang of the compiler's, which is answer enough where one is looked for."""
        late = self.observation.timed_out and self.outcome is Outcome.INVALID and wanted.family != "hang"
        return self.outcome is not Outcome.BROKEN_WORKER and not late


def accuracy_signature(divergences: tuple[Divergence, ...]) -> Signature | None:
    """The failure that a set of divergences amounts to, the gravest kind first; None where there is none."""
    kinds = {divergence.kind for divergence in divergences}
    for family, members in (("value", VALUE_KINDS), ("metadata", METADATA_KINDS)):
        for member in members:
            if member in kinds:
                return Signature(
                    "accuracy", family, member, ratio=_least_ratio(divergences) if family == "value" else 0.0
                )
    return None


def _least_ratio(divergences: tuple[Divergence, ...]) -> float:
    """What a wrong float of the same failure has to show at least; NaN and integers have no ratio, and count as far off."""
    floats = [row.ratio for row in divergences if row.kind == "value"]
    return RATIO_KEPT * min(max(floats, default=FAR_OFF), FAR_OFF)


def alike(one: Signature, other: Signature) -> bool:
    """Whether two accuracy signatures may be of one failure. A float may be wrong for a NaN further up; that an integer is wrong
    somewhere says nothing of it."""
    floats = ("value", "nonfinite")
    return one.family == other.family and (one.name == other.name or (one.name in floats and other.name in floats))


def counted(rows: tuple[Divergence, ...], wanted: Signature) -> tuple[Divergence, ...]:
    """The rows that may be of the failure `wanted`."""
    kinds = VALUE_KINDS if wanted.family == "value" else (wanted.name,)
    if wanted.least:
        return tuple(row for row in rows if row.kind == "value" and row.excess >= wanted.least)
    return tuple(row for row in rows if row.kind in kinds)


def loudness(rows: tuple[Divergence, ...]) -> float:
    """The least that a float must be off by to be as wrong as those of `rows`, in units of its tolerance; 0 for no such bound."""
    loudest = max((row.excess for row in rows if row.kind == "value" and math.isfinite(row.excess)), default=0.0)
    least = float(f"{EXCESS_KEPT * loudest:.1g}")
    return least if least > 1 else 0.0


def matches(observation: Observation, wanted: Signature) -> bool:
    """Whether `observation` shows the failure `wanted`. Wrong values stay wrong values whatever their type, since the
    float that an op gets wrong is often the work of an integer or a NaN further up, but a float that is hardly off is drift;
    metadata must match in kind."""
    if wanted.kind == "crash":
        return observation.crash == wanted
    rows = counted(observation.divergences, wanted)
    return any(row.kind != "value" or row.ratio >= wanted.ratio for row in rows)


def classify(observation: Observation, wanted: Signature) -> Verdict:
    """Turn what was seen into an outcome. A failure of another kind is SLIPPED, never a pass and never accepted."""
    if observation.worker_lost:
        return Verdict(Outcome.BROKEN_WORKER, observation)
    if observation.invalid:
        return Verdict(Outcome.INVALID, observation)
    if observation.timed_out and not (observation.crash and matches(observation, wanted)):
        return Verdict(Outcome.TIMED_OUT, observation, observation.crash)
    if matches(observation, wanted):
        return Verdict(Outcome.FAILS, observation, wanted)
    loud = tuple(row for row in observation.divergences if row.kind != "value" or row.excess >= wanted.least)
    seen = observation.crash or accuracy_signature(loud)
    return Verdict(Outcome.SLIPPED if seen else Outcome.PASSES, observation, seen)


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """What a worker is asked. `action` is `judge` (answer: Observation), `patch` (the same of the program `inside` run eagerly,
    with what `case` gives once compiled in place of the results of its ops), `graphs` (answer: Observation with the ATen graphs that
    Inductor compiles of it, judged one by one), `materialise` (answer: the case with every derived value recorded), `trace`
    (answer: Observation of the eager run alone), `sizes` (answer: Sizes, None where they cannot be had), `kernel` (answer: Finding,
    of the first kernel that writes something wrong) or `warm` (answer: the question, once everything is imported). `check` is
    `accuracy` or `crash`; `noise` the number of eager runs on shaken inputs that a divergence has to outdo; `reference` is `auto`,
    `fp32`, `fp64` or `none`; `store` the folder of recorded values. `metric` names the user's function ("" for none) and `whole` the
    saved case whose outputs it is of. What `ablation` says is left out of the compiler. `artifacts` is the folder that the compile's
    artifacts are written to, "" for none."""

    action: str
    case: Case
    check: str
    store: str
    rtol: float | None = None
    atol: float | None = None
    reference: str = "auto"
    noise: int = 0
    metric: str = ""
    metric_tol: float = 0.0
    whole: str = ""
    inside: Case | None = None
    ablation: Ablation | None = None
    artifacts: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerError:
    """A worker's answer when our own code raised, not the case's."""

    text: str
