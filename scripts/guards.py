"""GUARDS: what `minify` keeps of a case until the oracle has said that it need not, and what a naive reducer does instead.

A row is data: which decisive facts the guard keeps, in parts of the words that `report.json` tells them in, and what happens
without it. Either each candidate is rewritten as such a reducer would rewrite it, or its oracle believes more. Pure: runs
nothing. None of them is made up: PyTorch's own minifier returns one result, makes dynamic dims static, draws values anew where
its checkpoint is not at hand, unshares the memory of inputs, forgets switches and the grad mode, reseeds not every draw, and
takes any error for the one asked for.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from minify.case import Case, Derived, Input, Recipe, ScalarInput, op_refs, size, tensor_inputs
from minify.errors import InvalidCandidate
from minify.graph import refs
from minify.oracle import Oracle
from minify.passes import Pass
from minify.passes.drop_outputs import DROP_OUTPUTS
from minify.passes.shrink_dims import SHRINK_DIMS
from minify.passes.simplify_dtypes import converted
from minify.passes.simplify_layouts import SIMPLIFY_LAYOUTS
from minify.passes.simplify_settings import SIMPLIFY_SETTINGS
from minify.passes.simplify_values import storage_groups
from minify.verdict import Outcome, Signature, Verdict
from scripts.corpus_judge import Expected

MOST_ROUNDS = 8  # one edit opens the way for another, as memory of its own does for a plain layout

Rewrite = Callable[[Case], Case]


def as_it_is(case: Case) -> Case:
    return case


def fails(verdict: Verdict) -> bool:
    return verdict.fails


@dataclass(frozen=True)
class Guard:
    """`naive` says what a reducer without the guard does. `facts` are parts of the lines that tell of a decisive fact which the
    guard keeps. `rewrite` is made of every candidate before it is judged, and of what is written; it never raises.
    `accepts` says which verdicts count as the failure."""

    name: str
    naive: str
    facts: tuple[str, ...] = ()
    rewrite: Rewrite = as_it_is
    accepts: Callable[[Verdict], bool] = fails

    @property
    def rewrites(self) -> bool:
        return self.rewrite is not as_it_is

    def keeps(self, fact: str) -> bool:
        return any(part in fact for part in self.facts)


# --- what is made of a candidate ----------------------------------------------------------------------------------------


def unasked(edit: Pass, *kinds: str) -> Rewrite:
    """What a pass would make of a case if none of its edits of these kinds were put to the oracle."""

    def rewrite(case: Case) -> Case:
        for _ in range(MOST_ROUNDS):
            sites = tuple(site for site in edit.find(case) if site[0] in kinds)
            if not sites:
                break
            case = edit.rewrite(case, sites)
        return case

    return rewrite


def with_random_values(case: Case) -> Case:
    """Floats drawn from a normal distribution and zeros for everything else, as `torch._dynamo.testing.rand_strided` has it."""
    rules = {
        item.name: Recipe("randn" if members[0].meta.dtype.startswith(("float", "bfloat")) else "zeros")
        for members in storage_groups(case).values()
        for item in members
    }
    return _with_inputs(case, lambda item: dataclasses.replace(item, value=rules.get(item.name, item.value)))


def with_float32(case: Case) -> Case:
    """Every input as float32, but for those that lie in one storage with another."""
    alone = {members[0].name for members in storage_groups(case).values() if len(members) == 1}
    return _with_inputs(
        case, lambda item: converted(item, "float32") if item.name in alone and item.meta.dtype != "float32" else item
    )


def with_small_dims(case: Case) -> Case:
    """The boldest that the pass for dims has to offer, for as long as that makes the case smaller."""
    with contextlib.suppress(InvalidCandidate):
        while sites := SHRINK_DIMS.find(case):
            smaller = SHRINK_DIMS.rewrite(case, sites[:1])
            if size(smaller) >= size(case):
                break
            case = smaller
    return case


def with_sinks_only(case: Case) -> Case:
    """Only what no op reads is returned."""
    read = {name for op in case.graph.ops for name in op_refs(op)}
    return _returning(case, [place for place, out in enumerate(case.graph.outputs) if not read.intersection(refs(out))])


def with_one_output(case: Case) -> Case:
    """Only the last result is returned, and what it does not need is dead."""
    return _returning(case, [len(case.graph.outputs) - 1])


def _returning(case: Case, places: list[int]) -> Case:
    dropped = tuple(site for site in DROP_OUTPUTS.find(case) if site[0] not in places)
    try:
        return DROP_OUTPUTS.rewrite(case, dropped) if dropped else case
    except InvalidCandidate:  # nothing would be left to see
        return case


def _with_inputs(case: Case, change: Callable[[Input], Input]) -> Case:
    def changed(item: Input | ScalarInput) -> Input | ScalarInput:
        return change(item) if isinstance(item, Input) else item

    return dataclasses.replace(case, inputs=tuple(map(changed, case.inputs)))


# --- what counts as the failure -----------------------------------------------------------------------------------------


def any_exception(verdict: Verdict) -> bool:
    """Whether anything was raised at all, by eager too."""
    return verdict.fails or verdict.observation.crash is not None or verdict.outcome is Outcome.INVALID


def any_draw(verdict: Verdict) -> bool:
    """What differs from itself where two runs draw different numbers: whatever draws any."""
    return verdict.fails or (verdict.outcome is Outcome.PASSES and verdict.observation.random)


GUARDS: tuple[Guard, ...] = (
    Guard(
        "order of dims in memory",
        "every input is made row-major",
        ("is a transpose", "is channels-last", "dims in another order"),
        unasked(SIMPLIFY_LAYOUTS, "row-major"),
    ),
    Guard(
        "stride 0 and gaps",
        "every input is made dense",
        ("is expanded", "has gaps"),
        unasked(SIMPLIFY_LAYOUTS, "dense"),
    ),
    Guard(
        "storage offset",
        "every input starts its storage",
        ("into its storage",),
        unasked(SIMPLIFY_LAYOUTS, "no offset"),
    ),
    Guard(
        "shared memory",
        "every input gets memory of its own",
        ("lies in the memory of",),
        unasked(SIMPLIFY_LAYOUTS, "unshared"),
    ),
    Guard(
        "recorded values",
        "floats are drawn anew, all else is zeros",
        ("holds these very values", "is filled with", "is all "),
        with_random_values,
    ),
    Guard("dtypes", "every input is float32", (" beside ", ": float16", ": bfloat16", ": int"), with_float32),
    Guard("sizes", "every dim is cut as far as it goes", ("size ",), with_small_dims),
    Guard(
        "dynamic dims",
        "every dim and number is static",
        ("has dynamic dims", "may keep symbolic", "dynamic="),
        unasked(SIMPLIFY_SETTINGS, "dynamic_dims", "literal", "dynamic"),
    ),
    Guard(
        "gradients",
        "no input requires grad",
        ("requires grad", "the backward pass"),
        unasked(SIMPLIFY_SETTINGS, "requires_grad", "grad_mode", "backward"),
    ),
    Guard(
        "settings",
        "modes, options, configs and switches are the defaults",
        ("the option ", "the switch ", "the config ", "mode=", "autocast"),
        unasked(SIMPLIFY_SETTINGS, "mode", "options", "config", "switch", "autocast"),
    ),
    Guard("readers that are cut off", "only what no op reads is returned", ("is returned as well",), with_sinks_only),
    Guard("outputs", "one result is returned, the last", ("is returned as well",), with_one_output),
    Guard("the same exception", "any exception counts, eager's own too", accepts=any_exception),
    Guard(
        "reseeding", "generators are not reseeded between two runs", ("which draws random numbers",), accepts=any_draw
    ),
)
# The identity of a crash is no property of a case that a line tells of: tried where something else may be raised.
ALSO = (
    ("backend_option", "the same exception"),
    ("odd_threshold_backend", "the same exception"),
)


def guards_of(expected: Expected) -> tuple[Guard, ...]:
    """The guards that keep a decisive fact of the case, and those that are tried on it as well."""
    also = {guard for name, guard in ALSO if name == expected.name}
    return tuple(guard for guard in GUARDS if guard.name in also or any(guard.keeps(fact) for fact in expected.facts))


# --- the oracle of a naive reducer ---------------------------------------------------------------------------------------


class NaiveOracle:
    """Implements `Oracle`: another one that is asked of each case as a reducer without `guard` would have it.

    `record(case)` returns a case with its derived values recorded, since a value has to be there to be laid out anew."""

    def __init__(self, oracle: Oracle, guard: Guard, record: Callable[[Case], Case]) -> None:
        self._oracle = oracle
        self._guard = guard
        self._record = record

    @property
    def queries(self) -> int:
        return self._oracle.queries

    @property
    def cache_hits(self) -> int:
        return self._oracle.cache_hits

    def judge(self, case: Case, signature: Signature) -> Verdict:
        return next(iter(self.judge_in_order([case], signature)))

    def glimpse(self, case: Case, signature: Signature) -> Verdict:
        return self._believed(self._oracle.glimpse(self.naive(case), signature), signature)

    def judge_in_order(self, cases: Iterable[Case], signature: Signature) -> Iterator[Verdict]:
        verdicts = self._oracle.judge_in_order(map(self.naive, cases), signature)
        for verdict in verdicts:
            yield self._believed(verdict, signature)

    def naive(self, case: Case) -> Case:
        """`case` as it is judged, and as it is written."""
        if not self._guard.rewrites:
            return case
        return self._guard.rewrite(self._record(case) if is_derived(case) else case)

    def _believed(self, verdict: Verdict, signature: Signature) -> Verdict:
        """What the naive reducer makes of an answer. What values are like was seen of the rewritten case: it is not told."""
        seen = dataclasses.replace(verdict.observation, trace=()) if self._guard.rewrites else verdict.observation
        if self._guard.accepts(verdict):
            return dataclasses.replace(verdict, outcome=Outcome.FAILS, signature=signature, observation=seen)
        return dataclasses.replace(verdict, observation=seen)


def is_derived(case: Case) -> bool:
    return any(isinstance(item.value, Derived) for item in tensor_inputs(case))
