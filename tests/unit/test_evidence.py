"""Which two artifacts are held against each other, and what the few lines shown of them are; nothing is compiled here."""

from __future__ import annotations

from pathlib import Path

import pytest

from minify import artifacts
from minify.ablation import Ablation, without
from minify.artifacts import ATEN, BACKEND, CODE, DYNAMO, POST_GRAD, PROGRAM, UNFUSED
from minify.case import Case
from minify.localize.evidence import MOST_LINES, SAME, Compile, Evidence, gather, telling_words
from tests.reducing import line

CASE, OTHER = line("torch.relu"), line("torch.exp")
Texts = list[tuple[str, str, str]]


def graph(*calls: str) -> str:
    """A graph as torch prints it; a call is `name = what it is`."""
    body = "".join(
        f'    {name}: "f32[4][1]cpu" = {call};  x = None\n' for name, call in (c.split(" = ") for c in calls)
    )
    return f"class GraphModule(torch.nn.Module):\n    # File: mine.py:3 in fn, code: relu(x)\n{body}    return x\n"


class Writing:
    """Leaves given artifacts, by what is left out of the compiler and by case."""

    def __init__(self, passing: Texts, failing: Texts) -> None:
        self.texts = {CASE: failing, OTHER: passing}
        self.ablated = passing
        self.asked: list[Path] = []

    def write_artifacts(self, case: Case, ablation: Ablation | None, folder: Path) -> None:
        self.asked.append(folder)
        folder.mkdir(parents=True)
        for number, (kind, part, text) in enumerate(self.ablated if ablation else self.texts[case], 1):
            (folder / artifacts.file_name(number, kind, part)).write_text(text)


def gathered(
    root: Path, passing: Texts, failing: Texts, words: str = "", part: str = "", *, same_chain: bool = True
) -> Evidence:
    gone = Compile(CASE, "0" * 32, without("fusion", ["op0+op1"])) if same_chain else Compile(OTHER, "1" * 32)
    oracle = Writing(passing, failing)
    return gather(gone, Compile(CASE, "2" * 32), oracle, root, telling_words(words), part)


def test_of_a_compile_with_something_left_out_the_first_artifact_that_differs_is_shown(tmp_path: Path) -> None:
    same = graph("mul = torch.mul(x, 2)")
    found = gathered(
        tmp_path,
        [(DYNAMO, "", same), (ATEN, "", graph("add = aten.add(x, 1)")), (CODE, "", "one")],
        [(DYNAMO, "", same), (ATEN, "", graph("sub = aten.sub(x, 1)")), (CODE, "", "other")],
    )
    assert found.title == ATEN
    assert [line for line in found.diff if line[0] in "+-"][2:] == [
        '-    add: "f32[4][1]cpu" = aten.add(x, 1)',
        '+    sub: "f32[4][1]cpu" = aten.sub(x, 1)',
    ]


def test_of_two_rungs_the_last_artifact_that_both_come_to_is_shown(tmp_path: Path) -> None:
    one, other = graph("a = aten.add(x, 1)"), graph("a = aten.sub(x, 1)")
    found = gathered(
        tmp_path,
        [(ATEN, "", one), (CODE, "", "one")],
        [(ATEN, "", other), (POST_GRAD, "", one), (CODE, "", "other")],
        same_chain=False,
    )
    assert found.title == CODE and found.diff[-2:] == ("-one", "+other")


def test_what_only_the_failing_rung_makes_is_held_against_the_last_that_both_make(tmp_path: Path) -> None:
    given = graph("erf = torch.erf(x)", "y = torch.mul(erf, 2)")
    found = gathered(
        tmp_path,
        [(PROGRAM, "", "fn"), (DYNAMO, "", given)],
        [(PROGRAM, "", "fn"), (DYNAMO, "", given), (BACKEND, "", given.replace("torch.erf", "torch.tanh"))],
        same_chain=False,
    )
    assert found.title == f"{DYNAMO} -> {BACKEND}"
    assert [line.split(" = ")[1] for line in found.diff if line[0] in "+-" and " = " in line] == [
        "torch.erf(x)",
        "torch.tanh(x)",
    ]


def test_two_compiles_that_make_the_same_are_said_to(tmp_path: Path) -> None:
    texts = [(DYNAMO, "", graph("mul = torch.mul(x, 2)")), (CODE, "", "def call(args): ...")]
    found = gathered(tmp_path, texts, texts, same_chain=False)
    assert (found.title, found.diff, found.note) == ("", (), SAME)


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (ATEN, graph("relu = torch.relu(x)"), graph("relu = torch.relu(x)").replace("mine.py:3", "mine.py:8")),
        (UNFUSED, "op0: Node\nop0.users = [op1]", "op0: Node\nop0.users = [op2]"),
        (CODE, "# AOT ID: ['0_inference']\nmain()", "# AOT ID: ['1_inference']\nmain()"),
        (CODE, "load('/tmp/a/x.h')", "load('/tmp/b/x.h')"),
        (CODE, "main()\ndef get_args():\n    return 1", "main()\ndef get_args():\n    return 2"),
    ],
)
def test_what_differs_from_one_compile_to_the_next_is_no_difference(
    kind: str, one: str, other: str, tmp_path: Path
) -> None:
    assert gathered(tmp_path, [(kind, "", one)], [(kind, "", other)]).note == SAME


