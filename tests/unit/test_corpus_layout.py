"""The corpus is laid out as its readers (the table, the end-to-end tests) expect. No torch needed."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CORPUS = Path(__file__).resolve().parents[2] / "corpus"
FOLDERS = sorted(path for path in CORPUS.iterdir() if path.is_dir() and not path.name.startswith((".", "__")))
NAMES = [folder.name for folder in FOLDERS]

TYPES = {
    "command": str,
    "exit_code": int,
    "signature": str,
    "max_ops": int,
    "torch": list,
    "devices": list,
    "slow": bool,
    "args": list,
    "decisive": list,
    "source": str,
}
OPTIONAL = {
    "also_found": str,
    "facts": list,
    "calls": list,
    "max_inputs": int,
    "max_elements": int,
    "stage": str,
    "inside": list,
}
STAGE_KEYS = {"stage", "inside"}
SOURCES = {"re-created from a public report", "injected", "healthy", "custom backend"}
SIGNATURES = {
    "accuracy": {"value", "metadata:stride", "metadata:dtype", "metadata:shape", "metadata:aliasing"},
    "crash": {"exception", "signal", "hang"},
}
SIGNATURES["stage"] = SIGNATURES["accuracy"] | SIGNATURES["crash"]
RE_CREATED = {
    "acosh_large_vectorised",
    "add_zeros_negative_zero",
    "argmax_mean_channels_last",
    "argmin_transposed_pointwise",
    "bf16_duplicate_column_sum",
    "complex_angle_stride",
    "cumsum_of_ones_dtype",
    "cumsum_zero_dim_constant",
    "div_floor_inf",
    "dtype_view_then_mutate",
    "foreach_complex_div",
    "fractional_max_pool_zero_kernel",
    "grad_avgpool_ceil",
    "index_fill_clone_clamp",
    "ldexp_dtype",
    "local_buffer_keyerror_inplace",
    "ones_like_size1_stride",
    "two_bugs_dtype_before_value",
    "two_bugs_stride_beside_value",
    "two_bugs_value_behind_crash",
    "zerotensor_segfault",
}


def expected_of(folder: Path) -> dict[str, object]:
    return tomllib.loads((folder / "expected.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_a_corpus_folder_has_a_program_that_parses_and_its_expectation(folder: Path) -> None:
    source = (folder / "model.py").read_text(encoding="utf-8")
    tree = ast.parse(source)
    assert ast.get_docstring(tree), "model.py starts with a docstring that says what the program does"
    assert "minify" not in source, "a corpus program is what a user has: it knows nothing of minify"
    assert (folder / "expected.toml").is_file()
    strays = {path.name for path in folder.iterdir()} - {"model.py", "expected.toml", "metric.py", "__pycache__"}
    assert not strays


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_a_metric_beside_a_program_is_the_one_it_is_judged_by(folder: Path) -> None:
    args = expected_of(folder)["args"]
    assert isinstance(args, list)
    asked = [str(arg).partition(":") for arg in args if "metric.py:" in str(arg)]
    assert [where for where, _, _ in asked] == [f"corpus/{folder.name}/metric.py"] * (folder / "metric.py").is_file()
    for _, _, name in asked:
        tree = ast.parse((folder / "metric.py").read_text(encoding="utf-8"))
        assert ast.get_docstring(tree) and name in {
            node.name for node in tree.body if isinstance(node, ast.FunctionDef)
        }
        assert args[args.index("--metric-tol") + 1]


def test_quantised_programs_are_judged_by_a_metric() -> None:
    judged = [folder for folder in FOLDERS if (folder / "metric.py").is_file()]
    assert sum(expected_of(folder)["exit_code"] == 1 for folder in judged) >= 2
    assert any(expected_of(folder)["exit_code"] == 0 for folder in judged)


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_an_expectation_has_exactly_the_known_keys_with_the_right_types(folder: Path) -> None:
    expected = expected_of(folder)
    assert TYPES.keys() <= expected.keys() <= TYPES.keys() | OPTIONAL.keys()
    for key, value in expected.items():
        kind = (TYPES | OPTIONAL)[key]
        assert type(value) is kind, f"{key} must be a {kind.__name__}, got {value!r}"
        if isinstance(value, list):
            assert all(isinstance(item, str) for item in value), f"{key} must hold strings"


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_an_expectation_makes_sense(folder: Path) -> None:
    expected = expected_of(folder)
    assert expected["source"] in SOURCES
    assert expected["exit_code"] in (0, 1, 4)
    assert expected["torch"] and expected["decisive"]
    assert expected["devices"] in (["cpu"], ["cpu", "cuda"])
    if expected["exit_code"] == 1:
        assert (expected["signature"], expected["max_ops"]) == ("", 0)
    else:
        assert expected["signature"] in SIGNATURES[expected["command"]]
    assert (expected["max_ops"] > 0) == (expected["exit_code"] == 0 and expected["command"] != "stage")


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_what_a_report_has_to_say_is_asked_only_where_something_is_reduced(folder: Path) -> None:
    expected = expected_of(folder)
    asked = {key: expected[key] for key in OPTIONAL if key in expected and key not in STAGE_KEYS}
    assert not asked or (expected["exit_code"] == 0 and expected["command"] != "stage")
    for key, value in asked.items():
        if isinstance(value, int):
            assert value >= 0, f"{key}: nothing is less than none"
            continue
        parts = value if isinstance(value, list) else [value]
        assert parts and all(parts), f"{key}: an empty part is part of everything; leave the key out"


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_a_stage_is_expected_of_a_failure_and_no_divergence_of_a_healthy_program(folder: Path) -> None:
    expected = expected_of(folder)
    stage, inside = expected.get("stage"), expected.get("inside")
    assert stage is not None or (inside is None and expected["command"] != "stage")
    assert stage != "" and (stage is None or (stage == "no divergence") == (expected["exit_code"] == 1))
    assert inside is None or (isinstance(inside, list) and all(inside) and stage != "no divergence")


def test_the_stage_corpus_has_each_rung_and_each_kind_of_application_that_can_be_broken_from_outside() -> None:
    expected = [expected_of(folder) for folder in FOLDERS]
    stages = Counter(str(row["stage"]) for row in expected if "stage" in row)
    assert sum(stages.values()) >= 24
    wanted = {"Dynamo", "AOTAutograd", "decompositions", "Inductor's extern calls", "Inductor", "max-autotune"}
    assert wanted <= stages.keys()
    assert stages["no divergence"] >= 2 and any("backend" in stage for stage in stages)
    parts = [part for row in expected if isinstance(row.get("inside"), list) for part in row["inside"]]  # type: ignore[attr-defined]
    assert {
        "decomposition",
        "partitioning",
        "pass",
        "pattern match",
        "layout",
        "lowering",
        "fusion",
        "code generation",
    } <= {*parts}
    together = [row["inside"] for row in expected if "and" in (row.get("inside") or ())]  # type: ignore[operator]
    assert {inside[0] for inside in together} >= {"pass", "lowering", "fusion"}  # type: ignore[index]


def test_programs_with_two_bugs_are_named_so_and_say_which_call_is_to_be_left() -> None:
    found = [expected_of(folder) for folder in FOLDERS if folder.name.startswith("two_bugs_")]
    assert len(found) >= 6
    assert all(expected.get("calls") for expected in found), "a signature alone does not tell one bug from the other"
    assert sum("also_found" in expected for expected in found) >= 3


def test_healthy_programs_are_named_so() -> None:
    for folder in FOLDERS:
        expected = expected_of(folder)
        healthy_name = folder.name.startswith(("healthy_", "fails_in_eager_"))
        assert healthy_name == (expected["source"] == "healthy") == (expected["exit_code"] == 1), folder.name


def test_every_re_created_report_is_in_the_corpus() -> None:
    found = {folder.name for folder in FOLDERS if expected_of(folder)["source"] == "re-created from a public report"}
    assert found == RE_CREATED


def test_every_kind_of_failure_is_in_the_corpus() -> None:
    seen = Counter((expected_of(folder)["command"], expected_of(folder)["signature"]) for folder in FOLDERS)
    for kind in (
        ("accuracy", "value"),
        ("accuracy", "metadata:stride"),
        ("accuracy", "metadata:dtype"),
        ("crash", "exception"),
        ("crash", "signal"),
        ("crash", "hang"),
        ("crash", ""),
    ):
        assert seen[kind], f"no corpus program shows {kind}"
    assert seen[("accuracy", "")] >= 6, "at least six healthy programs must answer: no such failure"
    assert any(expected_of(folder)["exit_code"] == 4 for folder in FOLDERS)
    assert any(expected_of(folder)["slow"] for folder in FOLDERS)
