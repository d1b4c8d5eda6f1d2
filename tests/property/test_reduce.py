"""Whatever small program hides whatever ops, a reduction gives a case that fails, is no larger, and is 1-minimal."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from minify import case as cases
from minify.case import Case, Op, Ref
from minify.complexity import complexity
from tests.cases import build, op, tensor
from tests.fake_oracle import content_chance
from tests.reducing import needs, run_reduction, smaller_by_one_site, unscreened

UNARY = ("torch.neg", "torch.exp", "torch.nn.functional.gelu", ".t", ".sum")
BINARY = ("torch.add", "torch.mul")


@st.composite
def programs(draw: st.DrawFn) -> tuple[Case, frozenset[str]]:
    """A small graph and one to three ops of it that the failure needs."""
    count = draw(st.integers(1, 9))
    calls: list[Op] = []
    shapes: dict[str, tuple[int, ...]] = {"x": (4, 4), "y": (4, 4)}
    for place in range(count):
        target = draw(st.sampled_from(UNARY + BINARY))
        reads = [draw(st.sampled_from(sorted(shapes)))]
        if target in BINARY:
            reads.append(draw(st.sampled_from([name for name in sorted(shapes) if shapes[name] == shapes[reads[0]]])))
        name = f"n{place}"
        shapes[name] = () if target == ".sum" else shapes[reads[0]]
        target = "torch.neg" if target == ".t" and shapes[reads[0]] == () else target
        calls.append(op(name, target, *map(Ref, reads), meta=tensor(shapes[name])))
    read = {name for call in calls for name in cases.op_refs(call)}
    outputs = [call.name for call in calls if call.name not in read or draw(st.integers(0, 4)) == 0]
    wanted = draw(st.sets(st.sampled_from([call.name for call in calls]), min_size=1, max_size=3))
    return build(["x", "y"], calls, outputs), frozenset(wanted)


def sometimes_not(rule: Callable[[Case], bool], whole: Case, seed: int) -> Callable[[Case], bool]:
    """`rule`, but that one in five cases passes all the same, decided by content; never so `whole`."""
    chance, first = content_chance(seed), cases.digest(whole)

    def answer(case: Case) -> bool:
        name = cases.digest(case)
        return rule(case) and (name == first or chance(frozenset([int(name, 16)])) >= 0.2)

    return answer


def check(case: Case, rule: Callable[[Case], bool]) -> Case:
    with tempfile.TemporaryDirectory() as folder:
        run = run_reduction(case, unscreened(rule), Path(folder))
    result = run.reduction.case
    assert rule(result) and run.reduction.one_minimal
    assert cases.size(result) <= cases.size(case)
    assert smaller_by_one_site(result, rule) == []
    return result


@given(programs())
@settings(max_examples=20, deadline=None)
def test_a_steady_failure_is_reduced_to_little_more_than_the_ops_it_needs(made: tuple[Case, frozenset[str]]) -> None:
    case, wanted = made
    result = check(case, needs(*wanted))
    assert {call.name for call in result.graph.ops} == wanted
    assert complexity(result.graph) == 0


@given(programs(), st.integers(0, 2**20))
@settings(max_examples=15, deadline=None)
def test_a_failure_that_comes_and_goes_still_ends_failing_and_one_minimal(
    made: tuple[Case, frozenset[str]], seed: int
) -> None:
    case, wanted = made
    check(case, sometimes_not(needs(*wanted), case, seed))
