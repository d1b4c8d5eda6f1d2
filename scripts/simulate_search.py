"""Print how many questions the search asks in simulated worlds, against the design's figures and QuickXplain.

    python scripts/simulate_search.py [--worlds N]

Figures are means over N seeded worlds, final sweep included. QuickXplain runs in the same ball or prefix as the search
and gets the same sweep. Noisy: the search where one superset in five passes by chance; `kept` is what it then returns.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))

from minify.reduce import search
from tests.fake_oracle import HiddenSet, RuleTester, chain_graph, hidden_items

LINE = "{:>6} {:>16} {:>7} {:>7} {:>5} {:>12} {:>7} {:>6}"
WORLDS = ((1, True), (2, True), (5, True), (2, False), (5, False), (20, False))
DESIGN = {
    (500, 1, True): 10,
    (500, 2, True): 13,
    (500, 5, True): 29,
    (500, 5, False): 60,
    (5000, 1, True): 13,
    (5000, 2, True): 16,
    (5000, 5, True): 31,
    (5000, 5, False): 85,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=100, help="worlds a row for 50 and 500 items; a fifth for 5000")
    worlds = parser.parse_args().worlds
    print(LINE.format("items", "needed", "design", "search", "max", "QuickXplain", "noisy", "kept"))
    for size in (50, 500, 5000):
        for count, adjacent in WORLDS:
            print(row(size, count, adjacent, worlds if size < 5000 else max(1, worlds // 5)), flush=True)
    print(f"\n{'sites':>6} {'refused':>8} {'questions':>10}")
    for size in (10, 100, 1000):
        for refused in sorted({0, 1, size // 10, size // 2, size}):
            print(f"{size:>6} {refused:>8} {site_questions(size, refused, worlds):>10.1f}")


def row(size: int, count: int, adjacent: bool, worlds: int) -> str:
    ours = [simulate(size, count, adjacent, seed) for seed in range(worlds)]
    with mock.patch.object(search, "_culprits", quickxplain_culprits):
        rival = [simulate(size, count, adjacent, seed) for seed in range(worlds)]
    noisy = [simulate(size, count, adjacent, seed, monotone=False) for seed in range(worlds)]
    name = f"{count} {'adjacent' if adjacent else 'far apart'}" if count > 1 else "1"
    means = [f"{statistics.mean(queries for queries, _ in runs):.1f}" for runs in (ours, rival, noisy)]
    most = max(queries for queries, _ in ours)
    kept = f"{statistics.mean(left for _, left in noisy):.2f}"
    design = DESIGN.get((size, count, adjacent), "-")
    return LINE.format(size, name, design, means[0], most, means[1], means[2], kept)


def simulate(size: int, count: int, adjacent: bool, seed: int, *, monotone: bool = True) -> tuple[int, int]:
    """Questions asked and items left in one world."""
    rng = random.Random(seed)
    graph = chain_graph(size, rng)
    tester = HiddenSet(hidden_items(graph, count, adjacent=adjacent, rng=rng), monotone=monotone, seed=seed)
    kept = search.localise(range(size), tester, neighbours=graph.__getitem__)
    return tester.queries, len(kept)


def quickxplain_culprits(
    prefix: Sequence[int], neighbours: Callable[[int], Iterable[int]], ask: search._Questions[int]
) -> tuple[list[int], bool]:
    """Stands in for `search._culprits`: the same balls, then QuickXplain (Junker 2004) in the smallest that fails."""
    found = [prefix[-1]]
    order, balls = search._by_distance(prefix, neighbours)
    _, high = search._around_smallest_failing_ball(balls, len(order), found[0], order, ask)

    def explain(background: list[int], added: bool, candidates: list[int]) -> list[int]:
        if added and ask(frozenset(background)):
            return []
        if len(candidates) == 1:
            return candidates
        near, far = candidates[: len(candidates) // 2], candidates[len(candidates) // 2 :]
        from_far = explain(background + near, True, far)
        return from_far + explain(background + from_far, bool(from_far), near)

    return (found + explain(found, True, order[:high]) if high else found), True


def site_questions(size: int, refused: int, worlds: int) -> float:
    """Mean questions of `sweep_sites` where `refused` sites, spread at random, can't be applied."""
    counts = []
    for seed in range(max(1, worlds // 5)):
        bad = frozenset(random.Random(seed).sample(range(size), refused))
        tester = RuleTester(bad.isdisjoint)
        search.sweep_sites(range(size), tester)
        counts.append(tester.queries)
    return statistics.mean(counts)


if __name__ == "__main__":
    main()
