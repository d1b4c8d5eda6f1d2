"""A condition of the user's own: found, asked of the candidate's source, and kept to by the search and the certificate."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from minify import interesting
from minify.case import Case
from minify.certificate import certify
from minify.errors import UsageError
from minify.interesting import checked_spec, condition, source
from minify.passes import PASSES
from minify.passes.cut_ops import CUT_OPS
from minify.reduce import Session, reduce
from minify.verdict import Observation
from tests.fake_oracle import FakeOracle
from tests.reducing import WRONG_VALUE, line, needs_targets, recorded

CASE = line("torch.relu", "torch.exp", "torch.neg")


@pytest.fixture
def spec(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(
        "def keeps_exp(source):\n    return 'torch.exp' in source\n\ndef raises(source):\n    1 / 0\n"
    )
    return f"{tmp_path / 'mine.py'}:keeps_exp"


def test_the_function_sees_the_program_and_its_inputs(spec: str) -> None:
    assert "def fn(x):" in source(CASE) and "def make_inputs():" in source(CASE)
    assert condition(spec)(CASE)
    assert not condition(spec)(line("torch.relu"))


def test_without_a_condition_all_is_interesting() -> None:
    assert condition("")(CASE)


def test_a_function_of_a_module_is_found() -> None:
    assert condition("builtins:bool")(CASE)
    assert checked_spec("builtins:bool") == "builtins:bool"


def test_a_file_is_named_by_its_full_path(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert checked_spec("mine.py:keeps_exp") == spec


@pytest.mark.parametrize(
    "wrong", ["nowhere:f", "builtins:nothing", "builtins", "no.py:f", "builtins:__name__", "math:pi"]
)
def test_what_names_no_function_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match="module:function"):
        checked_spec(wrong)


def test_a_function_that_raises_is_the_users_error(spec: str) -> None:
    with pytest.raises(UsageError, match="raised ZeroDivisionError"):
        condition(spec.replace("keeps_exp", "raises"))(CASE)


def test_the_search_keeps_to_it_and_the_certificate_says_so(spec: str, tmp_path: Path) -> None:
    oracle, wanted = FakeOracle(needs_targets("torch.relu")), condition(spec)
    session = Session(CASE, Observation("done"), WRONG_VALUE, oracle, tmp_path, lambda base: None, interesting=wanted)
    left = reduce(session, PASSES, recorded).case
    assert [call.target for call in left.graph.ops] == ["torch.relu", "torch.exp"]
    found = certify(left, WRONG_VALUE, oracle, (CUT_OPS,), lambda base: None, wanted)
    assert found.one_minimal
    assert found.counts() == {"cut ops": {"sites": 2, "passes": 1, "not interesting": 1}}


def test_it_is_asked_before_a_compile_is_paid_for(tmp_path: Path) -> None:
    asked: list[Case] = []

    def wanted(case: Case) -> bool:
        asked.append(case)
        return False

    oracle = FakeOracle(lambda case: True)
    session = Session(CASE, Observation("done"), WRONG_VALUE, oracle, tmp_path, lambda base: None, interesting=wanted)
    assert session.first("cut ops", [lambda: line("torch.relu")]) is None
    assert (len(asked), oracle.queries) == (1, 0)


def test_a_function_that_does_not_come_back_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow.py").write_text("import time\n\ndef waits(source):\n    time.sleep(60)\n")
    monkeypatch.setattr(interesting, "SECONDS", 0.1)
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(UsageError, match=r"raised TimeoutError: not done after 0.1 s"):
        condition(f"{tmp_path}/slow.py:waits")(CASE)
    assert signal.getsignal(signal.SIGALRM) is before and signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_a_function_may_be_asked_from_any_thread(spec: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(condition(spec), CASE).result()
