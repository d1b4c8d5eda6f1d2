"""Oracles and testers that run nothing: the truth is a rule, and every question is counted.

`RuleTester` and `HiddenSet` stand in for the tester of `minify.reduce.search`, `FakeOracle` for `minify.oracle.Oracle`,
`FakeCompiler` for an oracle that can leave parts of a compiler out.
`chain_graph` and `hidden_items` make the worlds that the search is measured in.
"""

from __future__ import annotations

import dataclasses
import hashlib
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from minify.ablation import COMPILED, Ablation, Application, Listing
from minify.case import Case, digest
from minify.errors import Stopped
from minify.verdict import Observation, Outcome, Signature, Verdict, classify

Graph = tuple[tuple[int, ...], ...]


class RuleTester:
    """A tester whose truth is `rule`, a pure function of the kept items.

    `first` computes `width` answers ahead; only consumed questions are counted (`asked`, in order) as against all that
    were `computed`. With `memo`, a question asked again is answered from memory and not counted. After `stop_after`
    questions the next raises `Stopped`. `smallest` is the smallest set seen to fail."""

    def __init__(
        self,
        rule: Callable[[frozenset[int]], bool],
        *,
        width: int = 1,
        memo: bool = False,
        stop_after: int | None = None,
    ) -> None:
        self.fails = rule
        self.width = width
        self.memo = memo
        self.stop_after = stop_after
        self.asked: list[frozenset[int]] = []
        self.computed = 0
        self.smallest: frozenset[int] | None = None
        self._answers: dict[frozenset[int], bool] = {}

    @property
    def queries(self) -> int:
        return len(self.asked)

    def __call__(self, kept: frozenset[int]) -> bool:
        return self._consume(kept, self._compute(kept))

    def first(self, candidates: Sequence[frozenset[int]]) -> int | None:
        ahead: deque[bool] = deque()
        for index, kept in enumerate(candidates):
            for later in candidates[index + len(ahead) : index + self.width]:
                ahead.append(self._compute(later))
            if self._consume(kept, ahead.popleft()):
                return index
        return None

    def _compute(self, kept: frozenset[int]) -> bool:
        assert kept, "the empty set must never be asked"
        if self.memo and kept in self._answers:
            return self._answers[kept]
        self.computed += 1
        return self.fails(kept)

    def _consume(self, kept: frozenset[int], fails: bool) -> bool:
        if not (self.memo and kept in self._answers):
            if self.stop_after is not None and self.queries >= self.stop_after:
                raise Stopped("out of questions")
            self.asked.append(kept)
            self._answers[kept] = fails
        if fails and (self.smallest is None or len(kept) < len(self.smallest)):
            self.smallest = kept
        return fails


class HiddenSet(RuleTester):
    """A tester that fails on every superset of `needed`.

    Unless `monotone`, a superset passes anyway with probability `noise`, decided by its content and `seed`; never so
    `whole`. The other keywords are `RuleTester`'s."""

    def __init__(
        self,
        needed: Iterable[int],
        *,
        monotone: bool = True,
        seed: int = 0,
        noise: float = 0.2,
        whole: frozenset[int] | None = None,
        width: int = 1,
        memo: bool = False,
        stop_after: int | None = None,
    ) -> None:
        self.needed = frozenset(needed)
        chance = content_chance(seed)

        def rule(kept: frozenset[int]) -> bool:
            return self.needed <= kept and (monotone or kept == whole or chance(kept) >= noise)

        super().__init__(rule, width=width, memo=memo, stop_after=stop_after)


def content_chance(seed: int) -> Callable[[frozenset[int]], float]:
    """A function that gives each set a number in [0, 1), by its content alone. Xor makes it quick."""
    marks: dict[int, int] = {}

    def chance(kept: frozenset[int]) -> float:
        mixed = 0
        for item in kept:
            if item not in marks:
                digest_bytes = hashlib.blake2b(f"{seed}:{item}".encode(), digest_size=8).digest()
                marks[item] = int.from_bytes(digest_bytes, "big")
            mixed ^= marks[item]
        return mixed / 2.0**64

    return chance


def chain_graph(count: int, rng: random.Random) -> Graph:
    """Undirected neighbours of `count` items: each reads the one before, three in ten an earlier one too."""
    neighbours: list[set[int]] = [set() for _ in range(count)]
    for item in range(1, count):
        producers = {item - 1}
        if rng.random() < 0.3:
            producers.add(max(0, item - rng.randint(2, 10)))
        for producer in producers:
            neighbours[item].add(producer)
            neighbours[producer].add(item)
    return tuple(tuple(sorted(others)) for others in neighbours)


def hidden_items(graph: Graph, count: int, *, adjacent: bool, rng: random.Random) -> frozenset[int]:
    """`count` items of `graph`: connected ones, or any."""
    if not adjacent:
        return frozenset(rng.sample(range(len(graph)), count))
    chosen = {rng.randrange(len(graph))}
    while len(chosen) < count:
        border = {other for item in chosen for other in graph[item]} - chosen
        chosen.add(rng.choice(sorted(border)))
    return frozenset(chosen)


