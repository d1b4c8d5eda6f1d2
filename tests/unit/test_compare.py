"""What counts as diverging: everything a plain tolerance check lets through, and nothing that eager does itself."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from minify.compare import alias_pattern, compare_results
from minify.tolerance import Tolerance
from minify.verdict import Divergence

INF, NAN = math.inf, math.nan


def rows(out: Any, eager: Any, reference: Any = None, **how: Any) -> dict[str, Divergence]:
    """The divergences by kind."""
    where = how.pop("where", "output:y")
    found = compare_results(where, out, eager, reference, how.pop("tolerance", Tolerance()), **how)
    return {row.wrong.kind: row.wrong for row in found if row.wrong}


def kinds(out: Any, eager: Any, reference: Any = None, **how: Any) -> list[str]:
    return sorted(rows(out, eager, reference, **how))


def drift(out: Any, eager: Any, reference: Any = None, **how: Any) -> list[Divergence]:
    found = compare_results("output:y", out, eager, reference, Tolerance(), **how)
    return [row.drift for row in found if row.drift]


def within(out: Any, eager: Any, reference: Any = None, **how: Any) -> Divergence | None:
    """The numbers of a result that keeps its tolerance."""
    (row,) = compare_results(how.pop("where", "output:y"), out, eager, reference, Tolerance(), **how)
    assert row.wrong is None and row.drift is None
    return row.within


def one_wrong(size: int, at: int, by: float) -> tuple[torch.Tensor, torch.Tensor]:
    right = torch.linspace(0.5, 1, size)
    wrong = right.clone()
    wrong[at] += by
    return wrong, right


def f(*values: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


@pytest.mark.parametrize(
    ("out", "eager", "expected"),
    [
        (torch.ones(2, 3), torch.ones(2, 3), []),
        (torch.ones(3, 2).t(), torch.ones(2, 3), ["stride"]),
        (torch.ones(1), torch.ones(1000), ["shape"]),
        (torch.ones(1, 3), torch.ones(3), ["shape"]),
        (torch.ones(3, dtype=torch.float64), torch.ones(3), ["dtype"]),
        (torch.zeros(3, dtype=torch.float64), torch.ones(3), ["dtype"]),
        (torch.zeros(3, dtype=torch.int32), torch.ones(3, dtype=torch.int64), ["dtype"]),
        (torch.zeros(3, dtype=torch.int64), torch.ones(3), ["dtype"]),
        (torch.ones(3), torch.ones(3, dtype=torch.complex64), ["dtype"]),
        (torch.ones(3), torch.ones(3, dtype=torch.bool), ["dtype"]),
        (torch.ones(3, device="meta"), torch.ones(3), ["structure"]),
        (torch.ones(3).to_sparse(), torch.ones(3), ["structure"]),
        (f(0.0, 2.0).to_sparse(), f(0.0, 1.0).to_sparse(), ["value"]),
        (f(-5e-4), f(5e-4), ["value"]),
        (f(0.0, 0.0), f(8e-4, -8e-4), ["value"]),
        (*one_wrong(10**6, 123_456, 0.09), ["value"]),
        (f(100_099, dtype=torch.int64), f(100_000, dtype=torch.int64), ["integer"]),
        (f(2**53 + 1, dtype=torch.int64), f(2**53, dtype=torch.int64), ["integer"]),
        (f(1, 0, dtype=torch.uint8), f(1, 2, dtype=torch.uint8), ["integer"]),
        (f(1, 0, dtype=torch.uint16), f(1, 2, dtype=torch.uint16), ["integer"]),
        (f(True, False), f(True, True, dtype=torch.bool), ["dtype"]),
        (f(True, False, dtype=torch.bool), f(True, True, dtype=torch.bool), ["integer"]),
        (f(1 + 1j, dtype=torch.complex64), f(1 - 1j, dtype=torch.complex64), ["value"]),
        (f(100 + 1e-4j, dtype=torch.complex64), f(100 - 1e-4j, dtype=torch.complex64), []),
        (f(6.0, NAN), f(1.0, NAN), ["value"]),
        (f(6.0, INF), f(1.0, INF), ["value"]),
        (f(1.0, NAN), f(1.0, NAN), []),
        (f(1.0, INF), f(1.0, INF), []),
        (f(1.0, -INF), f(1.0, INF), ["nonfinite"]),
        (f(1.0, INF), f(1.0, NAN), ["nonfinite"]),
        (f(1.0, 3.4e38), f(1.0, INF), ["nonfinite"]),
        (f(1.0, NAN), f(1.0, 2.0), ["nonfinite"]),
        (f(complex(1, NAN), dtype=torch.complex64), f(complex(6, NAN), dtype=torch.complex64), ["value"]),
        (f(1.02, dtype=torch.bfloat16), f(1.0, dtype=torch.bfloat16), ["value"]),
        (f(1.008, dtype=torch.bfloat16), f(1.0, dtype=torch.bfloat16), []),
        (f(1.0 + 3e-7), f(1.0), []),
        (f(1.0001), f(1.0), ["value"]),
        (torch.ones(()), torch.zeros(()), ["value"]),
        (torch.ones(0, 3), torch.ones(0, 3), []),
        (torch.ones(3, 0).t(), torch.ones(0, 3), []),
        (torch.ones(2, 1).as_strided((2, 1), (1, 5)), torch.ones(2, 1), ["stride"]),
        (None, torch.ones(3), ["structure"]),
        (torch.ones(3), None, ["structure"]),
        (None, None, []),
        (3, 3, []),
        (3, 4, ["structure"]),
        (3, 3.0, ["structure"]),
        (True, 1, ["structure"]),
        (0.1 + 1e-8, 0.1, []),
        (0.2, 0.1, ["structure"]),
        (NAN, NAN, []),
        (INF, NAN, ["structure"]),
        (torch.ones(3).requires_grad_(), torch.zeros(3), ["value"]),
        (f(1 + 1j, dtype=torch.complex64).conj(), f(1 - 1j, dtype=torch.complex64), []),
    ],
)
def test_a_result_diverges_in_the_kind_it_departs_in(out: Any, eager: Any, expected: list[str]) -> None:
    assert kinds(out, eager) == expected


def test_numbers_of_a_divergence_are_those_of_its_worst_element() -> None:
    row = rows(f(1.0, 2.5, 4.0), f(1.0, 2.0, 3.0))["value"]
    assert (row.index, row.bad, row.total, row.expected, row.observed) == ((2,), 2, 3, "3", "4")
    assert row.max_abs == 1.0
    assert row.max_rel == pytest.approx(1 / 3)
    assert row.excess == pytest.approx(1 / 4e-5)


def test_a_result_that_keeps_its_tolerance_has_its_numbers_too() -> None:
    row = within(f(1.0, 2.0, 4.0 + 2e-5), f(1.0, 2.0, 4.0), f(1.0 + 4e-6, 2.0, 4.0, dtype=torch.float64))
    assert row is not None and (row.index, row.bad, row.total, row.kind) == ((2,), 0, 3, "value")
    assert (row.max_abs, row.max_rel) == (pytest.approx(2e-5, rel=0.1), pytest.approx(5e-6, rel=0.1))
    assert row.eager_abs == pytest.approx(4e-6, rel=0.1)
    assert row.excess == pytest.approx(2e-5 / 5e-5, rel=0.1)


def test_of_a_result_that_is_eagers_own_the_numbers_are_eagers_error() -> None:
    row = within(f(1.0, 0.0), f(1.0, 0.0), f(1.001, 0.0, dtype=torch.float64))
    assert row is not None and row.max_abs == row.eager_abs == pytest.approx(1e-3)
    assert row.max_rel == pytest.approx(1e-3 / 1.001), "an element that is to be zero has no relative error"
    assert row.excess > 1, "out of tolerance as eager is, which is no drift of the compiler's"


@pytest.mark.parametrize(
    "value", [f(1, 2, dtype=torch.int64), f(True, dtype=torch.bool), torch.ones(0), f(NAN, INF), torch.ones(0, 3)]
)
def test_what_is_exact_or_has_no_finite_element_has_no_numbers(value: torch.Tensor) -> None:
    assert within(value, value.clone()) is None


def test_an_input_that_nobody_wrote_to_has_no_numbers() -> None:
    assert within(f(1.0), f(1.0), f(1.1, dtype=torch.float64), where="input:x") is None


def test_a_large_integer_is_printed_whole() -> None:
    row = rows(f(12_345_678_912, dtype=torch.int64), f(12_345_678_913, dtype=torch.int64))["integer"]
    assert (row.observed, row.expected) == ("12345678912", "12345678913")


def test_what_eager_gets_as_wrong_is_drift() -> None:
    true = f(1.0, 1.0, dtype=torch.float64)
    assert kinds(f(1.002, 1.0), f(1.001, 1.0), true) == []
    assert [row.kind for row in drift(f(1.002, 1.0), f(1.001, 1.0), true)] == ["value"]


def test_an_error_in_another_place_than_eagers_is_drift_up_to_four_times_its_size() -> None:
    true = torch.ones(2, dtype=torch.float64)
    assert kinds(f(1.0, 1.0035), f(1.001, 1.0), true) == []
    assert kinds(f(1.0, 1.005), f(1.001, 1.0), true) == ["value"]


def test_a_result_nearer_the_truth_than_eager_is_right() -> None:
    assert kinds(f(1.0), f(1.01), f(1.0, dtype=torch.float64)) == []


def test_without_a_reference_eager_is_the_truth() -> None:
    assert rows(f(1.1), f(1.0))["value"].eager_abs == 0
    assert kinds(f(1.1), f(1.0), reference=torch.ones(7)) == ["value"]


def test_an_overflow_of_eager_that_the_reference_does_not_have_decides_nothing() -> None:
    half = torch.float16
    assert kinds(f(1.0, dtype=half), f(INF, dtype=half), f(70_000.0)) == []
    assert kinds(f(INF, dtype=half), f(INF, dtype=half), f(70_000.0)) == []


def test_an_integer_that_the_reference_decides_otherwise_proves_nothing() -> None:
    out, eager, true = (f(*values, dtype=torch.int64) for values in ((1, 5), (0, 5), (1, 5)))
    assert kinds(out, eager, true) == []
    assert [row.kind for row in drift(out, eager, true)] == ["integer"]
    assert kinds(f(1, 6, dtype=torch.int64), eager, true) == ["integer"]


def test_no_more_integers_than_noise_changes_prove_nothing() -> None:
    eager = torch.zeros(40, dtype=torch.int64)
    noisy = [eager.clone(), eager.index_fill(0, torch.tensor([30, 31]), 5)]
    assert kinds(eager.index_fill(0, torch.arange(8), 1), eager, noisy=noisy) == []
    assert kinds(eager.index_fill(0, torch.arange(9), 1), eager, noisy=noisy) == ["integer"]
    assert kinds(eager.index_fill(0, torch.arange(1), 1), eager, noisy=noisy[:1]) == ["integer"]


def test_what_shaking_the_inputs_does_too_proves_nothing() -> None:
    assert kinds(f(1.1), f(1.0), f(1.0, dtype=torch.float64), noisy=[f(1.1)]) == []
    assert kinds(f(NAN), f(1.0), noisy=[f(NAN)]) == []
    assert kinds(f(2, dtype=torch.int64), f(1, dtype=torch.int64), noisy=[f(3, dtype=torch.int64)]) == []
    assert kinds(f(1.1), f(1.0), noisy=[f(1.0), None, torch.ones(9)]) == ["value"]


def test_what_shaking_moves_by_little_explains_no_large_error_elsewhere() -> None:
    half = torch.bfloat16
    eager, moved = f(0.0, 8.0, dtype=half), f(0.125, 8.0, dtype=half)
    assert kinds(f(0.0, 12.0, dtype=half), eager, eager, noisy=[moved]) == ["value"]
    assert kinds(f(0.0, 8.25, dtype=half), eager, eager, noisy=[moved]) == []


def test_tolerances_given_replace_the_defaults_of_the_dtype() -> None:
    assert kinds(f(1.1), f(1.0), tolerance=Tolerance(rtol=0.2)) == []
    assert kinds(f(0.1), f(0.0), tolerance=Tolerance(rtol=0.2)) == ["value"]
    assert kinds(f(1.0 + 1e-6), f(1.0), tolerance=Tolerance(0.0, 0.0)) == ["value"]


@pytest.mark.parametrize(
    ("dtype", "off", "expected"),
    [
        (torch.float32, 2.0**-22, []),  # two units in the last place of 1.0
        (torch.float32, 2.0**-21, ["value"]),
        (torch.float64, 2.0**-51, []),
        (torch.float64, 2.0**-50, ["value"]),
        (torch.float16, 2.0**-9, []),
        (torch.float16, 2.0**-8, ["value"]),
        (torch.bfloat16, 2.0**-7, []),
        (torch.bfloat16, 2.0**-6, ["value"]),  # the default, 1e-2, is less than two units
    ],
)
def test_no_tolerance_asks_for_more_than_rounding_allows(dtype: torch.dtype, off: float, expected: list[str]) -> None:
    assert kinds(f(1 + off, dtype=dtype), f(1.0, dtype=dtype), tolerance=Tolerance(0.0, 0.0)) == expected


def test_the_floor_is_no_wider_than_any_default() -> None:
    for dtype in ("float16", "bfloat16", "float32", "float64", "complex64"):
        assert Tolerance(rtol=0.0).of(dtype)[0] <= Tolerance().of(dtype)[0]


def test_the_ratio_of_an_error_is_to_the_most_that_rounding_costs_eager() -> None:
    right, true = f(1.0, 2.0), f(1.0, 2.0, dtype=torch.float64)
    alone = rows(f(1.0, 2.5), right, true)["value"]
    assert alone.ratio == pytest.approx(0.25 / 2.0**-24, rel=0.2)
    beside = rows(f(1.0, 2.5), f(1.01, 2.0), true)["value"]
    assert beside.ratio == pytest.approx(beside.excess / (0.01 / 2e-5), rel=0.01)
    moved = rows(f(1.0, 2.5), right, true, noisy=[f(1.01, 2.0)])["value"]
    assert moved.ratio == pytest.approx(beside.ratio, rel=0.01)


@pytest.mark.parametrize(
    ("out", "eager", "true", "expected"),
    [
        ((0.0, 1.0, 1.001), (0.0, 1.0005, 1.0), (0.0, 1.0, 1.0), []),
        ((0.0, 1.0, 1.003), (0.0, 1.0005, 1.0), (0.0, 1.0, 1.0), ["value"]),
        ((0.0, 1.003), (0.0, 1.0), (0.0, 1.0), ["value"]),
        ((2e-9, 0.0, 1.0), (0.0, 1e-9, 1.0), (0.0, 0.0, 1.0), []),
        ((1e-3, 0.0, 1.0), (0.0, 1e-9, 1.0), (0.0, 0.0, 1.0), ["value"]),
        ((0.0, 0.0, 1.1), (0.0, 1e-9, 1.0), (0.0, 0.0, 1.0), ["value"]),
    ],
)
def test_a_true_value_of_zero_may_have_no_error_but_eagers_where_atol_is_zero(
    out: tuple[float, ...], eager: tuple[float, ...], true: tuple[float, ...], expected: list[str]
) -> None:
    assert kinds(f(*out), f(*eager), f(*true, dtype=torch.float64), tolerance=Tolerance(atol=0.0)) == expected


@pytest.mark.parametrize(
    ("out", "eager", "expected"),
    [
        (None, torch.zeros(3), []),
        (torch.zeros(3), None, []),
        (None, torch.ones(3), ["structure"]),
        (torch.ones(3), None, ["structure"]),
        (None, f(NAN), ["structure"]),
        (torch.zeros(3), torch.ones(3), ["value"]),
    ],
)
def test_no_gradient_and_a_gradient_of_zeros_mean_the_same(out: Any, eager: Any, expected: list[str]) -> None:
    assert kinds(out, eager, where="grad:x") == expected


def test_an_output_of_none_and_one_of_zeros_do_not_mean_the_same() -> None:
    assert kinds(None, torch.zeros(3)) == ["structure"]


def test_strides_of_gradients_may_differ() -> None:
    assert kinds(torch.ones(3, 2).t(), torch.ones(2, 3), strides=False) == []


def test_aliasing_is_told_by_what_lies_in_the_same_memory() -> None:
    x, y = torch.ones(4), torch.ones(4)
    assert alias_pattern((x,), (x[1:], y, y.view(2, 2))) == ((0,), (3,), (2,))
    assert alias_pattern((x, 3), (x.clone(), None, y)) == ((), (), ())
    assert alias_pattern((x,), (torch.ones(2).to_sparse(),)) == ((),)
