"""A reduction from start to end against oracles that run nothing: how small, how many questions, what is kept and when."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minify import case as cases
from minify.case import Case, Derived, Recipe, Ref, Settings, tensor_inputs
from minify.errors import InvalidCandidate, PassBug
from minify.passes import PASSES, Pass, Site
from minify.passes.cut_ops import keep
from minify.passes.shrink_dims import SHRINK_DIMS
from minify.reduce import Session, _Sites, find_alone, reduce
from minify.reduce.ops import cut_down
from minify.reduce.screen import chunks, suspects, unlike_first, wrong_alone
from minify.reduce.search import sweep_sites
from minify.sizes import Sizes
from minify.verdict import Divergence, Measured, Observation, Outcome, Signature
from tests.cases import build, given, op, tensor
from tests.fake_oracle import FakeOracle
from tests.reducing import (
    RAISES,
    WRONG_VALUE,
    Run,
    is_screen,
    line,
    needs,
    needs_targets,
    recorded,
    run_reduction,
    smaller_by_one_site,
    tree_sum,
    unscreened,
)

CULPRIT = 337


# --- how small, in how many questions ---------------------------------------------------------------------------------


def test_a_chain_between_two_ops_that_matter_goes_altogether(tmp_path: Path) -> None:
    case = line("torch.exp", *["torch.neg"] * 50, "torch.relu")
    run = run_reduction(case, unscreened(needs_targets("torch.exp", "torch.relu")), tmp_path)
    assert sorted(run.targets) == ["torch.exp", "torch.relu"]
    assert run.reduction.one_minimal and run.oracle.queries < 60


def test_two_ops_that_matter_only_while_connected_end_up_side_by_side(tmp_path: Path) -> None:
    def connected(case: Case) -> bool:
        from_exp: set[str] = set()
        for call in case.graph.ops:
            reads = set(cases.op_refs(call)) & from_exp
            if call.target == "torch.relu" and reads:
                return True
            if call.target == "torch.exp" or reads:
                from_exp.add(call.name)
        return False

    case = line("torch.exp", *["torch.neg"] * 15, "torch.relu")
    run = run_reduction(case, unscreened(connected), tmp_path)
    assert run.targets == ["torch.exp", "torch.relu"]


def test_two_of_the_ops_under_a_wide_sum_are_left_with_little_else(tmp_path: Path) -> None:
    run = run_reduction(tree_sum(64), unscreened(needs("leaf5", "leaf50")), tmp_path)
    assert len(run.targets) <= 4 and run.reduction.one_minimal
    assert {"leaf5", "leaf50"} <= {call.name for call in run.reduction.case.graph.ops}


def test_one_culprit_among_500_ops_takes_few_questions_without_a_screen(tmp_path: Path) -> None:
    run = run_reduction(line(*["torch.neg"] * 500), needs(f"n{CULPRIT}"), tmp_path, signature=RAISES)
    assert [call.name for call in run.reduction.case.graph.ops] == [f"n{CULPRIT}"]
    print(f"500 ops: {run.reduction.search_queries} questions for the ops, {run.oracle.queries} in all")
    assert run.oracle.queries <= 15


def test_a_complex_op_comes_down_to_the_piece_that_is_wrong(tmp_path: Path) -> None:
    attention = "torch.nn.functional.scaled_dot_product_attention"
    case = build(
        ["x", "k", "v", "mask"],
        [
            op("a", "torch.tanh", Ref("x")),
            op("b", attention, Ref("a"), Ref("k"), Ref("v"), attn_mask=Ref("mask")),
            op("c", "torch.neg", Ref("b")),
        ],
        ["c"],
    )
    wrong = {attention, "torch.softmax", "torch.exp"}
    run = run_reduction(case, unscreened(lambda case: any(op.target in wrong for op in case.graph.ops)), tmp_path)
    assert run.targets == ["torch.exp"]
    assert run.session.counts["simpler ops"].queries == 2, "softmax, and exp before anything else is tried"
    assert run.reduction.one_minimal and cases.element_count(run.reduction.case) == 1


def test_a_call_that_is_wrong_as_a_whole_stays_after_a_question_for_each_piece(tmp_path: Path) -> None:
    run = run_reduction(line("torch.neg", "torch.softmax"), unscreened(needs_targets("torch.softmax")), tmp_path)
    assert run.targets == ["torch.softmax"]
    assert (run.session.counts["simpler ops"].accepted, run.session.counts["simpler ops"].queries) == (0, 6)


def test_simple_ops_cost_no_question_more(tmp_path: Path) -> None:
    run = run_reduction(line("torch.neg", "torch.relu"), unscreened(needs_targets("torch.relu")), tmp_path)
    assert run.targets == ["torch.relu"] and run.session.counts["simpler ops"].tried == 0


# --- the screen -------------------------------------------------------------------------------------------------------


def blaming(names: tuple[str, ...], rule: Callable[[Case], bool]) -> Callable[[Case], bool | Observation]:
    """`rule`, with screens on which the results of `names` are wrong."""

    def answer(case: Case) -> bool | Observation:
        if not is_screen(case):
            return rule(case)
        rows = [
            name
            for name in (str(getattr(out, "name", "")) for out in case.graph.outputs)
            if name.split("__of__")[0] in names
        ]
        return Observation(
            "compare", divergences=tuple(Divergence(f"output:{row}", "value", excess=9.0) for row in rows)
        )

    return answer


def fresh_session(case: Case, oracle: FakeOracle, folder: Path) -> Session:
    return Session(case, Observation("done"), WRONG_VALUE, oracle, folder, save_base=lambda base: None)


def test_a_screen_that_names_the_culprit_saves_nearly_all_questions(tmp_path: Path) -> None:
    name = f"n{CULPRIT}"
    run = run_reduction(line(*["torch.neg"] * 500), blaming((name,), needs(name)), tmp_path)
    assert [call.name for call in run.reduction.case.graph.ops] == [name]
    assert run.reduction.search_queries <= 4  # the first of its kind, all others in two parts, the op alone


def test_a_screen_that_names_the_wrong_op_costs_little_and_spoils_nothing(tmp_path: Path) -> None:
    case, rule = line(*["torch.neg"] * 60), needs("n40")
    without = run_reduction(case, unscreened(rule), tmp_path / "without")
    misled = run_reduction(case, blaming(("n10", "n55"), rule), tmp_path / "misled")
    assert cases.digest(misled.reduction.case) == cases.digest(without.reduction.case)
    assert misled.reduction.search_queries <= without.reduction.search_queries + 3


def test_a_screen_goes_on_to_the_next_part_until_one_names_an_op(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minify.reduce.screen.MOST_OPS", 10)
    run = run_reduction(line(*["torch.neg"] * 40), blaming(("n25",), needs("n25")), tmp_path)
    assert [is_screen(case) for case in run.oracle.asked[:5]] == [True, True, True, True, False]
    assert [call.name for call in run.reduction.case.graph.ops] == ["n25"]


def test_one_call_of_each_kind_is_screened_before_the_calls_that_repeat_them(tmp_path: Path) -> None:
    case = line(*["torch.neg", "torch.exp"] * 20, "torch.relu")
    run = run_reduction(case, blaming(("n40",), needs("n40")), tmp_path)
    screens = [asked for asked in run.oracle.asked if is_screen(asked)]
    assert [[call.target for call in screen.graph.ops] for screen in screens] == [
        ["torch.neg", "torch.exp", "torch.relu"]
    ]


def test_calls_are_of_one_kind_only_where_target_literals_and_layouts_are_the_same() -> None:
    flat, turned = tensor((4, 8)), dataclasses.replace(tensor((4, 8)), stride=(1, 4))
    calls = [
        op("a", "torch.sum", Ref("x"), 0, meta=flat),
        op("b", "torch.sum", Ref("a"), 0, meta=turned),
        op("c", "torch.sum", Ref("b"), 0, meta=flat),
        op("d", "torch.sum", Ref("a"), 1, meta=flat),
        *(op(f"e{number}", "torch.sum", Ref("a"), 0, meta=flat) for number in range(5)),
    ]
    case = build(["x"], calls, ["d"])
    first, rest = unlike_first(case, [call.name for call in calls])
    assert (first, rest) == (("a", "c", "d"), ("b", "e0", "e1", "e2", "e3", "e4"))


def test_the_op_that_fails_alone_is_found_without_asking_the_whole_program(tmp_path: Path) -> None:
    oracle = FakeOracle(blaming(("n60",), needs("n60")))
    session = fresh_session(line(*["torch.neg"] * 60, "torch.relu"), oracle, tmp_path)
    assert find_alone(session) == (True, ("n60",))
    assert [call.name for call in session.best.graph.ops] == ["n60"]
    assert len(oracle.asked) == 2 and all(len(asked.graph.ops) < 61 for asked in oracle.asked)


def test_no_op_is_found_where_the_one_that_a_screen_names_passes_alone(tmp_path: Path) -> None:
    case = line(*["torch.neg"] * 60)
    session = fresh_session(case, FakeOracle(blaming(("n10",), needs("n10", "n40"))), tmp_path)
    assert find_alone(session) == (False, ("n10",))
    assert session.best.graph.ops == case.graph.ops


def test_a_screen_whose_suspects_pass_alone_is_not_the_last(tmp_path: Path) -> None:
    case = line(*["torch.neg", "torch.exp"] * 20)
    run = run_reduction(case, blaming(("n0", "n30"), needs("n30")), tmp_path)
    assert [call.name for call in run.reduction.case.graph.ops] == ["n30"]
    assert [is_screen(asked) for asked in run.oracle.asked[:4]] == [True, False, True, False]


def test_a_crash_is_searched_without_a_screen(tmp_path: Path) -> None:
    run = run_reduction(line(*["torch.neg"] * 40), needs("n25"), tmp_path, signature=RAISES)
    assert not any(is_screen(case) for case in run.oracle.asked)


def test_a_screen_holds_every_op_once_fed_by_values_of_the_whole_program() -> None:
    case = line(*["torch.neg"] * 60)
    (screen,) = chunks(case, [call.name for call in case.graph.ops], "base")
    assert len(screen.graph.ops) == len(screen.graph.outputs) == 60
    derived = {item.value for item in tensor_inputs(screen)} - {case.inputs[0].value}
    assert derived == {Derived("base", f"n{place}") for place in range(59)}


def test_a_screen_blames_an_op_for_its_own_result_though_it_also_reads_a_shape() -> None:
    rows = op("rows", ".size", Ref("x"), 0, meta=cases.ScalarMeta(4))
    case = build(["x"], [rows, op("flat", ".view", Ref("x"), Ref("rows"), -1, meta=tensor((4, 8)))], ["flat"])
    (screen,) = chunks(case, ["flat"], "base")
    wrong = [Divergence(f"output:{getattr(out, 'name', '')}", "value") for out in screen.graph.outputs]
    assert suspects(wrong_alone(wrong, ["flat"]), WRONG_VALUE) == ("flat",)


def test_suspects_come_worst_first_and_only_for_the_kind_of_failure_asked_for() -> None:
    rows = [
        Divergence("output:a__of__a__alone", "value", excess=2.0),
        Divergence("output:b__of__b__alone", "nonfinite", excess=7.0),
        Divergence("output:c__of__c__alone", "stride", excess=9.0),
        Divergence("output:stranger__of__stranger__alone", "value", excess=9.0),
    ]
    wrong = wrong_alone(rows, "abc")
    assert list(wrong) == ["c", "b", "a"]
    assert suspects(wrong, WRONG_VALUE) == ("b", "a")
    assert suspects(wrong, Signature("accuracy", "metadata", "stride")) == ("c",)


# --- promises about the result ----------------------------------------------------------------------------------------

RULES: dict[str, tuple[Case, Callable[[Case], bool]]] = {
    "one op": (line(*["torch.neg"] * 12), needs("n7")),
    "two far apart": (line("torch.exp", *["torch.neg"] * 10, "torch.relu"), needs("n0", "n11")),
    "a sum": (tree_sum(8), needs("leaf1", "leaf6")),
    "a size": (line(*["torch.neg"] * 6), lambda case: needs("n3")(case) and cases.element_count(case) >= 8),
}


@pytest.mark.parametrize("rule", RULES)
def test_no_single_site_of_any_pass_can_be_edited_any_more(tmp_path: Path, rule: str) -> None:
    case, fails = RULES[rule]
    run = run_reduction(case, unscreened(fails), tmp_path)
    assert fails(run.reduction.case) and cases.size(run.reduction.case) < cases.size(case)
    assert smaller_by_one_site(run.reduction.case, fails) == []


@pytest.mark.parametrize("rule", RULES)
def test_looking_ahead_and_forgetting_answers_change_nothing(tmp_path: Path, rule: str) -> None:
    case, fails = RULES[rule]
    seen = []
    for number, (width, caching) in enumerate([(1, True), (8, True), (1, False), (8, False)]):
        run = run_reduction(case, unscreened(fails), tmp_path / str(number), width=width, caching=caching)
        counts = {name: (count.accepted, count.invalid) for name, count in run.session.counts.items()}
        seen.append((cases.digest(run.reduction.case), [row["digest"] for row in run.journal], counts))
    assert all(other == seen[0] for other in seen)


def test_sizes_along_the_journal_only_go_down(tmp_path: Path) -> None:
    run = run_reduction(tree_sum(16), unscreened(needs("leaf3", "leaf9")), tmp_path)
    sizes = [tuple(row["size"]) for row in run.journal if row["pass"] != "recorded"]
    assert len(sizes) > 3 and all(later < earlier for earlier, later in itertools.pairwise(sizes))
    everything = [tuple(row["size"]) for row in run.journal]
    assert everything == sorted(everything, reverse=True)


def test_a_candidate_that_is_no_smaller_is_not_asked(tmp_path: Path) -> None:
    def grown(case: Case, sites: tuple[object, ...]) -> Case:
        more = [*case.graph.ops, *(op(f"more{len(case.graph.ops)}", "torch.neg", Ref("x")) for _ in sites)]
        return build(list(case.inputs), more, ["n0"])

    larger = Pass("larger", lambda case: ((0,),), grown)
    run = run_reduction(line("torch.neg"), lambda case: True, tmp_path, passes=[larger])
    assert run.oracle.queries == 0 and run.session.counts["larger"].invalid == 1


# --- alternatives -----------------------------------------------------------------------------------------------------


def sizes_of(case: Case) -> tuple[int, ...]:
    return tensor_inputs(case)[0].meta.shape


def at_least(*least: int) -> Callable[[Case], bool]:
    return lambda case: all(size >= enough for size, enough in zip(sizes_of(case), least, strict=True))


def dims_only(shape: tuple[int, ...], least: tuple[int, ...], folder: Path) -> Run:
    case = build([given("x", tensor(shape), Recipe("zeros"))], [op("y", "torch.neg", Ref("x"))], ["y"])
    return run_reduction(case, at_least(*least), folder, passes=[SHRINK_DIMS])


@pytest.mark.parametrize(
    ("least", "queries"), [(1, 1), (2, 2), (9, 8), (13, 11), (17, 6), (33, 7), (40, 12), (63, 12), (64, 5)]
)
def test_a_size_is_bisected_down_to_the_least_that_fails(tmp_path: Path, least: int, queries: int) -> None:
    run = dims_only((64,), (least,), tmp_path)
    assert sizes_of(run.reduction.case) == (least,) and run.reduction.one_minimal
    assert run.oracle.queries == queries


def test_bisecting_asks_of_one_case_and_takes_each_smaller_one_that_fails(tmp_path: Path) -> None:
    run = dims_only((3, 64), (1, 40), tmp_path)
    accepted = [sizes_of(cases.load(path)) for path in run.on_disk()]
    assert accepted == [(1, 64), (1, 63), (1, 48), (1, 40)]


def test_a_size_that_fails_at_some_and_not_at_others_is_left_where_no_site_is(tmp_path: Path) -> None:
    case = build([given("x", tensor((64,)), Recipe("zeros"))], [op("y", "torch.neg", Ref("x"))], ["y"])

    def every_eighth(case: Case) -> bool:
        return sizes_of(case)[0] % 8 == 0

    run = run_reduction(case, every_eighth, tmp_path, passes=[SHRINK_DIMS])
    assert sizes_of(run.reduction.case) == (8,)
    assert smaller_by_one_site(run.reduction.case, every_eighth, [SHRINK_DIMS]) == []


def test_sites_behind_the_one_accepted_come_before_those_just_turned_down(tmp_path: Path) -> None:
    """Four dims of which the first cannot shrink: it is asked once before the others and once after."""
    run = dims_only((7, 6, 5, 4), (7, 1, 1, 1), tmp_path)
    asked = [sizes_of(case) for case in run.oracle.asked]
    assert asked[2:6] == [(1, 6, 5, 4), (7, 1, 5, 4), (7, 1, 1, 4), (7, 1, 1, 1)]
    assert sizes_of(run.reduction.case) == (7, 1, 1, 1)


def measured(run_of: Callable[[Case], bool], case: Case, folder: Path, passes: list[Pass]) -> list[str]:
    """The cases whose sizes were asked for."""
    asked: list[str] = []

    def sizes(case: Case) -> Sizes | None:
        asked.append(cases.digest(case))
        return None

    session = Session(
        case, Observation("done"), WRONG_VALUE, FakeOracle(run_of), folder, lambda base: None, sizes=sizes
    )
    reduce(session, passes, recorded)
    return asked


def test_only_a_pass_that_goes_by_sizes_has_them_found_out_and_once_for_each_case(tmp_path: Path) -> None:
    case = build([given("x", tensor((6, 5)), Recipe("zeros"))], [op("y", "torch.neg", Ref("x"))], ["y"])
    other = Pass("other", lambda case: (("never",),), raising_invalid, alternatives=True)
    assert measured(at_least(2, 3), case, tmp_path, [other]) == []
    asked = measured(at_least(2, 3), case, tmp_path, [SHRINK_DIMS, other])
    assert len(set(asked)) == len(asked) > 1 and asked[0] == cases.digest(case)


def raising_invalid(case: Case, sites: tuple[Site, ...]) -> Case:
    raise InvalidCandidate("no")


def test_the_sizes_of_a_case_go_with_it_until_it_is_another(tmp_path: Path) -> None:
    case = line("torch.neg", "torch.exp")
    known = Sizes((), (), of=cases.digest(case))
    session = Session(
        case,
        Observation("done"),
        WRONG_VALUE,
        FakeOracle(lambda case: True),
        tmp_path,
        lambda base: None,
        sizes=lambda case: known,
    )
    session.measure()
    assert session.best.sizes is known and session.best == case
    assert cases.digest(session.best) == cases.digest(case)


# --- slipping, bugs, stops --------------------------------------------------------------------------------------------


def test_what_fails_otherwise_is_never_accepted_and_its_smallest_case_is_kept(tmp_path: Path) -> None:
    def answer(case: Case) -> bool | Outcome:
        if is_screen(case):
            return False
        if needs("n2", "n8")(case):
            return True
        return Outcome.SLIPPED if needs("n8")(case) else False

    run = run_reduction(line(*["torch.neg"] * 10), answer, tmp_path)
    assert needs("n2", "n8")(run.reduction.case)
    slipped = [case for case in run.oracle.asked if answer(case) is Outcome.SLIPPED]
    ((signature, kept),) = run.session.slipped.items()
    assert signature != WRONG_VALUE
    assert cases.size(kept) == min(map(cases.size, slipped)) and len({cases.size(case) for case in slipped}) > 1
    assert not {cases.digest(case) for case in slipped} & {row["digest"] for row in run.journal}
    assert sum(count.slipped for count in run.session.counts.values()) >= len(slipped)


def test_a_sweep_goes_on_deriving_values_from_the_case_it_began_with(tmp_path: Path) -> None:
    """Though the first candidate accepted, which became the best case, derived none."""
    case = build(
        ["x"], [op("a", "torch.neg", Ref("x")), op("b", "torch.exp", Ref("x")), op("y", "torch.relu", Ref("b"))], ["y"]
    )

    def rewrite(begun: Case, sites: tuple[Any, ...]) -> Case:
        if ("nothing",) in sites:
            raise InvalidCandidate("no")
        if ("cut b",) in sites:
            return keep(begun, frozenset("y"), cases.digest(begun), "all_used")
        ops = tuple(call for call in begun.graph.ops if call.name != "a")
        graph = dataclasses.replace(begun.graph, ops=ops)
        return dataclasses.replace(begun, program=dataclasses.replace(begun.program, graph=graph))

    edit = Pass("drop or cut", lambda begun: (("drop a",), ("cut b",), ("nothing",)), rewrite)
    saved: list[str] = []
    oracle = FakeOracle(lambda asked: True)
    session = Session(
        case, Observation("done"), WRONG_VALUE, oracle, tmp_path, lambda base: saved.append(cases.digest(base))
    )
    assert sweep_sites(edit.find(case), _Sites(session, edit, case, edit.find(case))) == (("drop a",), ("cut b",))
    assert [len(asked.graph.ops) for asked in oracle.asked] == [2, 1]
    assert saved == [cases.digest(case)] == [item.value.base for item in tensor_inputs(session.best)]  # type: ignore[union-attr]


LOST = Observation("", worker_lost="SIGKILL while in compile")


@pytest.mark.parametrize("width", [1, 4])
def test_a_result_is_not_called_minimal_where_a_smaller_case_was_never_answered(tmp_path: Path, width: int) -> None:
    rule = unscreened(needs_targets("torch.exp", "torch.relu"))

    def answer(case: Case) -> bool | Observation:
        return LOST if rule(case) and case.settings.dynamic is None else rule(case)

    start = line("torch.exp", *["torch.neg"] * 3, "torch.relu")
    start = dataclasses.replace(start, settings=dataclasses.replace(start.settings, dynamic=True))
    run = run_reduction(start, answer, tmp_path, width=width)
    assert run.reduction.case.settings.dynamic is True and not run.reduction.stopped_by
    assert (run.reduction.one_minimal, run.reduction.unanswered) == (False, 1)


def test_what_was_lost_before_the_last_round_does_not_count(tmp_path: Path) -> None:
    rule, lost = unscreened(needs_targets("torch.exp")), []

    def answer(case: Case) -> bool | Observation:
        if rule(case) and case.settings.dynamic is None and case.settings.mode is None and not lost:
            lost.append(case)
            return LOST
        return rule(case)

    start = line("torch.exp")
    start = dataclasses.replace(start, settings=dataclasses.replace(start.settings, dynamic=True, mode="max-autotune"))
    run = run_reduction(start, answer, tmp_path, caching=False)
    assert lost and run.reduction.case.settings == Settings()
    assert run.reduction.one_minimal and run.reduction.unanswered == 0


def raising(case: Case, sites: tuple[object, ...] = ()) -> Case:
    raise KeyError("no such value")


@pytest.mark.parametrize("alternatives", [True, False])
@pytest.mark.parametrize("broken", ["find", "rewrite"])
def test_a_pass_that_raises_is_a_bug_with_the_case_on_disk(tmp_path: Path, broken: str, alternatives: bool) -> None:
    case = line("torch.neg")
    find: Callable[[Case], Any] = raising if broken == "find" else lambda case: ((0,),)
    bad = Pass("bad", find, raising, alternatives)
    with pytest.raises(PassBug, match=r"'bad' raised KeyError.*pass-bug\.case"):
        run_reduction(case, lambda case: True, tmp_path, passes=[bad])
    assert cases.load(tmp_path / "pass-bug.case") == case


@pytest.mark.parametrize("width", [1, 8])
def test_a_bug_further_on_is_met_only_when_all_before_it_were_answered(tmp_path: Path, width: int) -> None:
    oracle = FakeOracle(lambda case: True, width=width)
    session = Session(
        line("torch.neg", "torch.exp"), Observation("done"), WRONG_VALUE, oracle, tmp_path, lambda base: None
    )
    found = session.first("two", [lambda: line("torch.neg"), lambda: raising(session.best)])
    assert found is not None and found[0] == 0
    with pytest.raises(PassBug):
        session.first("two", [lambda: raising(session.best)])


def test_candidates_that_make_no_sense_cost_nothing_and_are_counted(tmp_path: Path) -> None:
    def senseless() -> Case:
        raise InvalidCandidate("no")

    def dangling() -> Case:
        return build(["x"], [op("a", "torch.neg", Ref("nobody"))], ["a"])

    oracle = FakeOracle(lambda case: case.graph.ops[0].target == "torch.exp", width=4)
    session = Session(
        line("torch.neg", "torch.exp"), Observation("done"), WRONG_VALUE, oracle, tmp_path, lambda base: None
    )
    builds = [senseless, lambda: line("torch.neg"), dangling, lambda: line("torch.exp"), senseless]
    found = session.first("mixed", builds)
    assert found is not None and found[0] == 3
    count = session.counts["mixed"]
    assert (count.tried, count.accepted, count.invalid, oracle.queries) == (2, 1, 2, 2)


STOP_CASE, STOP_RULE = (
    line("torch.exp", *["torch.neg"] * 12, "torch.relu"),
    unscreened(needs_targets("torch.exp", "torch.relu")),
)


@pytest.mark.parametrize("after", [0, 1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("width", [1, 8])
def test_a_stop_at_any_question_leaves_the_best_so_far_in_hand_and_on_disk(
    tmp_path: Path, after: int, width: int
) -> None:
    run = run_reduction(STOP_CASE, STOP_RULE, tmp_path, stop_after=after, width=width)
    assert run.reduction.stopped_by == "out of questions" and not run.reduction.one_minimal
    assert run.oracle.queries == after and run.reduction.search_queries <= after
    failing = [case for case in [STOP_CASE, *run.oracle.asked] if STOP_RULE(case)]
    assert cases.size(run.reduction.case) == min(map(cases.size, failing))
    assert STOP_RULE(run.reduction.case)
    saved = [cases.digest(cases.load(path)) for path in run.on_disk()]
    assert saved == [row["digest"] for row in run.journal]
    assert cases.digest(run.reduction.case) == (saved[-1] if saved else cases.digest(STOP_CASE))


def test_a_finished_reduction_leaves_its_result_as_the_last_case_on_disk(tmp_path: Path) -> None:
    run = run_reduction(STOP_CASE, STOP_RULE, tmp_path)
    assert cases.load(run.on_disk()[-1]) == run.reduction.case
    assert not any(isinstance(item.value, Derived) for item in tensor_inputs(run.reduction.case))


def test_passes_see_the_values_that_the_last_accepted_run_had(tmp_path: Path) -> None:
    small = tensor((2,), "float64")
    seen = []

    def answer(case: Case) -> bool | Observation:
        rows = (Divergence("output:n0", "value"),)
        return Observation("compare", divergences=rows, trace=tuple((call.name, small) for call in case.graph.ops))

    def find(case: Case) -> tuple[tuple[object, ...], ...]:
        seen.append([call.meta for call in case.graph.ops])
        return ()

    first = Pass("first", PASSES[2].find, PASSES[2].rewrite)
    run = run_reduction(
        line("torch.neg", "torch.exp"),
        answer,
        tmp_path,
        signature=WRONG_VALUE,
        passes=[first, Pass("see", find, raising)],
    )
    assert [metas for metas in seen if metas != [small]] == []
    assert run.session.observation.trace and run.targets in (["torch.neg"], ["torch.exp"])


def test_the_first_observation_annotates_the_case_it_belongs_to(tmp_path: Path) -> None:
    known = tensor((3, 3))
    observation = Observation("compare", trace=(("n1", known), ("nobody", known)))
    case = line("torch.neg", "torch.exp")
    session = Session(case, observation, WRONG_VALUE, FakeOracle(lambda case: True), tmp_path, lambda base: None)
    assert [call.meta for call in session.best.graph.ops] == [case.graph.ops[0].meta, known]
    assert cases.digest(session.best) == cases.digest(case)


def test_a_glimpse_accepts_nothing_and_malformed_cases_are_not_asked(tmp_path: Path) -> None:
    oracle = FakeOracle(lambda case: True)
    case = line("torch.neg", "torch.exp")
    session = Session(case, Observation("done"), WRONG_VALUE, oracle, tmp_path, lambda base: None)
    verdict = session.glimpse("screen", line("torch.neg"))
    assert verdict is not None and verdict.fails and session.best == case
    broken = dataclasses.replace(case, inputs=())
    assert session.glimpse("screen", broken) is None and oracle.queries == 1


def test_the_ops_that_the_search_ends_with_are_asked_before_their_inputs_change(tmp_path: Path) -> None:
    asked: list[Case] = []

    def explains(case: Case) -> bool:
        asked.append(case)
        return False

    case = line(*["torch.neg"] * 6)
    session = Session(
        case, Observation("done"), WRONG_VALUE, FakeOracle(needs("n2")), tmp_path, save_base=lambda base: None
    )
    reduction = reduce(session, PASSES, recorded, explains)
    assert reduction.explains is False
    assert [[call.name for call in case.graph.ops] for case in asked] == [["n2"]]
    assert isinstance(cases.tensor_inputs(asked[0])[0].value, Derived)


def ops_of(case: Case) -> list[str]:
    return [call.name for call in case.graph.ops]


@pytest.mark.parametrize(("explaining", "left", "aside"), [("n7", ["n7"], [["n2"]]), ("n9", ["n9"], [["n2"], ["n7"]])])
def test_ops_that_do_not_make_the_original_wrong_are_set_aside_and_the_search_goes_on_without_them(
    explaining: str, left: list[str], aside: list[list[str]], tmp_path: Path
) -> None:
    def fails(case: Case) -> bool:
        return not {"n2", "n7", "n9"}.isdisjoint(ops_of(case))

    case, oracle = line(*["torch.neg"] * 12), FakeOracle(unscreened(fails))
    session = Session(case, Observation("done"), WRONG_VALUE, oracle, tmp_path, save_base=lambda base: None)
    reduction = reduce(session, PASSES, recorded, lambda case: explaining in ops_of(case))
    assert reduction.explains is True and reduction.one_minimal and ops_of(reduction.case) == left
    assert [ops_of(aside.case) for aside in session.set_aside] == aside


def test_a_quiet_failure_behind_a_loud_one_is_held_to_the_original_and_not_to_the_loud_one(tmp_path: Path) -> None:
    """The op that fails alone has told what has to be kept of its error; the one that is looked for shows less."""

    def answer(case: Case) -> Observation:
        ratios = [{"n2": 500.0, "n7": 6.0}.get(name, 0.0) for name in ops_of(case)]
        row = Divergence("output:y", "value", ratio=max(ratios))
        return Observation("compare", divergences=() if is_screen(case) or not row.ratio else (row,))

    case, loud = line(*["torch.neg"] * 12), dataclasses.replace(WRONG_VALUE, ratio=20.0)
    sought = dataclasses.replace(WRONG_VALUE, ratio=1.0)
    session = Session(
        case, Observation("done"), sought, FakeOracle(answer, caching=False), tmp_path, save_base=lambda base: None
    )
    session.signature = loud
    reduction = reduce(session, PASSES, recorded, lambda case: "n7" in ops_of(case))
    assert ops_of(reduction.case) == ["n7"] and reduction.explains and session.signature.ratio == 1.0

    session = Session(
        case, Observation("done"), sought, FakeOracle(answer, caching=False), tmp_path, save_base=lambda base: None
    )
    session.signature = loud
    assert reduce(session, PASSES, recorded, lambda case: False).explains is False
    assert ops_of(session.best) == ["n2"] and session.signature.ratio == 20.0


@pytest.mark.parametrize("culprits", [{"n2"}, {"n2", "n7"}])
def test_where_no_ops_make_the_original_wrong_what_was_found_first_stands(culprits: set[str], tmp_path: Path) -> None:
    def fails(case: Case) -> bool:
        return not culprits.isdisjoint(ops_of(case))

    case, oracle = line(*["torch.neg"] * 12), FakeOracle(unscreened(fails))
    session = Session(case, Observation("done"), WRONG_VALUE, oracle, tmp_path, save_base=lambda base: None)
    reduction = reduce(session, PASSES, recorded, lambda case: False)
    assert reduction.explains is False and ops_of(reduction.case) == ["n2"] and not session.set_aside


def test_a_search_past_the_first_find_that_is_stopped_ends_with_that(tmp_path: Path) -> None:
    def fails(case: Case) -> bool:
        return not {"n2", "n7"}.isdisjoint(ops_of(case))

    case = line(*["torch.neg"] * 12)
    alone = FakeOracle(unscreened(fails))
    cut_down(Session(case, Observation("done"), WRONG_VALUE, alone, tmp_path, save_base=lambda base: None))
    oracle = FakeOracle(unscreened(fails), stop_after=alone.queries + 2)
    session = Session(case, Observation("done"), WRONG_VALUE, oracle, tmp_path, save_base=lambda base: None)
    reduction = reduce(session, PASSES, recorded, lambda case: "n7" in ops_of(case))
    assert reduction.stopped_by and ops_of(reduction.case) == ["n2"]


# --- what the user's metric chose ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("measured", [True, False])
def test_what_the_metric_chose_is_not_exchanged_for_a_small_error_in_the_same_place(
    measured: bool, tmp_path: Path
) -> None:
    """The cut itself is off by 1e4 times its tolerance; once its input has shrunk, by 900 times."""
    case = line(*["torch.neg"] * 6, "torch.relu")
    metric = Measured((0.5,), (0.9,), (0.9,), (0.0,)) if measured else None

    def answer(candidate: Case) -> bool | Observation:
        if is_screen(candidate) or "torch.relu" not in {call.target for call in candidate.graph.ops}:
            return False
        whole = cases.element_count(candidate) == cases.element_count(case)
        row = Divergence("output:n6", "value", excess=1e4 if whole else 900.0)
        return Observation("compare", divergences=(row,), metric=metric)

    run = run_reduction(case, answer, tmp_path)
    assert run.targets == ["torch.relu"] and run.reduction.one_minimal
    assert run.session.signature.least == (2000.0 if measured else 0.0)
    assert (cases.element_count(run.reduction.case) == cases.element_count(case)) == measured
