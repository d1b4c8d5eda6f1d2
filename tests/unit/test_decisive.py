"""Facts: each property that a default program would not have, changed and asked for, and what the answers amount to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from minify.case import Case, Input, Recipe, Ref, ScalarInput, Settings, digest, tensor_inputs
from minify.decisive import Fact, find_facts, told
from minify.decisive.rows import ROWS
from minify.sizes import Sizes, atom, multiply
from minify.verdict import Divergence, Observation, Outcome
from tests.cases import build, chain, given, op, tensor
from tests.fake_oracle import FakeOracle
from tests.reducing import WRONG_VALUE, line

R = Ref
RANDN = Recipe("randn")


def on(*inputs: Input | ScalarInput, settings: Settings | None = None) -> Case:
    names = [item.name for item in inputs]
    return build(inputs, [op("out", "torch.foo", *map(R, names))], ["out"], settings)


def facts_of(
    case: Case, rule: Callable[[Case], bool | Outcome] = lambda case: False, random: bool = False
) -> list[Fact]:
    return list(find_facts(case, WRONG_VALUE, FakeOracle(rule), random=random, save_base=lambda base: None))


PLAIN = on(given("x", tensor((1,)), RANDN))
FACTS = [
    ("a transpose", on(given("x", tensor((2, 3), stride=(1, 2)), RANDN)), "x is a transpose (stride (1, 2)); contiguous passes"),
    ("channels-last", on(given("x", tensor((1, 2, 3, 3), stride=(18, 1, 6, 2)), RANDN)), "x is channels-last"),
    ("dims in an odd order", on(given("x", tensor((2, 3, 4), stride=(3, 1, 6)), RANDN)), "dims in another order in memory"),
    ("an expanded row", on(given("x", tensor((2, 3), stride=(0, 1)), RANDN)), "x is expanded (stride (0, 1)); a dense copy passes"),
    ("gaps", on(given("x", tensor((3,), stride=(2,)), RANDN)), "x has gaps (stride (2,)); dense passes"),
    ("an offset", on(given("x", tensor((3,), offset=5), RANDN)), "x starts 5 elements into its storage; offset 0 passes"),
    (
        "shared memory",
        on(given("x", tensor((3,), storage=1), RANDN), given("y", tensor((3,), storage=1), RANDN)),
        "x lies in the memory of y; memory of its own passes",
    ),
    ("a lazy tensor", on(given("x", tensor((1,), "complex64", flags=("conj",)), RANDN)), "x is a lazy conj"),
    ("half precision", on(given("x", tensor((1,), "bfloat16"), RANDN)), "x: bfloat16; float32 passes"),
    ("two dtypes", on(given("x", tensor((1,), "float64"), RANDN), given("y", tensor((1,)), RANDN)), "x: float64; float32 passes"),
    (
        "integers beside floats",
        on(given("x", tensor((1,)), RANDN), given("i", tensor((1,), "int64"), Recipe("ones"))),
        "i: int64 beside float32; float32 passes",
    ),
    (
        "a keyword",
        build([given("x", tensor((1,)), RANDN)], [op("out", "torch.div", R("x"), R("x"), rounding_mode="floor")], ["out"]),
        "rounding_mode='floor' in div; the default passes",
    ),
    ("an odd number", build([given("x", tensor((1,)), RANDN)], [op("out", "operator.mul", R("x"), 0.37)], ["out"]), "0.37 in mul; 1.0"),
    (
        "an operand",
        build([given("x", tensor((1,)), RANDN)], [op("out", "torch.conv2d", R("x"), R("x"), R("x"), (1,))], ["out"]),
        "bias in conv2d; none passes",
    ),
    (
        "a write",
        build([given("x", tensor((1,)), RANDN)], [op("out", ".exp_", R("x"))], ["out"]),
        "exp_ writes to its operand; exp passes",
    ),
    ("zeros", on(given("x", tensor((1,)), Recipe("zeros"))), "x is all zeros; random content passes"),
    ("one number", on(given("x", tensor((1,)), Recipe("full", (float("inf"),)))), "x is filled with inf; random content"),
    ("a literal", on(given("x", tensor((1,)), Recipe("literal", (3.0,)))), "x holds these very values; random content"),
    ("a range", on(given("x", tensor((1,)), Recipe("arange"))), "x counts up from 0; random content passes"),
    ("a size", on(given("x", tensor((17,)), RANDN)), "dim 0 of x: size 17; 16 passes"),
    ("a size not exceeded", on(given("x", tensor((17,)), RANDN)), "dim 0 of x: size 17 and no more; 34 passes"),
    ("a mode", on(given("x", tensor((1,)), RANDN), settings=Settings(mode="max-autotune")), "mode='max-autotune'; the default mode"),
    ("an option", on(given("x", tensor((1,)), RANDN), settings=Settings(options=(("a", 1),))), "the option a=1; its default passes"),
    (
        "a config",
        on(given("x", tensor((1,)), RANDN), settings=Settings(config=(("torch._inductor.config", "b", True),))),
        "the config torch._inductor.config.b=True; its default passes",
    ),
    ("a switch", on(given("x", tensor((1,)), RANDN), settings=Settings(switches=(("deterministic", True),))), "switch deterministic=True"),
    ("autocast", on(given("x", tensor((1,)), RANDN), settings=Settings(autocast=(("cpu", "bfloat16"),))), "autocast; no autocast passes"),
    ("grad mode", on(given("x", tensor((1,)), RANDN), settings=Settings(grad_mode="grad")), "grad mode 'grad'; no_grad passes"),
    (
        "a backward pass",
        on(given("x", tensor((1,), requires_grad=True), RANDN), settings=Settings(grad_mode="grad", backward="ones")),
        "the backward pass; the forward alone passes",
    ),
    ("a gradient", on(given("x", tensor((1,), requires_grad=True), RANDN)), "x requires grad; no gradient passes"),
    ("a parameter", on(given("x", tensor((1,), flags=("parameter",)), RANDN)), "x is a parameter; a plain input passes"),
    ("a dynamic dim", on(given("x", tensor((2,)), RANDN, dynamic=(0,))), "x has dynamic dims (0,); static passes"),
    ("a number", on(given("x", tensor((1,)), RANDN), ScalarInput("n", 3, dynamic=True)), "n is a number that the compiler may keep"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "words"), [row[1:] for row in FACTS], ids=[row[0] for row in FACTS])
def test_what_a_default_program_would_not_have_is_asked_for(case: Case, words: str) -> None:
    assert any(words in str(fact) for fact in facts_of(case)), [str(fact) for fact in facts_of(case)]


@pytest.mark.parametrize(("case", "words"), [row[1:] for row in FACTS], ids=[row[0] for row in FACTS])
def test_the_changed_program_is_another(case: Case, words: str) -> None:
    for fact in facts_of(case):
        assert digest(fact.case) != digest(case)


def test_a_plain_program_has_no_facts() -> None:
    assert facts_of(PLAIN) == []


def test_the_answer_says_whether_a_fact_decides() -> None:
    case = on(given("x", tensor((2, 2), stride=(1, 2)), Recipe("zeros")))

    def transposed(case: Case) -> bool:
        return tensor_inputs(case)[0].meta.stride == (1, 2)

    decisive, others = told(facts_of(case, transposed))
    assert "x is a transpose (stride (1, 2)); contiguous passes" in decisive
    assert "x is all zeros; random content fails as well" in others


@pytest.mark.parametrize("outcome", [Outcome.SLIPPED, Outcome.TIMED_OUT, Outcome.BROKEN_WORKER])
def test_any_other_answer_tells_nothing(outcome: Outcome) -> None:
    facts = facts_of(on(given("x", tensor((1,)), Recipe("zeros"))), lambda case: outcome)
    assert facts and told(facts) == ((), ())
    assert not any(fact.as_row()["decisive"] for fact in facts)


def test_the_next_way_is_asked_where_the_first_makes_no_sense() -> None:
    case = build([given("x", tensor((6, 3)), RANDN)], [op("y", ".view", R("x"), (6, 3))], ["y"])

    def rule(case: Case) -> bool | Outcome:
        (x,) = tensor_inputs(case)
        return Outcome.INVALID if case.graph.ops[0].args[1:] != (x.meta.shape,) else False

    (fact,) = (fact for fact in facts_of(case, rule) if fact.change.instead == "5")
    assert fact.decisive and str(fact) == "dim 0 of x: size 6; 5 passes"


@pytest.mark.parametrize(
    ("fails", "words", "others"),
    [
        ((17, 18, 34), "dim 0 of x: size 17 or more (34 fails as well); 16 passes", ()),
        ((17,), "dim 0 of x: size 17 exactly; 16 passes, 34 passes", ()),
        ((16, 17), "dim 0 of x: size 17 and no more; 34 passes", ("dim 0 of x: size 17; 16 fails as well",)),
    ],
)
def test_what_a_smaller_and_a_larger_size_do_is_told_together(
    fails: tuple[int, ...], words: str, others: tuple[str, ...]
) -> None:
    facts = facts_of(on(given("x", tensor((17,)), RANDN)), lambda case: tensor_inputs(case)[0].meta.shape[0] in fails)
    assert told(facts) == ((words,), others)
    assert [row["instead"] for row in (fact.as_row() for fact in facts)] == ["16", "34"]


def test_of_real_data_only_a_smaller_size_can_be_told() -> None:
    assert "dim 0 of x: size 17; 16 passes" in told(facts_of(on(given("x", tensor((17,))))))[0]


def test_an_answer_that_tells_nothing_of_a_larger_size_is_left_out() -> None:
    def rule(case: Case) -> bool | Outcome:
        return {16: False, 34: Outcome.SLIPPED}[tensor_inputs(case)[0].meta.shape[0]]

    assert told(facts_of(on(given("x", tensor((17,)), RANDN)), rule)) == (("dim 0 of x: size 17; 16 passes",), ())


def test_sizes_of_which_the_same_is_true_share_a_line() -> None:
    case = on(given("x", tensor((2, 2)), RANDN), given("y", tensor((6,)), RANDN))
    parts = {("x", 0): atom("x.0"), ("x", 1): atom("x.1"), ("y", 0): multiply(atom("v.1"), atom("v.2"))}
    free = (("x.0", 2), ("x.1", 2), ("v.1", 2), ("v.2", 3))
    case = dataclasses.replace(case, sizes=Sizes(free, tuple(parts.items()), of=digest(case)))
    decisive, _ = told([fact for fact in facts_of(case) if fact.row == "size"])
    assert decisive == (
        "part of dim 0 of y: size 3 exactly; 2 passes, 6 passes",
        "dim 0 of x, dim 1 of x, part of dim 0 of y: size 2; 1 passes",
    )


def test_a_dim_of_which_nothing_is_known_is_told_with_its_equals() -> None:
    case = on(given("x", tensor((6, 2)), RANDN), given("y", tensor((6,)), RANDN))
    case = dataclasses.replace(case, sizes=Sizes((("x.1", 2),), ((("x", 1), atom("x.1")),), of=digest(case)))
    assert [fact.change.what for fact in facts_of(case) if fact.row == "size"] == [
        "dim 0 of x, dim 0 of y: size 6",
        "dim 0 of x, dim 0 of y: size 6 and no more",
        "dim 1 of x: size 2",
    ]


def test_the_seed_of_a_program_that_draws_is_asked_for() -> None:
    assert [fact.row for fact in facts_of(PLAIN, random=True)] == ["setting"]


def test_a_value_returned_beside_the_result_is_a_consumer() -> None:
    case = build(["x"], [op("a", "torch.relu", R("x")), op("b", "torch.exp", R("a"))], ["b", "a"])
    assert "a is returned as well; keeping it inside passes" in told(facts_of(case))[0]


def test_calls_are_asked_for_and_not_told() -> None:
    facts = facts_of(line("torch.relu", ".t"))
    calls = [str(fact) for fact in facts if fact.row == "call"]
    assert calls == ["the call of relu; its result as an input passes", "the view t; its result as an input passes"]
    assert not any(text in told(facts)[0] for text in calls)


def test_operands_are_asked_for_one_by_one() -> None:
    norm = op("y", "torch.nn.functional.layer_norm", R("x"), (8,), R("w"), R("b"))
    facts = [str(fact) for fact in facts_of(build(["x", "w", "b"], [norm], ["y"])) if fact.row == "operand"]
    assert facts == ["weight in layer_norm; none passes", "bias in layer_norm; none passes"]


def test_that_no_piece_of_a_call_does_is_asked_for_and_not_told() -> None:
    facts = facts_of(build(["x"], [op("y", "torch.nn.functional.silu", R("x"))], ["y"]))
    assert "the whole of silu; torch.sigmoid(x) passes" in [str(fact) for fact in facts if fact.row == "call"]
    assert not any("silu" in text for text in told(facts)[0])


def test_a_call_is_told_without_which_nothing_is_drawn_any_more() -> None:
    case = build(["x"], [op("a", "torch.rand_like", R("x")), op("b", "torch.exp", R("a"))], ["b"])

    def draws(case: Case) -> Observation:
        return Observation("done", random="torch.rand_like" in [call.target for call in case.graph.ops])

    text = "the call of rand_like, which draws random numbers; its result as an input passes"
    oracle = FakeOracle(draws)
    facts = find_facts(case, WRONG_VALUE, oracle, random=True, save_base=lambda base: None)
    assert [fact.row for fact in facts if str(fact) == text] == ["draw"]
    assert text in told(facts)[0]
    assert not any("call of exp" in line for line in told(facts)[0])
    still = find_facts(
        case,
        WRONG_VALUE,
        FakeOracle(lambda case: Observation("done", random=True)),
        random=True,
        save_base=lambda b: None,
    )
    assert not any("draws random" in line for line in told(still)[0]), "others draw as well"


def test_a_fact_has_the_query_behind_it_on_record() -> None:
    (fact,) = facts_of(on(given("x", tensor((1,)), Recipe("zeros"))))
    assert fact.as_row() == {
        "kind": "values", "fact": "x is all zeros", "instead": "random content", "outcome": "passes", "decisive": True,
        "query": digest(fact.case),
    }  # fmt: skip


def test_no_question_is_asked_twice() -> None:
    case = on(given("x", tensor((2, 2), stride=(1, 2)), Recipe("zeros")))
    oracle = FakeOracle(lambda case: False, caching=False)
    facts = find_facts(case, WRONG_VALUE, oracle, random=True, save_base=lambda base: None)
    assert len({digest(fact.case) for fact in facts}) == len(facts) == oracle.queries


def test_of_another_size_no_single_element_is_told() -> None:
    failing = Observation("done", divergences=(Divergence("output:y", "value", index=(16,), total=17),))
    (size, *_), (zeros, *_) = (
        [fact for fact in facts_of(on(given("x", tensor((17,)), Recipe("zeros")))) if fact.row == row]
        for row in ("size", "values")
    )
    assert size.seen_beside(failing).divergences[0].index == ()
    assert zeros.seen_beside(failing).divergences[0].index == (16,)


def test_every_row_is_asked_without_an_error_of_whatever_there_is() -> None:
    strange = dataclasses.replace(chain("x", ("torch.relu",), (".mul", 2.0)), settings=Settings(dynamic=True, seed=3))
    told_of = [change for changes in ROWS.values() for change in changes(strange, True)]
    assert {"dynamic=True", "the seed of its random numbers", "the call of relu"} <= {change.what for change in told_of}
    assert all(change.instead and change.cases for change in told_of)


def test_a_change_that_draws_other_numbers_is_asked_with_yet_others() -> None:
    case = on(given("x", tensor((2, 2), stride=(1, 2)), RANDN))

    def lucky(case: Case) -> bool:
        return tensor_inputs(case)[0].meta.stride == (1, 2) or case.settings.seed == 1

    decisive, others = told(facts_of(case, lucky))
    assert "x is a transpose (stride (1, 2)); contiguous fails as well" in others
    assert not any("transpose" in fact for fact in decisive)


def test_numbers_that_are_not_drawn_need_no_second_question() -> None:
    case = on(given("x", tensor((2, 2), stride=(1, 2)), Recipe("ones")))
    oracle = FakeOracle(lambda case: False, caching=False)
    facts = find_facts(case, WRONG_VALUE, oracle, random=False, save_base=lambda base: None)
    assert oracle.queries == len(facts)
