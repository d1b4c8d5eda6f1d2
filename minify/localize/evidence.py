"""What the compiler makes of a program with what is to blame and without it, and the few lines in which the two differ.

Owns which two compiles are held against each other, which of their artifacts, and what in a text is noise. Knows nothing of
torch: how artifacts come to be written is `torch_internals.artifacts`.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

from minify import artifacts
from minify.ablation import Ablation
from minify.artifacts import Artifact
from minify.case import Case

MOST_LINES = 20  # of a diff
_AROUND = 4  # of them: both names, where, and what was cut
_CONTEXT = 2
_RUN = 6  # lines that go, or that come, shown of one place
_WIDTH = 160
_DIGITS = 12
_TELL_NOTHING = (
    "torch ops aten default Tensor Scalar operator graph inductor config False True as a whole and or with of in matches"
    " pass pattern match lowering inlining fusion layout memory code generation decomposition partitioning precision"
)
SHORT = "short.diff"
SAME = "both compile to the same: what differs is how it is run, or what no artifact shows"


class CompilingOracle(Protocol):
    """What of an oracle is used here."""

    def write_artifacts(self, case: Case, ablation: Ablation | None, folder: Path) -> None:
        """Compile once more, with what the compiler makes of `case` written to `folder`. Raises Stopped."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Compile:
    """One question that was asked: the case, what was left out of the compiler, and the digest that it is known by."""

    case: Case
    digest: str
    ablation: Ablation | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Evidence:
    """The artifact of the passing compile (`before`) and that of the failing one (`after`) in which what is to blame shows first,
    and at most `MOST_LINES` lines of how they differ, which are in `file` as well; `cut` says how many more do. `folders` hold all
    of both, `note` says why there is no diff."""

    folders: tuple[Path, Path]
    before: Artifact | None = None
    after: Artifact | None = None
    diff: tuple[str, ...] = ()
    cut: int = 0
    file: Path | None = None
    note: str = ""

    @property
    def title(self) -> str:
        """What is compared, in words."""
        if self.before is None or self.after is None:
            return ""
        same = self.before.kind == self.after.kind
        return str(self.after) if same else f"{self.before} -> {self.after}"

    def as_row(self, root: Path) -> dict[str, object]:
        """For `report.json`; paths are those below the run's folder `root`."""
        without, with_it = (str(folder.relative_to(root)) for folder in self.folders)
        return {
            "artifact": self.title,
            "without": str(self.before.path.relative_to(root)) if self.before else without,
            "with": str(self.after.path.relative_to(root)) if self.after else with_it,
            "diff": list(self.diff),
            "cut": self.cut,
            "file": str(self.file.relative_to(root)) if self.file else "",
            "note": self.note,
        }


def gather(
    passing: Compile,
    failing: Compile,
    oracle: CompilingOracle,
    folder: Path,
    words: Collection[str] = (),
    part: str = "",
) -> Evidence:
    """Compile both and compare what came of it. `words` are those that lines about what is to blame have in them, `part` the graph
    that it is in, as far as these are known. What is in `folder` already is not compiled again. Raises Stopped."""
    folders = (_written("without", passing, oracle, folder), _written("with", failing, oracle, folder))
    before, after = map(artifacts.written_in, folders)
    pair = _telling(before, after, part, same_chain=passing.case == failing.case)
    if pair is None:
        return Evidence(folders, note=_why_none(before, after))
    lines, cut = _diff(*pair, words)
    short = folder / SHORT
    short.write_text("\n".join(lines) + "\n")
    return Evidence(folders, *pair, lines, cut, short)


def telling_words(*texts: str) -> frozenset[str]:
    """The names in `texts` by which a line about what they name is told."""
    return frozenset(word for text in texts for word in _NAME.findall(text)).difference(_TELL_NOTHING.split())


