"""Before anything is shrunk: does the captured case fail, the same way, each time, in a fresh process, and is it the
compiler's doing? Drift, ill-conditioned programs and one-off failures end here, with their numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import NoReturn

from minify import store
from minify.capture.script import Suspect
from minify.case import REPLAYS, Case, TensorMeta, tensor_inputs
from minify.errors import Drift, InvalidCandidate, NoFailure, Unstable
from minify.oracle.local import LocalOracle, calibrated
from minify.passes.cut_ops import keep, op_names
from minify.reduce.session import annotated
from minify.tolerance import NOISE
from minify.verdict import Divergence, Measured, Observation, Outcome, Signature, accuracy_signature, classify, matches

RUNS = 2
MORE_RUNS = 8
HALF = ("float16", "bfloat16")


@dataclasses.dataclass(frozen=True)
class Baseline:
    """The confirmed failure: its signature, what the first failing run showed, and how many of the runs failed."""

    case: Case
    observation: Observation
    signature: Signature
    runs: int
    failed: int

    @property
    def rate(self) -> float:
        return self.failed / self.runs


def confirm(case: Case, suspect: Suspect, oracle: LocalOracle) -> Baseline:
    """Run the case until its failure is known to be real. Sets the oracle's timeout and rate.

    Raises NoFailure (eager's own failure), Drift (ill-conditioned as well) and Unstable (not reproduced)."""
    accuracy = oracle.manner.check == "accuracy"
    seen = _answered(oracle.observe_runs(case, range(RUNS), noise=NOISE if accuracy else 0), suspect)
    observation = seen[0]
    if observation.invalid:
        _explain_invalid(observation, suspect, accuracy)
    signature = _signature(observation, accuracy)
    if signature is None:
        if suspect.certain:
            seen = _answered([*seen, *oracle.observe_runs(case, range(RUNS, MORE_RUNS))], suspect)
        found = next((o for o in seen if _signature(o, accuracy)), None)
        if found is None and suspect.certain and suspect.call > 1 and not case.settings.replays:
            return confirm(replayed(case), suspect, oracle)  # what an earlier run left behind, then
        if found is None:
            _explain_absence(seen, suspect, accuracy)
        _refuse_ill_conditioned(seen, observation, accuracy)
        observation, signature = found, _signature(found, accuracy)
    assert signature is not None
    if any(not matches(o, signature) for o in seen) and len(seen) < MORE_RUNS:
        seen = _answered([*seen, *oracle.observe_runs(case, range(len(seen), MORE_RUNS))], suspect)
    failed = sum(matches(o, signature) for o in seen)
    if accuracy and failed == len(seen):  # of a failure that comes and goes one run without it proves nothing
        _refuse_rounding(case, observation, signature, oracle)
        _refuse_other_draws(case, observation, signature, oracle)
    oracle.rate = failed / len(seen)
    if oracle.calibrates and signature.family != "hang":
        oracle.timeout = calibrated(o.seconds for o in seen)
    return Baseline(case, observation, signature, len(seen), failed)


def replayed(case: Case) -> Case:
    """The case run again, after runs with other values."""
    return dataclasses.replace(case, settings=dataclasses.replace(case.settings, replays=REPLAYS))


def _signature(observation: Observation, accuracy: bool) -> Signature | None:
    return accuracy_signature(observation.divergences) if accuracy else observation.crash


def _answered(seen: list[Observation], suspect: Suspect) -> list[Observation]:
    """The runs that a worker lived to tell of. Raises Unstable where none did."""
    told = [observation for observation in seen if not observation.worker_lost]
    if not told:
        why = seen[0].worker_lost
        raise Unstable(f"{suspect} was never answered for: {why}", "fewer --workers need less memory")
    return told


def _explain_invalid(observation: Observation, suspect: Suspect, accuracy: bool) -> NoReturn:
    """Eager's own failure is no compiler bug, unless eager ran in the script or was only too slow here."""
    ran_before = suspect.certain and accuracy
    if observation.invalid.startswith("eager") and not observation.timed_out and not ran_before:
        raise NoFailure(f"eager itself fails: {observation.invalid}", "this is not a compiler bug")
    raise Unstable(
        f"the captured region cannot be replayed outside the script: {observation.invalid}",
        "please report it with the run folder",
    )


def _explain_absence(seen: list[Observation], suspect: Suspect, accuracy: bool) -> NoReturn:
    crash = next((o.crash for o in seen if o.crash), None)
    if accuracy and crash is not None:
        raise NoFailure(f"the compiled program raises instead of diverging: {crash}", "try `minify crash`")
    drift = [row for o in seen for row in o.drift]
    if drift:
        raise Drift("drift, no divergence", "nothing to minify", numbers=drift_text(drift, _measured(seen)))
    if suspect.certain:
        shown = f" ({suspect.signature})" if suspect.signature else ""
        raise Unstable(
            f"{suspect} failed in the script{shown} but not in {len(seen)} fresh processes",
            "its failure needs something of the script's own process",
        )
    if suspect.signature is not None:
        raise Unstable(
            f"the script failed ({suspect.signature}) outside its compiled regions, and {suspect} does not in {len(seen)} "
            "fresh processes",
            "its failure needs something of the script's own process, or is none of the compiler's",
        )
    if accuracy:
        raise NoFailure(f"{suspect} gives the right result in {len(seen)} fresh processes")
    raise NoFailure(
        f"{suspect} runs in {len(seen)} fresh processes", "whether its result is right, `minify accuracy` tells"
    )


def drift_text(rows: list[Divergence], measured: Measured | None = None) -> str:
    """The numbers of results that are out of tolerance but no further off than eager, or than the metric lets pass."""
    worst = max(rows, key=lambda row: row.excess)
    return (
        f"{worst.where} has max abs {worst.max_abs:.3g}, max rel {worst.max_rel:.3g}; "
        f"eager's own error is {worst.eager_abs:.3g}" + (f"; {measured}" if measured else "")
    )


def _measured(seen: list[Observation]) -> Measured | None:
    """The numbers of the run that moves the user's metric most."""
    return max((o.metric for o in seen if o.metric), key=lambda metric: metric.by, default=None)


def _refuse_ill_conditioned(seen: list[Observation], shaken: Observation, accuracy: bool) -> None:
    """A result that diverges, but no further than eager does when its inputs move by one unit in the last place."""
    later = seen[1:]
    if accuracy and shaken.drift and all(o.divergences for o in later):
        raise Drift(
            "ill-conditioned, no divergence",
            "inputs off by one unit in the last place, or results rounded otherwise in between, do as much in eager",
            numbers=drift_text(list(shaken.drift), _measured(seen)),
        )


def computes_in_half(case: Case, metas: Iterable[object]) -> bool:
    """Whether a half type is anywhere in it; `metas` describe its values."""
    known = [*(item.meta for item in tensor_inputs(case)), *metas]
    return bool(case.settings.autocast) or any(isinstance(meta, TensorMeta) and meta.dtype in HALF for meta in known)


def _refuse_rounding(case: Case, observation: Observation, signature: Signature, oracle: LocalOracle) -> None:
    """Wrong values of a half-precision program that vanish when Inductor rounds where eager does are rounding (design §4):
    integers too, since an argmax takes another of two near ties."""
    halves = computes_in_half(case, [meta for _, meta in observation.trace])
    if signature.family != "value" or not halves or case.settings.backend != "inductor":
        return
    key = ("torch._inductor.config", "emulate_precision_casts", True)
    settings = dataclasses.replace(case.settings, config=(*case.settings.config, key))
    seen = oracle.observe(dataclasses.replace(case, settings=settings))
    if seen.phase == "compare" and not seen.crash and classify(seen, signature).observation.divergences == ():
        rows = list(seen.drift) or [Divergence("all outputs", "value")]
        raise Drift(
            "drift, rounding intermediates as eager does (emulate_precision_casts) removes it",
            "nothing to minify",
            numbers=drift_text(rows, seen.metric),
        )


def _refuse_other_draws(case: Case, observation: Observation, signature: Signature, oracle: LocalOracle) -> None:
    """Where several ops draw random numbers, a compiler may take them in another order than eager does (seen on CUDA
    with `fallback_random`). A failure that vanishes once the numbers drawn are given as inputs is no more than that."""
    if len(observation.drew) < 2 or signature.family != "value":
        return
    described = annotated(case, observation)
    base = store.save_base(oracle.manner.store, described)
    try:
        given = keep(described, frozenset(op_names(described)) - set(observation.drew), base, "outputs")
    except InvalidCandidate:
        return
    seen = oracle.observe(given)
    if classify(seen, signature).outcome is Outcome.PASSES:
        names = ", ".join(observation.drew)
        raise NoFailure(f"other random numbers, no divergence: {names} draw in another order", "nothing to minify")