@dataclasses.dataclass
class FakeOracle:
    """An oracle whose truth is `predicate`: True means FAILS, False PASSES, an `Outcome` is given as it is, and an
    `Observation` is classified as a worker's would be.

    `judge_in_order` answers in order and lazily, computing `width` verdicts ahead. `queries` counts consumed verdicts
    that were not in the cache, `cache_hits` those that were, `computed` all calls of the predicate; `asked` lists the
    cases behind `queries`. With `caching` off every question is a query. After `stop_after` queries the next raises
    `Stopped`."""

    predicate: Callable[[Case], bool | Outcome | Observation]
    width: int = 1
    caching: bool = True
    stop_after: int | None = None
    queries: int = 0
    cache_hits: int = 0
    computed: int = 0
    asked: list[Case] = dataclasses.field(default_factory=list)
    _cache: dict[tuple[str, Signature], Verdict] = dataclasses.field(default_factory=dict)

    def judge(self, case: Case, signature: Signature) -> Verdict:
        return self._consume(case, signature, self._compute(case, signature))

    def glimpse(self, case: Case, signature: Signature) -> Verdict:
        return self.judge(case, signature)

    def judge_in_order(self, cases: Iterable[Case], signature: Signature) -> Iterator[Verdict]:
        source = iter(cases)
        ahead: deque[tuple[Case, Verdict]] = deque()
        while True:
            while len(ahead) < self.width and (case := next(source, None)) is not None:
                ahead.append((case, self._compute(case, signature)))
            if not ahead:
                return
            case, verdict = ahead.popleft()
            yield self._consume(case, signature, verdict)

    def _compute(self, case: Case, signature: Signature) -> Verdict:
        key = (digest(case), signature)
        if self.caching and key in self._cache:
            return self._cache[key]
        self.computed += 1
        return fake_verdict(self.predicate(case), signature)

    def _consume(self, case: Case, signature: Signature, verdict: Verdict) -> Verdict:
        key = (digest(case), signature)
        if self.caching and key in self._cache:
            self.cache_hits += 1
            return dataclasses.replace(self._cache[key], cached=True)
        if self.stop_after is not None and self.queries >= self.stop_after:
            raise Stopped("out of questions")
        self.queries += 1
        self.asked.append(case)
        self._cache[key] = verdict
        return verdict


@dataclasses.dataclass
class FakeCompiler:
    """An oracle of a compiler that has `parts`: the names of each kind's applications, or a text that says why the kind cannot be
    switched. `predicate` is given what is on, as `kind:name`, and answers as that of `FakeOracle` does. `idle` are names of
    applications known to change nothing. A compiler that dies `running` lists nothing but where nothing is run; one that dies
    `compiling` never does. `instead` are names of each kind that it makes use of where some of those are off.

    `asked` are the ablations whose answer was consumed, `computed` how many were answered, `width` how far it looks ahead."""

    parts: dict[str, tuple[str, ...] | str]
    predicate: Callable[[frozenset[str]], bool | Outcome | Observation]
    idle: frozenset[str] = frozenset()
    dies: str = ""
    instead: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    width: int = 1
    queries: int = 0
    computed: int = 0
    asked: list[Ablation] = dataclasses.field(default_factory=list)

    def judge_ablated(self, case: Case, ablations: Iterable[Ablation], signature: Signature) -> Iterator[Verdict]:
        source, ahead = iter(ablations), deque[tuple[Ablation, Verdict]]()
        while True:
            while len(ahead) < self.width and (ablation := next(source, None)) is not None:
                self.computed += 1
                ahead.append((ablation, self._answer(ablation, signature)))
            if not ahead:
                return
            ablation, verdict = ahead.popleft()
            self.queries += 1
            self.asked.append(ablation)
            yield verdict

    def _answer(self, ablation: Ablation, signature: Signature) -> Verdict:
        on = {
            f"{kind}:{name}"
            for kind, names in self.parts.items()
            for name in (names if isinstance(names, tuple) else ())
            if kind != ablation.kind or ablation.keeps(name)
        }
        on |= {f"{ablation.kind}:{name}" for name in self.instead.get(ablation.kind, ()) if ablation.keeps(name)}
        answer = Outcome.SLIPPED if ablation == COMPILED else self.predicate(frozenset(on))
        verdict = fake_verdict(answer, signature)
        lacking = () if ablation.lists_all else self.parts.get(ablation.kind, "nothing is known of it")
        if isinstance(lacking, str):
            verdict = classify(Observation("load", invalid=f"not available here: {lacking}"), signature)
        mute = self.dies and (ablation != COMPILED or self.dies == "compiling")
        listed = () if mute else tuple(self._listing(kind) for kind in self.parts)
        return dataclasses.replace(verdict, observation=dataclasses.replace(verdict.observation, applications=listed))

    def _listing(self, kind: str) -> Listing:
        names = self.parts[kind]
        if isinstance(names, str):
            return Listing(kind, missing=names)
        return Listing(kind, tuple(Application(name, f"about {name}", name in self.idle) for name in names))


def fake_verdict(answer: bool | Outcome | Observation, wanted: Signature) -> Verdict:
    """The verdict that an answer stands for; a slipped case shows some other failure."""
    if isinstance(answer, Observation):
        return classify(answer, wanted)
    if isinstance(answer, bool):
        answer = Outcome.FAILS if answer else Outcome.PASSES
    other = Signature("crash", "exception", f"Not{wanted.name}")
    seen = {Outcome.FAILS: wanted, Outcome.SLIPPED: other}.get(answer)
    invalid = "the predicate says so" if answer is Outcome.INVALID else ""
    return Verdict(answer, Observation(phase="done", invalid=invalid), seen)
