"""`minify bisect-torch`: which releases are asked, what is kept of the answers, and how each ending is told."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from minify.across import Answer, Boundary, Found, Question, Release, WrongEnds, bisect_torch, named
from minify.across.command import bisected, line_of
from minify.across.environments import Environment, Installer, NotInstalled, version_of
from minify.across.journal import Journal, Row
from minify.across.releases import between, parsed
from minify.cli import main
from minify.emit.verify import Checked
from minify.errors import (
    EXIT_NO_FAILURE,
    EXIT_REDUCED,
    EXIT_STOPPED_EARLY,
    EXIT_UNSTABLE,
    EXIT_USAGE,
    Stopped,
    UsageError,
)
from minify.oracle.nest import Nest

RELEASES = tuple(Release(2, minor) for minor in range(6, 15))


class Shelf:
    """Environments that are names: no process is started. `lacking` cannot be installed."""

    def __init__(self, lacking: frozenset[Release] = frozenset(), own: Mapping[Release, str] | None = None) -> None:
        self.lacking = lacking
        self.own: Mapping[Release, str] = own or {}
        self.installed: list[Release] = []
        self.open: list[Release] = []

    def releases(self) -> tuple[Release, ...]:
        return RELEASES

    @contextlib.contextmanager
    def environment(self, release: Release) -> Iterator[Environment]:
        if release in self.lacking:
            raise NotInstalled("no matching distribution")
        self.installed.append(release)
        self.open.append(release)
        try:
            yield Environment(f"python-{release}", f"{release}+cpu")
        finally:
            self.open.remove(release)


def bad_from(first: Release, unclear: frozenset[Release] = frozenset()) -> Callable[..., Checked]:
    def run(repro: Path, repeat: int, timeout: float, python: str, should_stop: object) -> Checked:
        release = named(python.removeprefix("python-"))
        if release in unclear:
            return Checked(125, "exit 125", "Traceback\nImportError: no such op\n")
        return Checked(1, "exit 1") if release >= first else Checked(0, "exit 0")

    return run


@pytest.fixture
def question(tmp_path: Path) -> Question:
    repro = tmp_path / "a repro.py"
    repro.write_text("import torch")
    return Question(repro, Release(2, 6), Release(2, 14))


def asked(question: Question, folder: Path, shelf: Shelf, run: Callable[..., Checked], **how: Any) -> Found:
    return bisect_torch(question, shelf, Journal(folder / "journal.jsonl"), run=run, **how)


def test_the_first_bad_release_is_found_with_the_lines_that_find_the_commit(question: Question, tmp_path: Path) -> None:
    shelf = Shelf()
    found = asked(question, tmp_path, shelf, bad_from(Release(2, 11)))
    assert found.outcome == Boundary(Release(2, 10), Release(2, 11))
    assert (found.first_bad, found.exit_code) == ("2.11.0", EXIT_REDUCED)
    assert found.told() == ("torch 2.11.0 is the first release that shows it; 2.10.0 does not",)
    start, run = found.git_lines()
    assert start == "git bisect start v2.11.0 v2.10.0"
    assert (
        run.startswith("git bisect run sh -c ") and "|| exit 125; python -m minify check" in run and "a repro.py" in run
    )
    assert len(shelf.installed) <= 5 and not shelf.open
    assert [row.release for row in found.rows] == sorted(row.release for row in found.rows)


def test_releases_that_cannot_tell_are_skipped_and_told(question: Question, tmp_path: Path) -> None:
    unclear, lacking = frozenset({Release(2, 10)}), frozenset({Release(2, 11)})
    found = asked(question, tmp_path, Shelf(lacking), bad_from(Release(2, 11), unclear))
    assert found.outcome == Boundary(Release(2, 9), Release(2, 12), (Release(2, 10), Release(2, 11)))
    assert "may have come with any of 2.10.0, 2.11.0" in found.told()[0]
    told = {row.release: line_of(row) for row in found.rows}
    assert "exit 125: ImportError: no such op" in told[Release(2, 10)]
    assert "cannot tell; not installed: no matching distribution" in told[Release(2, 11)]


def test_answers_are_of_one_repro_with_its_data_run_in_one_way_by_builds_of_one_place(question: Question) -> None:
    keys = [
        question.key("python3.11", ""),
        question.key("python3.12", ""),
        question.key("python3.11", "https://cpu"),
        dataclasses.replace(question, repeat=2).key("python3.11", ""),
        dataclasses.replace(question, timeout=1.0).key("python3.11", ""),
    ]
    question.repro.with_name("repro_data.pt").write_text("1")
    keys.append(question.key("python3.11", ""))
    question.repro.write_text("import sys")
    keys.append(question.key("python3.11", ""))
    assert len(set(keys)) == len(keys)
    assert question.key("python3.11", "") == keys[-1]


@pytest.mark.parametrize(
    ("first_bad", "unclear", "words", "code"),
    [
        (Release(2, 0), frozenset(), "torch 2.6.0, said to be good, shows the bug", EXIT_NO_FAILURE),
        (Release(9, 9), frozenset(), "torch 2.14.0, said to be bad, does not show the bug", EXIT_NO_FAILURE),
        (Release(2, 9), frozenset({Release(2, 14)}), "torch 2.14.0, said to be bad, cannot tell", EXIT_UNSTABLE),
    ],
)
def test_ends_that_are_not_as_said(
    first_bad: Release, unclear: frozenset[Release], words: str, code: int, question: Question, tmp_path: Path
) -> None:
    found = asked(question, tmp_path, Shelf(), bad_from(first_bad, unclear))
    assert (found.told(), found.exit_code, found.git_lines(), found.first_bad) == ((words,), code, (), "")
    assert len(found.rows) == 2


def test_a_bug_that_was_mended_in_between_is_said_to_be(question: Question) -> None:
    found = Found(question, (), WrongEnds(Answer.BAD, Answer.GOOD))
    assert "mended in between" in found.told()[0]


def test_a_run_that_was_stopped_goes_on_where_it_was(question: Question, tmp_path: Path) -> None:
    shelf, reasons = Shelf(), iter(["", "", "", "interrupted"])
    with pytest.raises(Stopped):
        asked(question, tmp_path, shelf, bad_from(Release(2, 11)), should_stop=lambda: next(reasons))
    assert len(shelf.installed) == 4 and not shelf.open
    with (tmp_path / "journal.jsonl").open("a") as stream:
        stream.write('{"release": "2.8')  # torn by a kill
    again, rows = Shelf(), list[Row]()
    found = asked(question, tmp_path, again, bad_from(Release(2, 11)), tell=rows.append)
    assert found.first_bad == "2.11.0" and not set(shelf.installed[:3]) & set(again.installed)
    assert [row.known for row in rows[:3]] == [True] * 3 and line_of(rows[0]).endswith("known")
    assert Journal(tmp_path / "journal.jsonl").known(Release(2, 11), "") is not None


def test_a_release_that_could_not_be_installed_is_asked_for_again(question: Question, tmp_path: Path) -> None:
    asked(question, tmp_path, Shelf(frozenset({Release(2, 10)})), bad_from(Release(2, 10)))
    found = asked(question, tmp_path, Shelf(), bad_from(Release(2, 10)))
    assert found.outcome == Boundary(Release(2, 9), Release(2, 10))


def test_environments_of_the_users_own_need_no_list_and_have_answers_of_their_own(
    question: Question, tmp_path: Path
) -> None:
    ends = {Release(2, 6): "/a/python", Release(2, 14): "/b/python"}
    shelf = Shelf(own=ends)
    found = asked(question, tmp_path, shelf, bad_from(Release(2, 14)))
    assert shelf.installed == list(ends) and found.first_bad == "2.14.0"
    assert [row.python for row in found.rows] == list(ends.values())
    assert Journal(tmp_path / "journal.jsonl").known(Release(2, 6), "") is None


def test_only_the_releases_that_are_named_are_asked(question: Question, tmp_path: Path) -> None:
    named_ones = Question(question.repro, Release(2, 6), Release(2, 14), (Release(2, 6), Release(2, 9), Release(2, 14)))
    shelf = Shelf()
    assert asked(named_ones, tmp_path, shelf, bad_from(Release(2, 9))).first_bad == "2.9.0"
    assert set(shelf.installed) == set(named_ones.versions)


def test_answers_are_kept_by_the_content_of_the_repro(question: Question) -> None:
    before = question.key()
    question.repro.write_text("import torch  # another")
    assert question.key() != before


# --- releases ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("2.13", Release(2, 13)),
        ("v2.13.1", Release(2, 13, 1)),
        (" 2.13.0+cpu ", Release(2, 13)),
        ("2.13.0rc1", None),
        ("", None),
    ],
)
def test_names_of_releases(text: str, release: Release | None) -> None:
    assert parsed(text) == release


@pytest.mark.parametrize(
    ("good", "bad", "words"),
    [
        (Release(2, 6), Release(2, 6), "both 2.6.0"),
        (Release(2, 9), Release(2, 6), "later than"),
        (Release(2, 6), Release(3, 0), "there are 2.11.0, 2.12.0, 2.13.0, 2.14.0"),
    ],
)
def test_releases_that_make_no_range_are_refused(good: Release, bad: Release, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        between(good, bad, RELEASES)


# --- environments --------------------------------------------------------------------------------------------------------


def test_an_interpreter_with_another_torch_than_it_is_said_to_have_is_not_used(tmp_path: Path) -> None:
    with Nest(tmp_path) as nest:
        installer = Installer(nest, sys.executable, own={Release(1, 2): sys.executable})
        with pytest.raises(NotInstalled, match="it has torch"), installer.environment(Release(1, 2)):
            pass
        here = parsed(version_of(sys.executable, installer._run))
        assert here is not None
        with Installer(nest, sys.executable, own={here: sys.executable}).environment(here) as found:
            assert found.python == sys.executable and parsed(found.torch) == here
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_installed_leaves_nothing_and_says_why_in_a_line(tmp_path: Path) -> None:
    tool = tmp_path / "uv"
    tool.write_text("#!/bin/sh\n[ $1 = venv ] && mkdir -p $4 && exit 0\necho 'error: no wheel for it' >&2; exit 2\n")
    tool.chmod(0o755)
    with Nest(tmp_path) as nest:
        installer = Installer(nest, sys.executable, uv=str(tool))
        with pytest.raises(NotInstalled, match=r"^error: no wheel for it$"), installer.environment(Release(2, 6)):
            pass
        assert not list(nest.root.glob("torch-*"))


# --- the command ---------------------------------------------------------------------------------------------------------


def given(repro: Path, out: Path) -> dict[str, Any]:
    return {
        "repro": repro, "good": "2.6", "bad": "2.14", "versions": "", "environments": (), "base": "", "index_url": "",
        "keep": False, "repeat": 1, "timeout": 60.0, "out": out,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"good": "two"}, "'two' is no stable release"),
        ({"environments": ("2.13",)}, "is not VERSION=PYTHON"),
        ({"environments": ("2.13=/no/such/python",)}, "no interpreter"),
        ({"base": "/no/such/python"}, "--python '/no/such/python'"),
        ({"versions": "2.6,2.9"}, "no torch 2.14.0 for --bad"),
        ({"repro": Path("missing.py")}, "no file at missing.py"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_installed(
    how: dict[str, Any], words: str, question: Question, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=words):
        bisected({**given(question.repro, tmp_path / "out"), **how}, lambda: "", print)
    assert not list((tmp_path / "out").glob("minify-*"))


def test_the_command_prints_the_release_and_how_to_find_the_commit(
    question: Question, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Found(question, (), Boundary(Release(2, 10), Release(2, 11)))
    monkeypatch.setattr("minify.across.command.bisected", lambda *_: found)
    done = CliRunner().invoke(main, ["bisect-torch", str(question.repro), "--good", "2.6", "--bad", "2.14"])
    assert (done.exit_code, done.stdout) == (EXIT_REDUCED, "2.11.0\n")
    assert "git bisect start v2.11.0 v2.10.0" in done.stderr


@pytest.mark.parametrize(
    ("raised", "code"), [(Stopped("interrupted"), EXIT_STOPPED_EARLY), (UsageError("no"), EXIT_USAGE)]
)
def test_the_command_ends_with_one_line_and_the_right_code(
    raised: BaseException, code: int, question: Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Found:
        raise raised

    monkeypatch.setattr("minify.across.command.bisected", fail)
    done = CliRunner().invoke(main, ["bisect-torch", str(question.repro), "--good", "2.6", "--bad", "2.14"])
    assert (done.exit_code, done.stdout, len(done.stderr.splitlines())) == (code, "", 1)


def test_the_journal_is_a_line_of_json_for_each_answer(tmp_path: Path) -> None:
    Journal(tmp_path / "j").add(Row(Release(2, 6), Answer.GOOD, "exit 0", "2.6.0+cpu"))
    assert json.loads((tmp_path / "j").read_text())["answer"] == "good"
