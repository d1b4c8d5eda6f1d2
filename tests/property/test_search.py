"""Whatever hides in the program, the search finds a 1-minimal failing set, soundly, repeatably and in few questions."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minify.errors import Stopped
from minify.reduce.search import SUSPECTS_TRIED_ALONE, localise, sweep_sites
from tests.fake_oracle import Graph, HiddenSet, RuleTester, chain_graph, content_chance, hidden_items

SIZES = (50, 500)
COUNTS = (1, 2, 5)


def world(size: int, count: int, *, adjacent: bool, seed: int) -> tuple[Graph, frozenset[int]]:
    rng = random.Random(seed)
    graph = chain_graph(size, rng)
    return graph, hidden_items(graph, count, adjacent=adjacent, rng=rng)


def search(graph: Graph, tester: RuleTester, suspects: Sequence[int] = ()) -> tuple[int, ...]:
    return localise(range(len(graph)), tester, neighbours=graph.__getitem__, suspects=suspects)


def assert_found_properly(kept: Sequence[int], tester: RuleTester, size: int) -> None:
    """What the search promises of any tester: confirmed, in order, 1-minimal, no question twice, none silly."""
    everything = frozenset(range(size))
    assert list(kept) == sorted(set(kept))
    assert frozenset(kept) == everything or (frozenset(kept) in tester.asked and tester.fails(frozenset(kept)))
    if len(kept) > 1:
        assert not [item for item in kept if tester.fails(frozenset(kept) - {item})]
    assert len(tester.asked) == len(set(tester.asked))
    assert frozenset() not in tester.asked and everything not in tester.asked


hidden_worlds = st.builds(
    lambda size, count, adjacent, seed: (*world(size, count, adjacent=adjacent, seed=seed), seed),
    st.sampled_from(SIZES),
    st.sampled_from(COUNTS),
    st.booleans(),
    st.integers(0, 2**20),
)


@given(hidden_worlds)
@settings(max_examples=300, deadline=None)
def test_a_monotone_failure_is_reduced_to_exactly_what_is_needed(made: tuple[Graph, frozenset[int], int]) -> None:
    graph, needed, _ = made
    tester = HiddenSet(needed)
    kept = search(graph, tester)
    assert frozenset(kept) == needed
    assert_found_properly(kept, tester, len(graph))


@given(hidden_worlds, st.sampled_from((0.05, 0.2, 0.5)))
@settings(max_examples=300, deadline=None)
def test_a_failure_that_comes_and_goes_still_gives_a_failing_one_minimal_set(
    made: tuple[Graph, frozenset[int], int], noise: float
) -> None:
    graph, needed, seed = made
    tester = HiddenSet(needed, monotone=False, seed=seed, noise=noise, whole=frozenset(range(len(graph))))
    kept = search(graph, tester)
    assert needed <= frozenset(kept)
    assert_found_properly(kept, tester, len(graph))


@given(st.integers(1, 40), st.integers(0, 2**20), st.floats(0, 1))
@settings(max_examples=400, deadline=None)
def test_a_tester_without_rhyme_or_reason_still_gives_a_failing_one_minimal_set(
    size: int, seed: int, share: float
) -> None:
    graph = chain_graph(size, random.Random(seed))
    chance = content_chance(seed)
    tester = RuleTester(lambda kept: len(kept) == size or chance(kept) < share)
    assert_found_properly(search(graph, tester), tester, size)


@pytest.mark.parametrize("monotone", [True, False])
@pytest.mark.parametrize("adjacent", [True, False])
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("size", SIZES)
def test_lookahead_and_memory_change_neither_the_result_nor_the_questions(
    size: int, count: int, adjacent: bool, monotone: bool
) -> None:
    for seed in range(4):
        graph, needed = world(size, count, adjacent=adjacent, seed=seed)
        seen = []
        for width, memo in ((1, False), (1, False), (1, True), (8, False), (8, True)):
            tester = HiddenSet(needed, monotone=monotone, seed=seed, width=width, memo=memo)
            seen.append((search(graph, tester), tester.asked))
            assert tester.computed >= tester.queries
        assert all(other == seen[0] for other in seen)


@pytest.mark.parametrize("adjacent", [True, False])
@pytest.mark.parametrize("count", COUNTS)
def test_noise_leaves_few_superfluous_items(count: int, adjacent: bool) -> None:
    kept = []
    for seed in range(20):
        graph, needed = world(500, count, adjacent=adjacent, seed=seed)
        kept.append(len(search(graph, HiddenSet(needed, monotone=False, seed=seed))))
    assert statistics.mean(kept) <= count + 1


def mean_queries(size: int, count: int, *, adjacent: bool, worlds: int) -> float:
    queries = []
    for seed in range(worlds):
        graph, needed = world(size, count, adjacent=adjacent, seed=seed)
        tester = HiddenSet(needed)
        assert frozenset(search(graph, tester)) == needed
        queries.append(tester.queries)
    return statistics.mean(queries)


@pytest.mark.parametrize(
    ("count", "adjacent", "simulated"),
    [(1, True, 10), (2, True, 13), (5, True, 29), (5, False, 60)],
    ids=["one", "two adjacent", "five adjacent", "five far apart"],
)
def test_five_hundred_items_take_no_more_questions_than_the_design_says(
    count: int, adjacent: bool, simulated: int
) -> None:
    assert mean_queries(500, count, adjacent=adjacent, worlds=40) <= 1.05 * simulated


@pytest.mark.parametrize(
    ("count", "adjacent", "simulated"),
    [(1, True, 13), (2, True, 16), (5, True, 31), (5, False, 85)],
    ids=["one", "two adjacent", "five adjacent", "five far apart"],
)
def test_five_thousand_items_take_no_more_questions_than_the_design_says(
    count: int, adjacent: bool, simulated: int
) -> None:
    assert mean_queries(5000, count, adjacent=adjacent, worlds=6) <= 1.05 * simulated


def test_two_items_far_apart_take_one_bisection_each_and_little_more() -> None:
    assert mean_queries(500, 2, adjacent=False, worlds=40) <= 26


def test_twenty_items_far_apart_take_less_than_a_bisection_each() -> None:
    assert mean_queries(500, 20, adjacent=False, worlds=20) <= 185


def test_a_single_culprit_is_found_in_log_n_queries() -> None:
    for needed in (0, 1, 249, 498, 499):
        graph = chain_graph(500, random.Random(0))
        tester = HiddenSet({needed})
        assert search(graph, tester) == (needed,)
        assert tester.queries <= 10


def test_a_failure_that_needs_every_item_takes_about_two_questions_an_item() -> None:
    tester = HiddenSet(range(200))
    assert search(chain_graph(200, random.Random(0)), tester) == tuple(range(200))
    assert tester.queries <= 500


def test_one_item_is_returned_without_a_question() -> None:
    tester = HiddenSet({0})
    assert search(chain_graph(1, random.Random(0)), tester) == (0,)
    assert localise((), tester, neighbours=lambda _: ()) == ()
    assert tester.queries == 0


def test_items_and_neighbours_may_be_anything_hashable_in_any_order() -> None:
    names = [f"op{number}" for number in range(60)]
    number_of = {name: number for number, name in enumerate(names)}
    needed = HiddenSet({17, 19, 41})

    class ByName:
        def __call__(self, kept: frozenset[str]) -> bool:
            return needed(frozenset(number_of[name] for name in kept))

        def first(self, candidates: Sequence[frozenset[str]]) -> int | None:
            return next((index for index, kept in enumerate(candidates) if self(kept)), None)

    def neighbours(name: str) -> set[str]:
        return {"a placeholder", *names[max(0, number_of[name] - 1) : number_of[name] + 2]}

    assert localise(names, ByName(), neighbours=neighbours) == ("op17", "op19", "op41")


def test_a_right_suspect_takes_one_question() -> None:
    graph, needed = world(500, 1, adjacent=True, seed=3)
    (culprit,) = needed
    tester = HiddenSet(needed)
    assert search(graph, tester, suspects=[culprit, (culprit + 9) % 500]) == (culprit,)
    assert tester.queries == 1


def test_suspects_that_only_fail_together_are_searched_first() -> None:
    needed = frozenset({20, 300, 480})
    tester = HiddenSet(needed)
    suspects = [300, 20, 100, 480]
    assert frozenset(search(chain_graph(500, random.Random(1)), tester, suspects=suspects)) == needed
    assert all(kept <= frozenset(suspects) for kept in tester.asked)
    assert tester.queries <= 15


def test_many_suspects_are_not_all_tried_alone() -> None:
    tester = HiddenSet({150})
    suspects = [*range(200), *range(100), -1]
    assert search(chain_graph(500, random.Random(1)), tester, suspects=suspects) == (150,)
    assert tester.queries <= SUSPECTS_TRIED_ALONE + 10


@given(hidden_worlds, st.lists(st.integers(-3, 600), max_size=12), st.booleans())
@settings(max_examples=120, deadline=None)
def test_wrong_suspects_cost_little_and_spoil_nothing(
    made: tuple[Graph, frozenset[int], int], suspects: list[int], monotone: bool
) -> None:
    graph, needed, seed = made
    whole = frozenset(range(len(graph)))
    plain, hinted = (HiddenSet(needed, monotone=monotone, seed=seed, whole=whole) for _ in range(2))
    search(graph, plain)
    assert_found_properly(search(graph, hinted, suspects), hinted, len(graph))
    if monotone:
        assert hinted.queries <= plain.queries + SUSPECTS_TRIED_ALONE + 1


@given(hidden_worlds, st.integers(0, 60))
@settings(max_examples=120, deadline=None)
def test_a_stopped_search_leaves_the_best_set_with_the_tester(
    made: tuple[Graph, frozenset[int], int], stop_after: int
) -> None:
    graph, needed, _ = made
    tester = HiddenSet(needed, stop_after=stop_after)
    try:
        kept = frozenset(search(graph, tester))
    except Stopped:
        assert tester.queries == stop_after
        assert tester.smallest is None or needed <= tester.smallest
    else:
        assert tester.smallest == kept == needed


def apply_all_but(refused: frozenset[int]) -> Callable[[frozenset[int]], bool]:
    return refused.isdisjoint


@given(st.integers(0, 60), st.data())
@settings(max_examples=200, deadline=None)
def test_every_site_that_can_be_applied_is_applied(count: int, data: st.DataObject) -> None:
    refused = data.draw(st.frozensets(st.integers(0, max(0, count - 1)), max_size=count))
    tester = RuleTester(apply_all_but(refused))
    assert sweep_sites(range(count), tester) == tuple(site for site in range(count) if site not in refused)
    assert len(tester.asked) == len(set(tester.asked))
    assert tester.queries <= 3 * count


@given(st.integers(0, 40), st.integers(0, 2**20), st.floats(0, 1), st.sampled_from((1, 8)))
@settings(max_examples=200, deadline=None)
def test_sites_that_interact_at_random_are_applied_only_as_confirmed(
    count: int, seed: int, share: float, width: int
) -> None:
    chance = content_chance(seed)
    tester = RuleTester(lambda applied: chance(applied) < share, width=width)
    applied = sweep_sites(range(count), tester)
    if applied:
        assert frozenset(applied) in tester.asked and tester.fails(frozenset(applied))
    else:
        assert all(frozenset({site}) in tester.asked for site in range(count))
    assert len(tester.asked) == len(set(tester.asked))
    assert applied == sweep_sites(range(count), RuleTester(tester.fails))


@pytest.mark.parametrize(("refused", "most"), [(0, 1), (1, 18), (10, 80), (100, 108)])
def test_sweeping_a_hundred_sites_takes_few_questions_when_most_succeed(refused: int, most: int) -> None:
    for seed in range(10):
        bad = frozenset(random.Random(seed).sample(range(100), refused))
        tester = RuleTester(apply_all_but(bad))
        assert len(sweep_sites(range(100), tester)) == 100 - refused
        assert tester.queries <= most