def _written(name: str, compile_: Compile, oracle: CompilingOracle, folder: Path) -> Path:
    place = folder / f"{name}-{compile_.digest[:_DIGITS]}"
    if not place.exists():
        partial = place.with_suffix(".partial")
        oracle.write_artifacts(compile_.case, compile_.ablation, partial)
        partial.rename(place)
    return place


def _telling(
    before: Sequence[Artifact], after: Sequence[Artifact], part: str, *, same_chain: bool
) -> tuple[Artifact, Artifact] | None:
    """The two to show. Of one chain of steps with something left out of one of them: the first in which it shows. Of two chains: the
    last that both come to or, where all of these are the same, what the passing one ends with and the failing one goes on to."""
    others = {artifact.key: artifact for artifact in before}
    both = [(others[artifact.key], artifact) for artifact in after if artifact.key in others]
    differ = [pair for pair in both if _plain(pair[0]) != _plain(pair[1])]
    wanted = [pair for pair in differ if pair[1].part == part] or differ
    if wanted:
        return wanted[0 if same_chain else -1]
    later = [artifact for artifact in after if artifact.key not in others]
    return (before[-1], later[0]) if before and later else None


def _why_none(before: Sequence[Artifact], after: Sequence[Artifact]) -> str:
    if not after or not before:
        return "the compiler came to nothing that could be written down"
    made = {artifact.key for artifact in after}
    missing = next((artifact for artifact in before if artifact.key not in made), None)
    return f"the failing compile ends after {after[-1]}; the passing one goes on to {missing}" if missing else SAME


# --- texts ---------------------------------------------------------------------------------------------------------------

_NOISE = {
    **dict.fromkeys(artifacts.GRAPHS, r"^\s*class .*|^\s*(\w+) = [LG]_\w+_$|(\s|^)#.*|;(\s*\w+ =)+ None$"),
    **dict.fromkeys(
        (artifacts.UNFUSED, artifacts.FUSED),
        r".*\.(users|writes|(un)?met_dependencies|m(in|ax)_input_distance|outputs|sizes|group\.\w+)\b.*"
        r"|^\s*NodeUser\(.*|^\s*\]|.*_layout = .*",
    ),
    artifacts.CODE: r"^\s*# .*",
}
_UNUSED = re.compile(r"^def (get_args|benchmark_compiled_module)\(", re.MULTILINE)  # of generated code
_PATH = re.compile(r"/[\w./+-]*/([\w.+-]+)")
_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGNED = re.compile(r'^\s*(?:auto )?(\w+)(?:: ?"[^"]*")? = |\b(\w+): "')
_NUMBERED = re.compile(r"(buf|op|tmp|arg|primals|tangents|in_ptr|out_ptr|in_out_ptr|xindex|load|get_index)_?\d+(_\d+)?")
_KERNEL = re.compile(r"((?:cpp|triton_[a-z]+)_fused_\w*?)_\d+")
_TYPE = re.compile(r'(\w+): ?"[^"]*"')


def _plain(artifact: Artifact) -> list[str]:
    """The lines of an artifact without those, and without what of them, that differ from one compile to the next."""
    text, noise = artifact.path.read_text(), re.compile(_NOISE.get(artifact.kind, r"^$"))
    if artifact.kind == artifacts.CODE and (end := _UNUSED.search(text)):
        text = text[: end.start()]
    lines = (_PATH.sub(r"<path>/\1", noise.sub("", line)).rstrip() for line in text.splitlines())
    return [line for line in lines if line.strip()]


def _keys(lines: Sequence[str]) -> list[str]:
    """What lines are matched by: names without their numbers, since one call more renumbers all that follow."""
    assigned = {name for line in lines for found in _ASSIGNED.findall(line) for name in found if name}

    def stem(match: re.Match[str]) -> str:
        name = match.group()
        if name in assigned or _NUMBERED.fullmatch(name):
            return re.sub(r"(_?\d+)+$", "", name)
        kernel = _KERNEL.fullmatch(name)
        return kernel.group(1) if kernel else name

    return [_NAME.sub(stem, line) for line in lines]


