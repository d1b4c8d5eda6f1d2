"""What is left out of the compiler, in words that a command line takes and that a digest tells apart."""

from __future__ import annotations

import pytest

from minify.ablation import WATCHED, Ablation, alone, digest, parse, without


@pytest.mark.parametrize(
    ("ablation", "options"),
    [
        (WATCHED, ()),
        (alone("fusion"), ("--off", "fusion")),
        (without("fusion", ["op1+op2", "op2+op3"]), ("--off", "fusion:op1+op2,op2+op3")),
        (alone("pass", ["post_grad.mine#2"]), ("--only", "pass:post_grad.mine#2")),
    ],
)
def test_an_ablation_is_read_from_the_words_that_it_is_told_in(ablation: Ablation, options: tuple[str, ...]) -> None:
    assert ablation.options() == options
    if options:
        assert parse(*options) == ablation


@pytest.mark.parametrize(
    ("flag", "text"),
    [("--only", "fusion"), ("--only", "fusion:"), ("--off", ""), ("--off", ":op1"), ("--on", "fusion")],
)
def test_words_that_leave_nothing_or_everything_out_are_refused(flag: str, text: str) -> None:
    with pytest.raises(ValueError, match="--off KIND"):
        parse(flag, text)


def test_what_stays_is_all_but_the_names_or_the_names_alone() -> None:
    assert [without("fusion", ["a"]).keeps(name) for name in "ab"] == [False, True]
    assert [alone("fusion", ["a"]).keeps(name) for name in "ab"] == [True, False]
    assert not alone("fusion").keeps("a")


def test_two_questions_of_one_case_have_two_digests() -> None:
    asked = [WATCHED, alone("fusion"), alone("fusion", ["a"]), without("fusion", ["a"]), without("lowering", ["a"])]
    assert len({digest("0" * 32, ablation) for ablation in asked}) == len(asked)
    assert digest("0" * 32, WATCHED) == "0" * 32  # the very program
