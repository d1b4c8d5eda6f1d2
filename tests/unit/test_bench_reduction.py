"""The benchmark reads both minifiers' files and logs rightly, and says where `minify` loses. Compiles nothing."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from pathlib import Path

import pytest

from scripts import bench_reduction, bench_table, limited_run, torch_minifier
from scripts.bench_table import Row
from scripts.limited_run import Ran

ATEN_REPRO = """
from torch.nn import *
class Repro(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.true_graph_0 = <lambda>()

    def forward(self, arg0_1, arg1_1):
        var_mean = torch.ops.aten.var_mean.correction(arg0_1, [1], correction = 0, keepdim = True)
        getitem = var_mean[0]
        getitem_1 = var_mean[-1];  var_mean = None
        _param = self._param_constant0
        sub = torch.ops.aten.sub.Tensor(arg0_1, getitem_1);  arg0_1 = getitem_1 = None

        full = torch.ops.aten.full.default([], 0.0, dtype = torch.float32, device = device(type='cpu'), pin_memory = False)
        return (sub, full)

def load_args(reader):
    buf0 = reader.storage('531b', 3072)
    reader.tensor(buf0, (2, 4), is_leaf=True)  # arg0_1
mod = Repro()
"""
DYNAMO_REPRO = """
class Repro(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = Linear(in_features=4, out_features=4, bias=True)

    def forward(self, L_x_ : torch.Tensor, s0 : torch.SymInt):
        l_x_ = L_x_
        fc = self.fc(l_x_);  l_x_ = None
        h : "f32[4]" = fc + 1
        h += fc;  iadd = h;  h = fc = None
        iadd[slice(None, 2, None)] = 0;  setitem = iadd
        head = iadd[(slice(None, None, None), 0)]
        shape = iadd.shape
        neg = -head
        return (neg.sum(),)
mod = Repro()
"""
LOG = """Started off with 32 nodes
Trying granularity 32

Strategy: Eliminate dead code (G: 32) (32 nodes, 5 inputs)
FAIL: Eliminate dead code

Strategy: Truncate suffix (G: 32) (32 nodes, 5 inputs)
SUCCESS: Went from 32 to 20 nodes
SUCCESS: Went from 3 to 1 outputs
"""


@pytest.mark.parametrize(("text", "ops"), [(ATEN_REPRO, 3), (DYNAMO_REPRO, 6), ("import torch\n", None)])
def test_ops_are_the_calls_of_a_repro_s_graph(text: str, ops: int | None) -> None:
    assert torch_minifier.count_ops(text) == ops


def test_a_graph_that_is_not_python_has_no_count() -> None:
    assert torch_minifier.count_ops("class Repro(M):\n    def forward(self, x):\n        y = <lambda>(x)\n") is None


def test_a_run_that_ended_says_its_queries_for_each_graph(tmp_path: Path) -> None:
    log = LOG + "Made 21 queries\nLoading: 100%\rMade 4 queries\n>>  Made 9 queries\n"
    assert torch_minifier.count_queries(log, tmp_path) == (25, True)


def test_isolated_queries_of_a_stopped_run_are_counted_by_their_files(tmp_path: Path) -> None:
    (tmp_path / "isolate").mkdir()
    for name in ("a.py", "b.py", "torch_compile_debug.txt"):
        (tmp_path / "isolate" / name).touch()
    assert torch_minifier.count_queries(LOG, tmp_path) == (2, True)


def test_queries_of_a_stopped_run_in_one_process_are_a_lower_bound(tmp_path: Path) -> None:
    assert torch_minifier.count_queries(LOG, tmp_path) == (3, False)
    assert torch_minifier.count_queries("", tmp_path) == (None, False)


@pytest.mark.parametrize(
    ("status", "output", "outcome"),
    [
        (0, "Wrote minimal repro out to repro.py\n", "repro"),
        (1, "Wrote minimal repro out to repro.py\n", "no repro"),
        (0, "", "no repro"),
        (1, "RuntimeError: Input graph did not fail the tester\n", "does not fail"),
        (None, "", "time limit"),
    ],
)
def test_how_a_launcher_ended(status: int | None, output: str, outcome: str, tmp_path: Path) -> None:
    (tmp_path / "repro.py").touch()
    assert torch_minifier.launch_outcome(Ran(status, 1.0, output), tmp_path / "repro.py") == outcome


def test_a_checkpoint_alone_is_no_repro(tmp_path: Path) -> None:
    ran = Ran(0, 1.0, "Wrote minimal repro out to repro.py")
    assert torch_minifier.launch_outcome(ran, tmp_path / "repro.py") == "no repro"


@pytest.mark.parametrize(
    ("signature", "status", "output", "shown"),
    [
        ("value", 1, "torch._dynamo.debug_utils.AccuracyError: Bad accuracy detected\n", True),
        ("value", 1, "FileNotFoundError: [Errno 2] no checkpoint\n", False),
        ("metadata:stride", 1, "RuntimeError: shapes\n", False),
        ("value", 0, "a warning about AccuracyError\n", False),
        ("exception", 1, "torch._inductor.exc.InductorError: CppCompileError: C++ compile error\n", True),
        ("exception", 1, "  File 'repro.py'\nSyntaxError: invalid syntax\n", False),
        ("exception", 0, "", False),
        ("exception", None, "", False),
        ("signal", -11, "", True),
        ("signal", 1, "RuntimeError: other\n", False),
        ("hang", None, "", True),
        ("hang", 1, "RuntimeError: other\n", False),
    ],
)
def test_a_repro_of_pytorch_s_is_held_to_the_failure_asked_for(
    signature: str, status: int | None, output: str, shown: bool
) -> None:
    assert torch_minifier.shows_bug(Ran(status, 1.0, output), signature) is shown


def test_the_last_error_is_the_outermost_one_of_the_process_itself() -> None:
    log = "KeyError: 'x'\n\ntorch._inductor.exc.InductorError: KeyError: 'x'\n\nSet TORCHDYNAMO_VERBOSE=1\n>>  ValueError: q\n"
    assert torch_minifier.last_error(log) == "torch._inductor.exc.InductorError: KeyError: 'x'"
    assert torch_minifier.last_error("all is well\n") == ""


REPORT = {"queries": 12, "original": {"ops": 40, "inputs": 3}, "reduced": {"ops": 1, "inputs": 1}}


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (0, "repro"),
        (3, "repro"),
        (1, "no failure"),
        (4, "unstable"),
        (70, "no repro"),
        (2, "no repro"),
        (None, "time limit"),
    ],
)
def test_how_minify_ended(status: int | None, outcome: str, tmp_path: Path) -> None:
    (tmp_path / "repro.py").touch()
    read = bench_reduction.read_report(REPORT, Ran(status, 9.0, ""), tmp_path / "repro.py")
    assert (read.outcome, read.queries, read.ops_before, read.ops_after) == (outcome, 12, 40, 1)


def test_minify_without_a_report_or_a_repro_has_none(tmp_path: Path) -> None:
    ran = Ran(0, 9.0, "one\ntwo\n\n")
    read = bench_reduction.read_report({"original": None}, ran, tmp_path / "repro.py")
    assert (read.outcome, read.repro, read.queries, read.ops_after, read.note) == ("no repro", None, None, None, "two")


def row(variant: str = "minify", case: str = "a", **changes: object) -> Row:
    base = Row(case, variant, 0, "repro", 10.0, 20, True, 40, 1, 50, True)
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "right"),
    [
        ({}, True),
        ({"outcome": "time limit"}, False),
        ({"expected": 1}, False),
        ({"expected": 1, "outcome": "no failure", "exit_code": 1}, True),
        ({"expected": 4, "outcome": "no failure", "exit_code": 1}, False),
        ({"expected": 1, "outcome": "no launcher"}, True),
        ({"expected": 1, "outcome": "no repro", "exit_code": 70}, False),
    ],
)
def test_which_answer_is_right(changes: dict[str, object], right: bool) -> None:
    assert row(**changes).right is right


def test_minify_loses_nothing_where_it_is_at_least_as_good() -> None:
    assert bench_table.losses([row(), row("aot"), row("dynamo", outcome="no launcher", seconds=1.0)]) == []


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ({"ops_after": 3}, {}, ["a, against aot: 3 ops for 1"]),
        ({"lines": 60, "seconds": 30.0, "queries": 21}, {}, ["a, against aot: 60 lines for 50; 21 queries for 20; 30 s for 10"]),
        ({"seconds": 30.0}, {"alone": False}, ["a, against aot (whose repro does not reproduce alone): 30 s for 10"]),
        ({"expected": 1, "outcome": "no failure", "exit_code": 1, "seconds": 30.0}, {"expected": 1, "outcome": "no launcher"},
         ["a, against aot: 30 s for 10"]),
        ({"alone": False}, {},
         ["a: the repro does not show the failure when copied alone", "a, against aot: theirs reproduces alone"]),
        ({"outcome": "no repro", "exit_code": 70, "note": "KeyError: 'x'"}, {"outcome": "time limit"},
         ["a: no repro (exit 70) where exit 0 is right. KeyError: 'x'"]),
        ({"outcome": "time limit"}, {}, ["a: time limit where exit 0 is right", "a, against aot: theirs is right (repro)"]),
    ],
)  # fmt: skip
def test_where_minify_loses_is_said(ours: dict[str, object], theirs: dict[str, object], said: list[str]) -> None:
    assert bench_table.losses([row(**ours), row("aot", **theirs)]) == said


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ({"seconds": 20.0}, {"seconds": 100.0}, "met, at most 1/5 asked: 20 s / 100 s = 0.20"),
        ({"seconds": 30.0}, {"seconds": 100.0}, "missed, at most 1/5 asked: 30 s / 100 s = 0.30"),
        ({"seconds": 50.0}, {"seconds": 300.0, "outcome": "time limit"},
         "met, at most 1/5 asked: 50 s / 300 s = 0.17 or less, theirs was stopped at the limit"),
        ({"seconds": 90.0}, {"seconds": 300.0, "outcome": "time limit"},
         "cannot tell, at most 1/5 asked: 90 s / 300 s = 0.30, theirs was stopped at the limit"),
        ({"outcome": "no repro"}, {}, "missed, at most 1/5 asked: minify ended with 'no repro'"),
        ({}, {"outcome": "no launcher"}, "nothing to compare with, at most 1/5 asked: theirs ended with 'no launcher'"),
    ],
)  # fmt: skip
def test_the_asked_ratio(ours: dict[str, object], theirs: dict[str, object], said: str) -> None:
    case = "transformer_8_blocks"
    rows = [row(case=case, **ours), row("aot", case, **theirs)]
    assert bench_table.asked_ratios(rows) == [f"{case}, minify against aot: {said}"]


def test_the_document_has_each_row_the_medians_and_the_losses() -> None:
    rows = [
        row(seconds=12.0, script_seconds=4.4),
        row(case="b", seconds=20.0),
        row("aot", queries=7, exact=False, outcome="time limit", ops_before=None),
    ]
    text = bench_table.document(rows, ["2026-11-29"])
    assert "| a    | minify | repro      | yes   | 20      | 12      | 4      | 40 → 1 | 50    | yes   |" in text
    assert "| a    | aot    | time limit | no    | ≥ 7     | 10      | –      | – → 1  | 50    | yes   |" in text
    assert "| minify | 2     | 2     | 2      | 2     | 20      | 16      | 1   | 50    |" in text
    assert text.endswith("## Where minify loses\n\nNowhere in these rows.\n")


def test_rows_of_one_side_compare_nothing() -> None:
    assert "Only one side was run" in bench_table.document([row(), row(case="b")], [])


def test_rows_are_kept_for_the_next_run_on_the_same_machine_only(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    bench_reduction.save_rows(path, [row()], 300.0)
    assert bench_reduction.load_rows(path, 300.0) == {("a", "minify"): row()}
    with pytest.raises(ValueError, match="another machine"):
        bench_reduction.load_rows(path, 60.0)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"machine": {"cpu": "other"}}))
    with pytest.raises(ValueError, match="another machine"):
        bench_reduction.load_rows(path, 300.0)


def test_the_default_cases_are_those_that_are_not_slow(root: Path) -> None:
    corpus = bench_reduction.read_corpus(root / "corpus")
    default = bench_reduction.choose(corpus, [])
    assert {case.name for case in corpus if case.slow} == {case.name for case in corpus} - {
        case.name for case in default
    }
    assert "transformer_8_blocks" in {case.name for case in default}
    slow = next(case.name for case in corpus if case.slow)
    assert [case.name for case in bench_reduction.choose(corpus, [slow, "transformer_*"])] == sorted(
        [slow, "transformer_8_blocks"]
    )
    with pytest.raises(ValueError, match="no case of the corpus is called 'nothing'"):
        bench_reduction.choose(corpus, ["nothing"])


def test_where_a_bug_does_not_show_no_failure_is_the_right_answer(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_reduction, "torch_version", lambda: "9.9.0+cpu")
    assert bench_reduction.read_case(root / "corpus" / "transformer_8_blocks").exit_code == 1


SPAWNS = "setsid sleep 600 & echo $!; sleep 600"  # a child in a session of its own, as warm workers are


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see processes")
def test_at_the_limit_every_process_goes_whatever_its_session(tmp_path: Path) -> None:
    ran = limited_run.run_limited(["sh", "-c", SPAWNS], tmp_path, os.environ, 2.0, tmp_path / "log")
    assert ran.status is None
    child = int(ran.output)
    deadline = time.monotonic() + 30
    while is_alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(child)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_a_run_starts_without_our_switches_and_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHDYNAMO_REPRO_AFTER", "aot")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/elsewhere")
    environment = limited_run.private_environment(tmp_path, EXTRA="1")
    assert not [name for name in environment if name.startswith("TORCH")]
    assert environment["EXTRA"] == "1" and Path(environment["TMPDIR"]).is_relative_to(tmp_path)
    ran = limited_run.run_limited(
        [sys.executable, "-c", "import tempfile; print(tempfile.gettempdir())"],
        tmp_path,
        environment,
        60.0,
        tmp_path / "log",
    )
    assert (ran.status, ran.output.strip()) == (0, environment["TMPDIR"])


def test_the_asked_ratio_says_what_it_is_without_the_scripts_own_run() -> None:
    case = "transformer_8_blocks"
    ours, theirs = (
        row(case=case, seconds=50.0, script_seconds=30.0),
        row("aot", case, seconds=250.0, script_seconds=50.0),
    )
    (line, *_) = bench_table.asked_ratios([ours, theirs])
    assert line.endswith("50 s / 250 s = 0.20 (without the script's own run 20 s / 200 s = 0.10)")


def test_when_the_script_had_shown_its_failure_is_read_from_the_journal(tmp_path: Path) -> None:
    journal = tmp_path / "events.jsonl"
    assert bench_reduction.failure_shown(journal, 100.0) is None
    journal.write_text('{"event": "region", "time": 103.0}\n')
    assert bench_reduction.failure_shown(journal, 100.0) is None
    journal.write_text('{"event": "region", "time": 103.0}\n{"event": "diverged", "time": 107.5}\n')
    assert bench_reduction.failure_shown(journal, 100.0) == 7.5
