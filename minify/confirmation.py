"""Which of the regions that may fail does, and what the search for its cause starts from: the region as captured, the one op
of it that fails alone, or the same program in float32 where the rounding of its own half precision hides the failure.
"""

from __future__ import annotations

import contextlib
import dataclasses

from minify import baseline
from minify import case as cases
from minify.attempt import Attempt
from minify.baseline import Baseline
from minify.capture.script import Suspect
from minify.case import Case
from minify.errors import Drift, NoFailure, Unstable
from minify.interesting import refuse_uninteresting
from minify.passes.simplify_dtypes import half_types, in_float32
from minify.reduce import Session, find_alone, worth_a_screen
from minify.runs import clear_attempt
from minify.verdict import Observation, alike


@dataclasses.dataclass(frozen=True)
class Confirmed:
    """A failure known to be real. `session` starts at the region as captured, or in float32; `first` is of that, or of the one op
    of it that fails alone; `searched` queries went into looking for that. `notes` say what else has to be known."""

    suspect: Suspect
    first: Baseline
    session: Session
    searched: int = 0
    notes: tuple[str, ...] = ()


def confirmed_first(this: Attempt, suspects: tuple[Suspect, ...]) -> Confirmed:
    """The first region whose failure workers confirm. Raises NoFailure or Unstable where there is none."""
    reasons: list[NoFailure | Unstable] = []
    for suspect in suspects:
        case = cases.load(suspect.case)
        before = this.oracle.queries
        this.oracle.whole = this.folder.measured_whole(this.request, case, suspect.part)
        try:
            confirmed = _one_op_of(this, suspect, case)
            if confirmed is None:
                confirmed = _all_of(this, suspect, case, this.oracle.queries - before)
        except (NoFailure, Unstable) as reason:
            reasons.append(reason)
            continue
        replays = confirmed.first.case.settings.replays
        case = dataclasses.replace(case, settings=dataclasses.replace(case.settings, replays=replays))
        cases.save(case, this.folder.case_file)
        known = dataclasses.replace(this.request, region=suspect.region, part=suspect.part, sure=suspect.sure)
        this.folder.save_request(known)
        return confirmed
    raise graver(reasons)


def graver(reasons: list[NoFailure | Unstable]) -> NoFailure | Unstable:
    """Of several regions' answers the one to give: a failure that could not be pinned down outweighs none."""
    return next((reason for reason in reasons if isinstance(reason, Unstable)), reasons[0])


def _all_of(this: Attempt, suspect: Suspect, case: Case, searched: int) -> Confirmed:
    """The whole region, confirmed. Raises NoFailure and Unstable."""
    refuse_uninteresting(this.request.interesting, case)
    this.progress.step(f"{suspect}: does it fail alone, in a fresh process?")
    notes: tuple[str, ...] = ()
    try:
        first = baseline.confirm(case, suspect, this.oracle)
    except Drift as drift:
        hidden = _hidden(this, suspect, case)
        if hidden is None:
            raise
        first = hidden
        notes = (
            f"Shown in float32: in its own {' and '.join(half_types(case))} the program's rounding hides it "
            f"({drift.numbers})",
        )
    session = this.session(first.case, first.observation, first.signature)
    return Confirmed(suspect, first, session, searched, notes)


def _hidden(this: Attempt, suspect: Suspect, case: Case) -> Baseline | None:
    """The failure of the same program in float32, where it has one: an error that stays is no rounding. Two per cent of one
    element of a softmax are nothing beside what bfloat16 rounds."""
    wide = in_float32(case) if this.oracle.manner.check == "accuracy" else None
    if wide is None:
        return None
    this.progress.step(f"{suspect}: drift; does the same in float32 diverge, where rounding hides less?")
    this.oracle.whole = this.folder.measured_whole(this.request, wide, suspect.part)  # what a metric is of from here on
    with contextlib.suppress(NoFailure, Unstable):
        return baseline.confirm(wide, dataclasses.replace(suspect, certain=False, sure=None), this.oracle)
    return None


def _one_op_of(this: Attempt, suspect: Suspect, case: Case) -> Confirmed | None:
    """The one op to blame, confirmed by itself, for a region of which an output was surely wrong in the script: two compiles of
    the whole less. None where no op fails alone, in the same way, each time."""
    if this.request.kind != "accuracy" or suspect.sure is None or not worth_a_screen(case):
        return None
    this.progress.step(f"{suspect}: does one of its ops fail alone?")
    oracle, before = this.oracle, this.oracle.queries
    session = this.session(case, Observation(""), suspect.sure)
    if suspect.sure.family == "value" and baseline.computes_in_half(case, [op.meta for op in session.best.graph.ops]):
        return None  # of what rounds in between, only the whole can tell whether rounding is all there is to it
    if not find_alone(session)[0]:
        return None
    searched, patience, effect = oracle.queries - before, oracle.timeout, session.observation.metric
    session.replace_best(oracle.materialise(session.best))
    with contextlib.suppress(NoFailure, Unstable):
        first = baseline.confirm(session.best, suspect, oracle)
        if first.rate == 1 and alike(first.signature, suspect.sure):
            session.signature = first.signature
            first = dataclasses.replace(first, observation=dataclasses.replace(first.observation, metric=effect))
            return Confirmed(suspect, first, session, searched)
    oracle.rate, oracle.timeout = 1.0, patience
    clear_attempt(this.folder)
    return None
