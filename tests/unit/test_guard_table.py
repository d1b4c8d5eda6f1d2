"""What a naive reducer makes of a case or of an answer, guard by guard; and that the table has a row for each fact. Compiles nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minify.case import Case, Derived, Input, Recipe, Ref, ScalarInput, Settings, canonical, digest
from minify.passes import PASSES
from minify.reduce import Session, reduce
from minify.verdict import Divergence, Observation, Outcome, Signature, Verdict
from scripts import corpus_judge, guard_table
from scripts.guard_table import Ended, Row
from scripts.guards import ALSO, GUARDS, Guard, NaiveOracle, guards_of
from tests.cases import build, given, op, show, storages, tensor, values
from tests.fake_oracle import FakeOracle
from tests.reducing import RAISES, WRONG_VALUE, line, needs, recorded, unscreened

BY_NAME = {guard.name: guard for guard in GUARDS}
EXPECTED = {path.parent.name: corpus_judge.load(path.parent) for path in corpus_judge.CORPUS.glob("*/expected.toml")}
ONE_FACT = sorted(name for name, expected in EXPECTED.items() if expected.facts)
CHANNELS_LAST = tensor((1, 2, 2, 2), stride=(8, 1, 4, 2))
TRAINED = Settings(grad_mode="grad", backward="randn")
SET = Settings(
    mode="max-autotune",
    options=(("fold", True),),
    config=(("torch._inductor.config", "max_fusion_size", 1),),
    switches=(("deterministic", True),),
    autocast=(("cpu", "bfloat16"),),
)


def one_input(item: Input, settings: Settings | None = None) -> Case:
    return build([item], [op("a", "torch.relu", Ref(item.name))], ["a"], settings)


def layout(case: Case) -> dict[str, tuple[object, ...]]:
    return {item.name: (item.meta.stride, item.meta.offset) for item in case.inputs if isinstance(item, Input)}


# A case, the guard, what is looked at, and what becomes of it without the guard.
REWRITES: dict[str, tuple[Case, str, Callable[[Case], Any], Any]] = {
    "a transpose": (
        one_input(given("x", tensor((2, 2), stride=(1, 2)))),
        "order of dims in memory", layout, {"x": ((2, 1), 0)},
    ),
    "channels-last images": (
        one_input(given("x", CHANNELS_LAST)),
        "order of dims in memory", layout, {"x": ((8, 4, 2, 1), 0)},
    ),
    "a transpose at an offset": (
        one_input(given("x", tensor((2, 2), stride=(1, 2), offset=4))),
        "order of dims in memory", lambda case: layout(case)["x"][0], (2, 1),
    ),
    "an expanded row": (
        one_input(given("x", tensor((2, 2), stride=(0, 1)))),
        "stride 0 and gaps", lambda case: 0 in case.inputs[0].meta.stride, False,
    ),
    "a row with a gap behind it": (
        one_input(given("x", tensor((2, 2), stride=(5, 1)))),
        "stride 0 and gaps", layout, {"x": ((2, 1), 0)},
    ),
    "the second half of a buffer": (
        one_input(given("x", tensor((2, 2), offset=6))),
        "storage offset", layout, {"x": ((2, 1), 0)},
    ),
    "a window into a cache": (
        build(
            [given("x", tensor((4,), storage=1)), given("y", tensor((2,), storage=1, offset=2))],
            [op("a", ".mul_", Ref("x"), 0.5), op("b", "torch.relu", Ref("y"))], ["b"],
        ),
        "shared memory", lambda case: len(set(storages(case).values())), 2,
    ),
    "recorded floats": (one_input(given("x")), "recorded values", values, {"x": "randn"}),
    "a number everywhere": (
        one_input(given("x", value=Recipe("full", (-0.0,)))), "recorded values", values, {"x": "randn"},
    ),
    "recorded indices": (one_input(given("x", tensor(dtype="int64"))), "recorded values", values, {"x": "zeros"}),
    "whole numbers beside floats": (
        build(
            [given("x", tensor(dtype="int64")), given("y")], [op("a", "torch.maximum", Ref("x"), Ref("y"))], ["a"]
        ),
        "dtypes", lambda case: [item.meta.dtype for item in case.inputs], ["float32", "float32"],
    ),
    "a row of 33": (
        one_input(given("x", tensor((3, 33)))),
        "sizes", lambda case: case.inputs[0].meta.shape, (1, 1),
    ),
    "a row of 33 and a number that is one": (
        build([given("x", tensor((33,)))], [op("a", ".view", Ref("x"), 33, 1)], ["a"]),
        "sizes", show, "x | a = .view(x, 1, 1) | a",
    ),
    "a dynamic dim": (
        one_input(given("x", dynamic=(1,)), Settings(dynamic=True)),
        "dynamic dims", lambda case: (case.inputs[0].dynamic_dims, case.settings.dynamic), ((), None),
    ),
    "a symbolic number": (
        build(["x", ScalarInput("s", 3, True)], [op("a", "torch.roll", Ref("x"), Ref("s"))], ["a"]),
        "dynamic dims", show, "x | a = torch.roll(x, 3) | a",
    ),
    "a forward pass that trains": (
        one_input(given("x", tensor(requires_grad=True)), Settings(grad_mode="grad")),
        "gradients", lambda case: (case.inputs[0].meta.requires_grad, case.settings.grad_mode), (False, "no_grad"),
    ),
    "a backward pass": (
        one_input(given("x", tensor(requires_grad=True)), TRAINED),
        "gradients", lambda case: (case.inputs[0].meta.requires_grad, case.settings), (False, Settings()),
    ),
    "options, configs, switches and autocast": (
        one_input(given("x"), SET), "settings", lambda case: case.settings, Settings(),
    ),
    "a value that is read and returned": (
        build(["x"], [op("a", "torch.relu", Ref("x")), op("b", "torch.exp", Ref("a"))], ["a", "b"]),
        "readers that are cut off", show, "x | a = torch.relu(x); b = torch.exp(a) | b",
    ),
    "two readers": (
        build(
            ["x"],
            [op("a", "torch.relu", Ref("x")), op("b", "torch.exp", Ref("a")), op("c", "torch.sin", Ref("a"))],
            ["b", "c"],
        ),
        "outputs", show, "x | a = torch.relu(x); c = torch.sin(a) | c",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REWRITES)
def test_without_its_guard_a_fact_is_rewritten_away(what: str) -> None:
    case, name, seen, wanted = REWRITES[what]
    before = digest(case)
    assert seen(case) != wanted, "the case has the fact"
    assert seen(BY_NAME[name].rewrite(case)) == wanted
    assert digest(case) == before
    assert BY_NAME[name].rewrite(case) == BY_NAME[name].rewrite(BY_NAME[name].rewrite(case))


@pytest.mark.parametrize("guard", [guard for guard in GUARDS if guard.rewrites], ids=lambda guard: guard.name)
def test_a_plain_case_stays_what_it_is_without_any_guard(guard: Guard) -> None:
    plain = one_input(given("x", tensor((1, 1)), Recipe("randn")))
    assert canonical(guard.rewrite(plain)) == canonical(plain)


# Where the guard of one fact takes another with it: what is row-major is dense, and strides follow from sizes.
TAKEN_ALONG = {
    "a transpose": {"sizes"},
    "channels-last images": {"sizes"},
    "a transpose at an offset": {"sizes"},
    "an expanded row": {"order of dims in memory"},
    "a row with a gap behind it": {"order of dims in memory", "sizes"},
    "the second half of a buffer": {"sizes"},
    "a value that is read and returned": {"outputs"},
}


@pytest.mark.parametrize("what", REWRITES)
def test_a_guard_that_is_off_loses_its_own_fact_and_no_other(what: str) -> None:
    case, name, seen, _ = REWRITES[what]
    others = [guard for guard in GUARDS if guard.rewrites and guard.name != name]
    changed = {guard.name for guard in others if seen(guard.rewrite(case)) != seen(case)}
    assert changed == TAKEN_ALONG.get(what, set())


def test_memory_that_is_shared_with_others_of_another_dtype_is_not_converted() -> None:
    case = build(
        [given("x", tensor((4,), "int64", storage=1)), given("y", tensor((8,), "int32", storage=1))],
        [op("a", "torch.neg", Ref("x")), op("b", "torch.neg", Ref("y"))],
        ["a", "b"],
    )
    assert BY_NAME["dtypes"].rewrite(case) == case


def test_a_program_that_only_writes_to_its_input_is_left_as_it_is() -> None:
    case = build(["x"], [op("a", ".mul_", Ref("x"), 2.0)], [])
    for name in ("readers that are cut off", "outputs"):
        assert BY_NAME[name].rewrite(case) == case


# --- answers that are believed ------------------------------------------------------------------------------------------

PASSES_WITH_DRAWS = Verdict(Outcome.PASSES, Observation("done", random=True))
OTHER = Verdict(Outcome.SLIPPED, Observation("compile", crash=dataclasses.replace(RAISES, name="TypeError")))
RAISES_IN_EAGER = Verdict(Outcome.INVALID, Observation("eager", invalid="eager raises: shapes"))
RIGHT = Verdict(Outcome.PASSES, Observation("done"))
SAME = Verdict(Outcome.FAILS, Observation("done"))


@pytest.mark.parametrize(
    ("name", "believed"),
    [
        ("the same exception", [OTHER, RAISES_IN_EAGER, SAME]),
        ("reseeding", [PASSES_WITH_DRAWS, SAME]),
        ("storage offset", [SAME]),
    ],
)
def test_a_naive_oracle_takes_more_for_the_failure_than_the_failure(name: str, believed: list[Verdict]) -> None:
    every = [PASSES_WITH_DRAWS, OTHER, RAISES_IN_EAGER, RIGHT, SAME]
    assert [verdict for verdict in every if BY_NAME[name].accepts(verdict)] == [v for v in every if v in believed]


def naive(name: str, answer: Callable[[Case], Any]) -> tuple[NaiveOracle, FakeOracle]:
    inner = FakeOracle(unscreened(answer))
    return NaiveOracle(inner, BY_NAME[name], recorded), inner


def test_a_candidate_is_judged_as_it_would_be_written() -> None:
    oracle, inner = naive("order of dims in memory", lambda case: case.inputs[0].meta.stride == (1, 3))
    case = one_input(given("x", tensor((3, 2), stride=(1, 3)), Derived("base", "x")))
    assert inner.judge(case, WRONG_VALUE).fails
    verdict = oracle.judge(case, WRONG_VALUE)
    assert verdict.outcome is Outcome.PASSES
    asked = inner.asked[-1].inputs[0]
    assert isinstance(asked, Input)
    assert asked.value != Derived("base", "x"), "a value can be laid out anew once it is recorded"


def test_what_was_seen_of_the_rewritten_values_is_not_told_of_the_case() -> None:
    seen = Observation("done", divergences=(Divergence("output:a", "value"),), trace=(("a", tensor()),))
    oracle = NaiveOracle(FakeOracle(lambda case: seen), BY_NAME["storage offset"], recorded)
    for verdict in (
        oracle.judge(one_input(given("x")), WRONG_VALUE),
        oracle.glimpse(one_input(given("x")), WRONG_VALUE),
    ):
        assert verdict.fails
        assert verdict.observation == dataclasses.replace(seen, trace=())


def search(case: Case, guard: Guard, answer: Callable[[Case], Any], folder: Path) -> Case:
    inner = FakeOracle(unscreened(answer))
    oracle = NaiveOracle(inner, guard, recorded)
    session = Session(case, Observation("done"), WRONG_VALUE, oracle, folder, save_base=lambda base: None)
    return guard.rewrite(reduce(session, PASSES, recorded).case)


def test_a_search_whose_candidates_all_lose_the_fact_ends_with_the_whole_program(tmp_path: Path) -> None:
    transposed = given("x", tensor((2, 2), stride=(1, 2)))
    chain = dataclasses.replace(line("torch.cumsum", *["torch.sin"] * 5), inputs=(transposed,))

    def fails(case: Case) -> bool:
        return needs("n0")(case) and layout(case)["x"] == ((1, 2), 0)

    kept = search(chain, Guard("none", "nothing is rewritten"), fails, tmp_path / "kept")
    lost = search(chain, BY_NAME["order of dims in memory"], fails, tmp_path / "lost")
    assert (len(kept.graph.ops), fails(kept)) == (1, True)
    assert (len(lost.graph.ops), fails(lost)) == (6, False)


# --- rows ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ONE_FACT)
def test_every_fact_that_a_corpus_case_turns_on_has_a_guard(name: str) -> None:
    for fact in EXPECTED[name].facts:
        assert [guard.name for guard in GUARDS if guard.keeps(fact)], fact
    assert guards_of(EXPECTED[name])


def test_at_least_twelve_cases_turn_on_one_fact_and_no_other_case_has_a_row_unless_it_is_named() -> None:
    assert len(ONE_FACT) >= 12
    assert all(name in EXPECTED and guard in BY_NAME for name, guard in ALSO)
    rows = {name for name, expected in EXPECTED.items() if guards_of(expected)}
    assert rows == {*ONE_FACT, *(name for name, _ in ALSO)}


def test_every_guard_is_tried_on_some_case_and_says_what_it_guards_against() -> None:
    tried = {guard.name for expected in EXPECTED.values() for guard in guards_of(expected)}
    assert tried == set(BY_NAME)
    assert len(BY_NAME) == len(GUARDS)
    assert all(guard.naive for guard in GUARDS)


SMALL, LARGE = Ended(1, 1, "shows"), Ended(3, 1, "shows")
ROW = Row(
    "transposed_input_backend", "x is a transpose; contiguous passes", "order of dims in memory", "row-major", "14 ops, 7 inputs",
    SMALL, Ended(14, 7, "passes"), Ended(1, 1, "passes"), 40, 20.0,
)  # fmt: skip
KEPT = dataclasses.replace(ROW, searched=LARGE, written=None, guard="outputs")


def test_a_fact_is_lost_where_the_repro_alone_does_not_show_the_failure() -> None:
    assert [row.word for row in (ROW, KEPT, dataclasses.replace(KEPT, searched=SMALL))] == [
        "lost",
        "kept, with 2 more ops",
        "kept",
    ]


def test_a_table_is_at_fault_that_does_not_show_what_it_is_for() -> None:
    assert guard_table.faults([ROW, KEPT]) == []
    assert guard_table.faults([KEPT]) == ["transposed_input_backend: no naive reducer loses its fact"]
    broken = dataclasses.replace(ROW, guarded=Ended(1, 1, "exit 125"), differs=("2 ops for 1",))
    assert guard_table.faults([broken]) == [
        "transposed_input_backend: 2 ops for 1",
        "transposed_input_backend: its repro alone exit 125",
    ]


def test_rows_are_read_back_as_they_were_kept() -> None:
    for row in (ROW, KEPT):
        kept = dataclasses.asdict(row)
        assert guard_table.from_json({**kept, "differs": list(row.differs)}) == row


def test_the_document_has_a_line_for_each_row() -> None:
    text = guard_table.markdown([ROW, KEPT])
    lines = [line for line in text.splitlines() if line.startswith("| transposed_input_backend |")]
    assert len(lines) == 2
    assert lines[0].endswith("| 14 ops, 7 inputs | passes | passes | lost |")
    assert "1 programs in which one fact decides: with every guard 1 keep it, with one guard off 1 lose it" in text


FAILING = Observation(
    "done", divergences=(Divergence("output:a", "value", index=(3,)), Divergence("output:b", "value", index=(0,)))
)


@pytest.mark.parametrize(
    ("outputs", "checked"),
    [(["a", "b"], ["output:a", "output:b"]), (["b"], ["output:b"]), (["c"], ["output:c"]), ([], [])],
)
def test_a_repro_that_lost_the_wrong_result_checks_the_last_it_has(outputs: list[str], checked: list[str]) -> None:
    case = build(["x"], [op(name, "torch.relu", Ref("x")) for name in "abc"], outputs)
    seen = guard_table.beside(case, FAILING, Observation("done", random=True))
    assert [row.where for row in seen.divergences] == checked
    assert seen.random and not any(row.index for row in seen.divergences)


def test_what_a_repro_does_alone_is_told_in_a_word() -> None:
    segfault = Signature("crash", "signal", "SIGSEGV")
    assert [guard_table.told(code, WRONG_VALUE) for code in (1, 0, 125, None)] == [
        "shows",
        "passes",
        "exit 125",
        "killed",
    ]
    assert guard_table.told(-11, segfault) == "shows"