def test_one_call_more_does_not_make_the_renumbered_ones_after_it_differ(tmp_path: Path) -> None:
    calls = ["add = aten.add(x, 1)", "mul = aten.mul(add, 2)"]
    after = ["add_1 = aten.add(x, 1)", "mul_1 = aten.mul(add_1, 2)", "mul_2 = aten.mul(mul_1, 3)"]
    more = [
        "sub = aten.sub(mul, 7)",
        "add_2 = aten.add(x, 1)",
        "mul_4 = aten.mul(add_2, 2)",
        "mul_5 = aten.mul(mul_4, 3)",
    ]
    found = gathered(tmp_path, [(ATEN, "", graph(*calls, *after))], [(ATEN, "", graph(*calls, *more))])
    assert [line for line in found.diff[3:] if line[0] in "+-"] == ['+    sub: "f32[4][1]cpu" = aten.sub(mul, 7)']


def test_where_only_the_wiring_differs_that_is_shown(tmp_path: Path) -> None:
    one, other = ["a_1 = aten.sin(x)", "a_2 = aten.add(a_1, x)"], ["a_1 = aten.sin(x)", "a_2 = aten.add(a_2, x)"]
    found = gathered(tmp_path, [(ATEN, "", graph(*one))], [(ATEN, "", graph(*other))])
    assert [line for line in found.diff[3:] if line[0] in "+-"] == [
        '-    a_2: "f32[4][1]cpu" = aten.add(a_1, x)',
        '+    a_2: "f32[4][1]cpu" = aten.add(a_2, x)',
    ]


def far_apart(*changed: str) -> str:
    return "\n".join(line for call in changed for line in (call, *(f"same({n})" for n in range(9))))


def test_the_place_that_names_the_culprit_is_shown_and_else_the_first(tmp_path: Path) -> None:
    texts = [(CODE, "", far_apart("first()", "kernel(buf3)"))], [(CODE, "", far_apart("other()", "kernel2(buf3)"))]
    assert "+other()" in gathered(tmp_path / "a", *texts).diff
    assert "+kernel2(buf3)" in gathered(tmp_path / "b", *texts, "fusion buf3 with").diff


def test_of_a_program_with_a_backward_the_graph_that_is_wrong_is_shown(tmp_path: Path) -> None:
    passing, failing = ([(ATEN, part, f"{part} {who}") for part in artifacts.PARTS] for who in ("one", "other"))
    assert gathered(tmp_path, passing, failing, part="backward").title == f"{ATEN}, backward"


@pytest.mark.parametrize("changed", [40, 7])
def test_no_diff_is_longer_than_it_may_be_and_what_is_cut_is_counted(changed: int, tmp_path: Path) -> None:
    one, other = ("\n".join(f"{who}(here{n})" for n in range(changed)) for who in ("old", "new"))
    found = gathered(tmp_path, [(CODE, "", one)], [(CODE, "", other)], "here30")
    assert len(found.diff) <= MOST_LINES
    *counted, last = [line for line in found.diff if "…" in line]
    assert counted == [f"{sign}… {changed - 5} more lines" for sign in "-+"]
    assert last == f"… {found.cut} more lines differ" and found.cut == 2 * (changed - 5)
    assert changed == 7 or "+new(here30)" in found.diff


def test_the_places_that_are_not_shown_are_counted_and_the_shown_lines_are_a_file(tmp_path: Path) -> None:
    found = gathered(tmp_path, [(CODE, "", far_apart("a()", "b()"))], [(CODE, "", far_apart("c()", "d()"))])
    assert found.cut == 2 and found.diff[-1] == "… 2 more lines differ"
    assert found.file and found.file.read_text().splitlines() == list(found.diff)


def test_of_a_compile_that_dies_is_told_what_it_came_to(tmp_path: Path) -> None:
    first = (DYNAMO, "", graph("mul = torch.mul(x, 2)"))
    found = gathered(tmp_path, [first, (CODE, "", "main()")], [first])
    assert found.note == f"the failing compile ends after {DYNAMO}; the passing one goes on to {CODE}"


def test_what_is_in_the_folder_already_is_not_compiled_again(tmp_path: Path) -> None:
    texts = [(CODE, "", "main()")]
    oracle = Writing(texts, texts)
    pair = Compile(OTHER, "1" * 32), Compile(CASE, "2" * 32)
    first = gather(*pair, oracle, tmp_path)
    assert gather(*pair, oracle, tmp_path) == first and len(oracle.asked) == 2
    assert {path.name for path in tmp_path.iterdir()} == {f"without-{'1' * 12}", f"with-{'2' * 12}"}


def test_the_name_of_an_artifacts_file_is_read_back(tmp_path: Path) -> None:
    names = [
        artifacts.file_name(n, kind, part)
        for n, (kind, part) in enumerate([(DYNAMO, ""), (ATEN, "backward"), (CODE, "2")], 1)
    ]
    for name in (*names, "notes.txt", "9.other.txt"):
        (tmp_path / name).touch()
    found = artifacts.written_in(tmp_path)
    assert [(each.kind, each.part) for each in found] == [(DYNAMO, ""), (ATEN, "backward"), (CODE, "2")]
