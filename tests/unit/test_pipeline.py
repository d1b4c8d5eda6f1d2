"""What is said of the ops that a search ends with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from minify.case import Case
from minify.pipeline import _explains
from minify.runs import Request
from minify.verdict import Divergence, Observation, Signature
from tests.reducing import line

# --- are the ops that were found enough? -----------------------------------------------------------------------------

WHOLE = line("torch.neg", "torch.exp", "torch.abs")
WRONG = Signature("accuracy", "value", "value", ratio=20.0)


def explains(whole: Case, part: Case, *rows: Divergence, kind: str = "accuracy", phase: str = "compare") -> bool | None:
    """What is said where the whole, with the part's results in it, shows `rows`."""
    seen = Observation("compare", divergences=(Divergence("output:n1", "value", ratio=99.0),))
    confirmed = SimpleNamespace(
        suspect=SimpleNamespace(sure=None),
        first=SimpleNamespace(signature=WRONG),
        session=SimpleNamespace(observation=seen, start=whole),
    )
    oracle = SimpleNamespace(patched=lambda part, whole: Observation(phase, divergences=rows))
    this = SimpleNamespace(request=Request(kind, "model.py"), oracle=oracle)
    return _explains(cast(Any, this), cast(Any, confirmed), part)


def test_ops_whose_results_make_the_original_wrong_explain_it() -> None:
    wrong, faint = (Divergence("output:n2", "value", ratio=ratio) for ratio in (50.0, 5.0))
    part = line("torch.neg", "torch.exp")
    assert explains(WHOLE, part, wrong) is True
    assert explains(WHOLE, part, faint) is False
    assert explains(WHOLE, part) is False


def test_whether_ops_explain_the_original_is_not_told_of_what_cannot_be_patched() -> None:
    wrong = Divergence("output:n2", "value", ratio=50.0)
    assert explains(WHOLE, line("torch.neg"), wrong, kind="crash") is None
    assert explains(WHOLE, line("torch.neg"), wrong, phase="reference") is None
    assert explains(WHOLE, WHOLE, wrong) is None
    assert explains(line("torch.neg", ".mul_", "torch.exp"), line("torch.neg"), wrong) is None
