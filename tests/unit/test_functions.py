"""Functions of the user's own are found by name, from any folder, and what names none is refused in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from minify.errors import UsageError
from minify.functions import absolute, checked_metric, content, load


def test_a_file_and_a_module_of_the_working_folder_are_named_by_their_full_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scores.py").write_text("def top(x): return x\n")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    assert absolute("scores.py:top", "--metric") == f"{tmp_path}/scores.py:top"
    assert absolute("scores:top", "--metric") == f"{tmp_path}/scores:top"
    assert absolute("pack.inner:top", "--metric") == f"{tmp_path}/pack.inner:top"
    assert absolute("json.tool:main", "--metric") == "json.tool:main"
    for spec in ("scores.py:top", "scores:top"):
        again = absolute(spec, "--metric")
        monkeypatch.chdir("/")
        assert absolute(again, "--metric") == again
        monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("spec", ["inner_scores.py:top", "inner_scores:top", "in_a_pack.inner:top"])
def test_what_was_named_is_loaded_in_a_process_that_runs_elsewhere(
    spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what lies beside it, now and when it is called."""
    (tmp_path / "beside_it.py").write_text("factor = 3\n")
    (tmp_path / "later_on.py").write_text("offset = 1\n")
    body = "import beside_it\n\ndef top(x):\n    import later_on\n    return x * beside_it.factor + later_on.offset\n"
    (tmp_path / "in_a_pack").mkdir()
    for place in ("inner_scores.py", "in_a_pack/__init__.py", "in_a_pack/inner.py"):
        (tmp_path / place).write_text(body)
    monkeypatch.chdir(tmp_path)
    named = absolute(spec, "--metric")
    asks = f"from minify.functions import load; print(load({named!r}, '--metric')(2))"
    done = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, cwd="/", check=False)
    assert (done.stdout, done.returncode) == ("7\n", 0), done.stderr


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("top", "names no function"),
        (":top", "names no function"),
        ("scores.py:", "names no function"),
        ("no/such.py:top", "no file /"),
        ("no_such_module.at.all:top", "no module no_such_module"),
    ],
)
def test_what_names_nothing_is_refused_before_anything_is_run(spec: str, said: str) -> None:
    with pytest.raises(UsageError, match=f"--metric .*{said}.*give module:function or file.py:function"):
        absolute(spec, "--metric")


def test_a_file_is_run_once_and_prints_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "loud.py").write_text("print('loaded')\n\ndef top(x): return x\n")
    spec = f"{tmp_path}/loud.py:top"
    assert load(spec, "--metric") is load(spec, "--metric")
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "loaded\n")


@pytest.mark.parametrize("body", ["1 / 0", "import sys; sys.exit(2)", "top = 3", "other = print", "def top(:"])
def test_a_file_that_gives_no_function_is_the_users_error(body: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(body)
    with pytest.raises(UsageError, match=r"--interesting .*wrong\.py:top"):
        load(f"{tmp_path}/wrong.py:top", "--interesting")


def test_the_content_of_a_file_is_known_and_that_of_a_module_is_not(tmp_path: Path) -> None:
    path = tmp_path / "scores.py"
    path.write_text("def top(x): return x\n")
    before = content(f"{path}:top")
    path.write_text("def top(x): return -x\n")
    assert before and content(f"{path}:top") not in ("", before)
    assert content("json.tool:main") == content("") == content("gone.py:top") == ""


@pytest.mark.parametrize(("spec", "tolerance"), [("", 0.5), ("json:dumps", -1.0), ("json:dumps", float("nan"))])
def test_a_tolerance_that_makes_no_sense_is_refused(spec: str, tolerance: float) -> None:
    with pytest.raises(UsageError, match=r"--metric-tol .*finite number, 0 or more, and --metric with it"):
        checked_metric(spec, tolerance)
    assert checked_metric("", 0.0) == "" and checked_metric("json:dumps", 0.5) == "json:dumps"
