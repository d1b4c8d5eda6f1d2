"""Putting settings back to their defaults."""

from __future__ import annotations

import dataclasses

import pytest

from minify.case import Case, Const, Input, Ref, ScalarInput, Settings, size, tensor_inputs
from minify.passes.contract import Site
from minify.passes.simplify_settings import SIMPLIFY_SETTINGS
from minify.passes.wellformed import faults
from tests.cases import build, given, op, show, tensor


def under(**changes: object) -> Case:
    settings = dataclasses.replace(Settings(), **changes)  # type: ignore[arg-type]
    return build(["x"], [op("a", "torch.relu", Ref("x"))], ["a"], settings)


CONFIG = (("torch._inductor.config", "a", 1), ("torch._inductor.config", "b", Const("None")))
REWRITES: list[tuple[str, Case, Site, Settings]] = [
    ("mode", under(mode="max-autotune"), ("mode",), Settings()),
    ("dynamic", under(dynamic=True), ("dynamic",), Settings()),
    ("seed", under(seed=3), ("seed",), Settings()),
    ("one option", under(options=(("a", 1), ("b", 2))), ("options", "a"), Settings(options=(("b", 2),))),
    ("one config", under(config=CONFIG), ("config", "torch._inductor.config", "b"), Settings(config=CONFIG[:1])),
    ("a switch", under(switches=(("deterministic", True),)), ("switch", "deterministic"), Settings()),
    (
        "the first autocast",
        under(autocast=(("cpu", "bfloat16"), ("cpu", "float16"))),
        ("autocast", 0),
        Settings(autocast=(("cpu", "float16"),)),
    ),
    ("a backward", under(backward="randn", grad_mode="grad"), ("backward", ""), Settings(grad_mode="grad")),
    (
        "random cotangents",
        under(backward="randn", grad_mode="grad"),
        ("backward", "ones"),
        Settings(grad_mode="grad", backward="ones"),
    ),
    ("grad mode", under(grad_mode="grad"), ("grad_mode", "no_grad"), Settings()),
    ("inference mode", under(grad_mode="inference"), ("grad_mode", "no_grad"), Settings()),
]


@pytest.mark.parametrize(("case", "site", "expected"), [row[1:] for row in REWRITES], ids=[row[0] for row in REWRITES])
def test_it_puts_back(case: Case, site: Site, expected: Settings) -> None:
    assert site in SIMPLIFY_SETTINGS.find(case)
    smaller = SIMPLIFY_SETTINGS.rewrite(case, (site,))
    assert smaller.settings == expected
    assert size(smaller) < size(case)


@pytest.mark.parametrize("case", [under(), under(backend="aot_eager")], ids=["the defaults", "another backend"])
def test_nothing_to_put_back_in(case: Case) -> None:
    assert SIMPLIFY_SETTINGS.find(case) == ()


def test_grad_mode_stays_while_there_is_a_backward() -> None:
    case = under(backward="ones", grad_mode="grad")
    assert SIMPLIFY_SETTINGS.find(case) == (("backward", ""),)


def test_everything_can_go_at_once_and_no_backward_beats_plain_cotangents() -> None:
    case = under(mode="max-autotune", backward="randn", grad_mode="grad", options=(("a", 1),), config=CONFIG, seed=1)
    smaller = SIMPLIFY_SETTINGS.rewrite(case, SIMPLIFY_SETTINGS.find(case))
    assert smaller.settings == Settings(grad_mode="grad")


def input_case() -> Case:
    meta = tensor(requires_grad=True, flags=("parameter", "nonleaf", "conj"))
    inputs: list[Input | ScalarInput] = [given("x", meta, dynamic=(0, 1)), ScalarInput("n", 4, dynamic=True)]
    return build(inputs, [op("a", ".view", Ref("x"), (Ref("n"), -1))], ["a"])


def test_every_property_of_an_input_is_a_site_of_its_own() -> None:
    assert SIMPLIFY_SETTINGS.find(input_case()) == (
        ("dynamic_dims", "x"),
        ("requires_grad", "x"),
        ("flag", "x", "parameter"),
        ("flag", "x", "nonleaf"),
        ("literal", "n"),
    )
    for site in SIMPLIFY_SETTINGS.find(input_case()):
        assert size(SIMPLIFY_SETTINGS.rewrite(input_case(), (site,))) < size(input_case())


def test_all_properties_of_inputs_go_at_once() -> None:
    smaller = SIMPLIFY_SETTINGS.rewrite(input_case(), SIMPLIFY_SETTINGS.find(input_case()))
    assert show(smaller) == "x | a = .view(x, (4, -1)) | a"
    (item,) = tensor_inputs(smaller)
    assert (item.dynamic_dims, item.meta.requires_grad, item.meta.flags) == ((), False, ("conj",))
    assert faults(smaller) == ()