def _calls(lines: Sequence[str]) -> list[str]:
    """What lines of two kinds of artifact are matched by: the function that is called."""
    found = []
    for line in lines:
        called = re.search(r"= (?:[\w.]*?)(\w+?)(?:\.(?:default|Tensor|Scalar|int|dim\w*))?\(", _TYPE.sub(r"\1", line))
        found.append(called.group(1) if called else line)
    return found


def _diff(before: Artifact, after: Artifact, words: Collection[str]) -> tuple[tuple[str, ...], int]:
    """The lines to show, of the place that has most of `words` in it, and how many more lines differ."""
    one, other = _plain(before), _plain(after)
    as_keys = _keys if before.kind == after.kind else _calls
    keys = (as_keys(one), as_keys(other))
    if keys[0] == keys[1]:
        keys = (one, other)
    groups = difflib.SequenceMatcher(None, *keys, autojunk=False).get_grouped_opcodes(_CONTEXT)
    hunks = [_hunk(group, one, other) for group in groups]
    chosen = max(hunks, key=lambda hunk: _mentions(hunk, words))  # the first of equals
    body = _around(_shortened(chosen[1:], words), words, MOST_LINES - _AROUND)
    cut = sum(_changes(line) for hunk in hunks for line in hunk[1:]) - sum(map(_changes, body))
    header = (f"--- without: {before.path.name}", f"+++ with: {after.path.name}", chosen[0])
    footer = (f"… {cut} more lines differ",) if cut else ()
    lines = (*header, *body, *footer)
    return tuple(line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…" for line in lines), cut


def _changes(line: str) -> bool:
    return line[0] in "+-" and not line[1:].startswith("…")


def _hunk(group: Sequence[tuple[str, int, int, int, int]], one: Sequence[str], other: Sequence[str]) -> list[str]:
    """A place where the texts differ, as `diff -u` writes it; what is matched but not the same is as it is with what is to blame."""
    (_, low, _, low_other, _), (_, _, high, _, high_other) = group[0], group[-1]
    lines = [f"@@ -{low + 1},{high - low} +{low_other + 1},{high_other - low_other} @@"]
    for tag, start, end, start_other, end_other in group:
        if tag == "equal":
            lines += [f" {line}" for line in other[start_other:end_other]]
        else:
            lines += [f"-{line}" for line in one[start:end]] + [f"+{line}" for line in other[start_other:end_other]]
    return lines


def _mentions(lines: Sequence[str], words: Collection[str]) -> int:
    return sum(_mentioned(line, words) for line in lines if line[0] in "+-")


def _mentioned(line: str, words: Collection[str]) -> bool:
    return not set(words).isdisjoint(_NAME.findall(line))


def _shortened(lines: Sequence[str], words: Collection[str]) -> list[str]:
    """Of each run of lines that go or come a few, from the first on that has one of `words` in it."""
    found: list[str] = []
    start = 0
    while start < len(lines):
        end = next((at for at in range(start, len(lines)) if lines[at][0] != lines[start][0]), len(lines))
        run = lines[start:end]
        if len(run) > _RUN and run[0][0] != " ":
            first = next((at for at, line in enumerate(run) if _mentioned(line, words)), 0)
            first = max(0, min(first - 1, len(run) - _RUN + 1))
            kept = run[first : first + _RUN - 1]
            found += [*kept, f"{run[0][0]}… {len(run) - len(kept)} more lines"]
        else:
            found += run
        start = end
    return found


def _around(lines: Sequence[str], words: Collection[str], room: int) -> Sequence[str]:
    """As many as there is room for, around the first changed line that has one of `words` in it, or the first at all."""
    changed = [at for at, line in enumerate(lines) if line[0] in "+-"]
    first = next((at for at in changed if _mentioned(lines[at], words)), changed[0])
    start = max(0, min(first - _CONTEXT, len(lines) - room))
    return lines[start : start + room]
