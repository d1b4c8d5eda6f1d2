"""The switches on torch's own parts, without a compile: what they note, what a release may lack, and that all is put back."""

from __future__ import annotations

import ast
import importlib
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._inductor import config as inductor_config

from minify import torch_internals, worker
from minify.ablation import WATCHED, Ablation, Listing, alone, without
from minify.localize.inside import KINDS
from minify.torch_internals import ablations, inductor_fusion
from minify.torch_internals.inductor_options import OPTIONS
from minify.torch_internals.switches import Handle, Switch, owner, replaced
from minify.verdict import Question
from tests.reducing import line

CPU = frozenset({"cpu"})


def listings(ablation: Ablation, devices: frozenset[str] = CPU) -> dict[str, Listing]:
    with torch_internals.ablated(ablation, devices) as met:
        return {listing.kind: listing for listing in met()}


def test_a_switch_notes_what_it_is_asked_for_under_a_name_that_can_be_written_down() -> None:
    switch = Switch(without("pass", ["a_b"]), CPU)
    assert [switch("a, b", "first"), switch("c"), switch("c", "again")] == [False, True, True]
    assert [(application.name, application.about) for application in switch.found] == [("a_b", "first"), ("c", "again")]


def test_watched_everything_stays() -> None:
    assert all(Switch(WATCHED, CPU)(name) for name in ("a", "b"))


@pytest.fixture
def place() -> Iterator[str]:
    """A function in a module of its own."""
    import sys

    sys.modules["made_up"] = module = types.ModuleType("made_up")
    module.Made = type("Made", (), {"up": lambda self: 1})  # type: ignore[attr-defined]
    yield "made_up:Made.up"
    del sys.modules["made_up"]


def test_what_is_replaced_is_put_back_even_if_the_program_raises(place: str) -> None:
    holder, name = owner(place)
    before = vars(holder)[name]
    with pytest.raises(KeyError), replaced(place, lambda inner: lambda self: inner(self) + 1):
        assert holder().up() == 2
        raise KeyError
    assert vars(holder)[name] is before


