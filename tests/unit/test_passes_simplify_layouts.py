"""Plainer layouts, one fact at a time, and what becomes of the elements."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from minify import store
from minify.case import Case, Derived, Input, Recipe, Recorded, TensorMeta, Value, Window, size
from minify.passes.simplify_layouts import SIMPLIFY_LAYOUTS
from minify.replay import replay
from tests.cases import build, given, tensor

RANDN = Recipe("randn")


def holding(meta: TensorMeta, value: Value = RANDN) -> Case:
    return build([given("x", meta, value)], [], ["x"])


def laid(shape: tuple[int, ...], stride: tuple[int, ...], offset: int, storage_size: int) -> TensorMeta:
    return TensorMeta(shape, stride, offset, "float32", "cpu", False, 0, storage_size)


TURNED, SHIFTED, GAPS = laid((4, 3), (1, 4), 0, 12), laid((3,), (1,), 5, 8), laid((4, 3), (1, 8), 0, 20)
OFFERS = [
    ("a fresh tensor", holding(laid((4, 3), (3, 1), 0, 12)), []),
    ("a transpose", holding(TURNED), ["row-major"]),
    ("an offset", holding(SHIFTED), ["no offset", "offset 1"]),
    ("the least offset", holding(laid((3,), (1,), 1, 4)), ["no offset"]),
    ("a transpose with gaps", holding(GAPS), ["dense", "row-major"]),
    ("an expanded row", holding(laid((4, 3), (0, 1), 0, 3)), ["dense", "row-major"]),
    ("a dim of size 1 with an odd stride", holding(laid((1, 3), (7, 1), 0, 3)), ["dense", "row-major"]),
    ("an expanded row that would grow to gigabytes", holding(laid((1 << 15, 1 << 15), (0, 1), 0, 1 << 15)), []),
    ("no elements", holding(laid((0, 3), (3, 1), 0, 0)), []),
    ("values that are not recorded yet", holding(TURNED, Derived("b", "y")), []),
]


@pytest.mark.parametrize(("case", "facts"), [row[1:] for row in OFFERS], ids=[row[0] for row in OFFERS])
def test_what_is_offered_for(case: Case, facts: list[str]) -> None:
    sites = SIMPLIFY_LAYOUTS.find(case)
    assert sorted(str(fact) for fact, _ in sites) == sorted(facts)
    for site in sites:
        assert size(SIMPLIFY_LAYOUTS.rewrite(case, (site,))) < size(case)


def values_of(case: Case, root: Path) -> torch.Tensor:
    (value,) = replay(case, root).make_inputs()
    assert isinstance(value, torch.Tensor)
    return value


@pytest.mark.parametrize("window", [None, Window((4, 3), (1, 4), 2)])
def test_recorded_elements_stay_what_they_are(window: Window | None, tmp_path: Path) -> None:
    digest = store.save_storage(tmp_path, torch.arange(16.0))
    case = holding(laid((4, 3), (1, 5), 1, 16), Recorded(digest, window))
    before = values_of(case, tmp_path)
    for sites in (*((site,) for site in SIMPLIFY_LAYOUTS.find(case)), SIMPLIFY_LAYOUTS.find(case)):
        after = SIMPLIFY_LAYOUTS.rewrite(case, sites)
        meta = after.inputs[0].meta  # type: ignore[union-attr]
        value = values_of(after, tmp_path)
        assert torch.equal(value, before)
        assert (value.stride(), value.storage_offset()) == (meta.stride, meta.offset)
        assert value.untyped_storage().nbytes() == 4 * meta.storage_size
    assert value.is_contiguous() and value.storage_offset() == 0


def test_inputs_that_share_memory_get_memory_of_their_own_with_the_elements_they_had(tmp_path: Path) -> None:
    recorded = Recorded(store.save_storage(tmp_path, torch.arange(12.0)))
    first, second = tensor((3, 4), storage=2), tensor((4, 3), stride=(1, 4), storage=2)
    case = build([given("x", first, recorded), given("y", second, recorded)], [], ["x", "y"])
    assert SIMPLIFY_LAYOUTS.find(case) == (("unshared", "x"), ("unshared", "y"))
    for sites in (SIMPLIFY_LAYOUTS.find(case), SIMPLIFY_LAYOUTS.find(case)[:1]):
        after = SIMPLIFY_LAYOUTS.rewrite(case, sites)
        assert size(after) < size(case)
        x, y = replay(after, tmp_path).make_inputs()
        assert torch.equal(x, torch.arange(12.0).reshape(3, 4)) and torch.equal(y, x.t())
        assert x.data_ptr() != y.data_ptr() and y.stride() == (1, 4)


def test_lazy_bits_go_one_by_one(tmp_path: Path) -> None:
    meta = TensorMeta((3,), (1,), 0, "complex64", "cpu", False, 0, 3, ("conj", "neg"))
    case = holding(meta)
    assert SIMPLIFY_LAYOUTS.find(case) == (("conj", "x"), ("neg", "x"))
    plain = SIMPLIFY_LAYOUTS.rewrite(case, SIMPLIFY_LAYOUTS.find(case))
    item = plain.inputs[0]
    assert isinstance(item, Input) and item.meta.flags == ()
    assert not values_of(plain, tmp_path).is_conj()