def test_a_kind_whose_place_this_torch_lacks_is_not_available_and_no_error(
    place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    def install(switch: Switch) -> Any:
        raise AssertionError("nothing to install in")

    gone = Handle("fusion", (place, "made_up:Made.down", "no_such_module:it"), install)
    monkeypatch.setitem(ablations.HANDLES, "fusion", gone)
    listed = listings(WATCHED)["fusion"]
    assert listed == Listing("fusion", (), "no made_up:Made.down and no no_such_module:it")
    asked = Question("judge", line("torch.neg"), "accuracy", str(tmp_path), ablation=alone("fusion"))
    assert worker.judge(asked, lambda phase: None).invalid == f"not available here: {listed.missing}"


def test_a_kind_that_nobody_knows_is_told() -> None:
    assert torch_internals.cannot_ablate(alone("magic")) == "nothing is known of a 'magic'"
    assert [torch_internals.cannot_ablate(asked) for asked in (None, WATCHED, alone("codegen"))] == ["", "", ""]


@pytest.mark.parametrize("kind", list(ablations.HANDLES))
def test_this_torch_has_a_place_for_every_kind_and_gets_it_back(kind: str) -> None:
    handle = ablations.HANDLES[kind]
    assert not handle.missing()
    before = [getattr(*owner(place)) for place in handle.needs]
    with torch_internals.ablated(alone(kind), CPU) as met:
        (listing,) = met()
        assert listing.kind == kind
    assert [getattr(*owner(place)) for place in handle.needs] == before


def test_options_are_off_meanwhile_and_only_those_that_make_a_difference_are_listed() -> None:
    with torch_internals.ablated(alone("codegen"), CPU) as met:
        assert inductor_config.cpp.simdlen == 1 and not inductor_config.cpp.enable_loop_tail_vec
        (listing,) = met()
    assert inductor_config.cpp.simdlen is None and inductor_config.cpp.enable_loop_tail_vec
    assert "cpp.simdlen" in listing.names
    assert "cpp.enable_floating_point_contract_flag" not in listing.names  # it is off as it is
    assert not [name for name in listing.names if name.startswith("triton")]
    gpu = listings(WATCHED, frozenset({"cuda"}))["codegen"].names
    assert "triton.persistent_reductions" in gpu and "cpp.simdlen" not in gpu


def test_one_option_alone_leaves_the_others_off() -> None:
    with torch_internals.ablated(alone("codegen", ["cpp.simdlen"]), CPU):
        assert inductor_config.cpp.simdlen is None and not inductor_config.cpp.enable_loop_tail_vec
    with torch_internals.ablated(without("codegen", ["cpp.simdlen"]), CPU):
        assert inductor_config.cpp.simdlen == 1 and inductor_config.cpp.enable_loop_tail_vec


def test_an_option_says_how_it_is_set_by_hand() -> None:
    listed = {one.name: one.about for one in listings(WATCHED)["codegen"].applications}
    assert listed["cpp.simdlen"] == "torch._inductor.config.cpp.simdlen = 1"
    assert len({option.key for option in OPTIONS}) == len(OPTIONS)


class Operation:
    """What of a scheduler's node the names of fusions are made of."""

    def __init__(self, name: str, reads: str = "", writes: str = "") -> None:
        self._name = name
        self._writes = set(writes.split())
        self.read_writes = types.SimpleNamespace(reads=[types.SimpleNamespace(name=read) for read in reads.split()])
        self.node = types.SimpleNamespace(origin_node=f"from_{name}")

    def get_name(self) -> str:
        return self._name

    def get_buffer_names(self) -> set[str]:
        return self._writes


class Kernel:
    def __init__(self, *operations: Operation) -> None:
        self._operations = operations

    def get_nodes(self) -> tuple[Operation, ...]:
        return self._operations


A, B, C = Operation("op9", "x", "a"), Operation("op10", "a", "b"), Operation("op11", "b x", "c")


def scheduled(ablation: Ablation, monkeypatch: pytest.MonkeyPatch) -> tuple[list[bool], tuple[str, ...]]:
    """Whether a and b, then ab and c may be fused, and the names of the merges, all of which are made."""
    place, fuse = ablations.HANDLES["fusion"].needs
    for where in (place, fuse):
        monkeypatch.setattr(*owner(where), lambda *args, **kwargs: True)
    scheduler = torch._inductor.scheduler.Scheduler
    with torch_internals.ablated(ablation, CPU) as met:
        pairs = [(Kernel(A), Kernel(B)), (Kernel(A, B), Kernel(C))]
        may = [scheduler.can_fuse(None, *pair) for pair in pairs]  # type: ignore[arg-type]
        for pair in pairs:
            scheduler.fuse_two_nodes(None, *pair, None)  # type: ignore[arg-type]
        return may, met()[0].names if ablation.kind else {one.kind: one for one in met()}["fusion"].names


def test_a_merge_is_named_by_the_nearest_two_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    may, names = scheduled(WATCHED, monkeypatch)
    assert may == [True, True] and names == ("op9+op10", "op10+op11")


@pytest.mark.parametrize(
    ("ablation", "may"),
    [
        (alone("fusion"), [False, False]),
        (alone("fusion", ["op9+op10"]), [True, False]),
        (alone("fusion", ["op10+op11"]), [False, True]),  # in whatever company
        (without("fusion", ["op10+op11"]), [True, False]),
        (without("fusion", ["op9+op11"]), [True, False]),
    ],
)
def test_a_pair_that_is_off_stays_apart_in_whatever_company(
    ablation: Ablation, may: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scheduled(ablation, monkeypatch)[0] == may


def test_an_operation_is_told_by_the_node_that_it_was_lowered_from() -> None:
    assert inductor_fusion._origin(A) == "from_op9"


def test_torchs_own_switches_that_are_told_are_known_to_it() -> None:
    told = [line for kind in KINDS for line in kind.config] + [option.setting for option in OPTIONS]
    for line_ in told:
        name, value = line_.split(" = ")
        root, key = name.split(".config.")
        with importlib.import_module(f"{root}.config").patch({key: ast.literal_eval(value)}):
            pass
