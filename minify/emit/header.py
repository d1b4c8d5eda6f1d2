"""The docstring a repro opens with: what shows, where it starts, what it needs, how to read the exit code.

Owns the words. Knows of the run only what `Facts`, the signature and the leading divergence say.
"""

from __future__ import annotations

import dataclasses
import re
import textwrap

from minify.case import Case, free_ops
from minify.graph import short_name
from minify.verdict import Divergence, Observation, Signature

WIDTH = 116
DATA_FILE = "repro_data.pt"
_PATH = re.compile(r"(/[\w.+\-]+)+/")  # of a file; its own name stays
MOST_FACTS = 6
HANG_SECONDS = 120  # a healthy program of this size, its first C++ headers included, takes a quarter of it


@dataclasses.dataclass(frozen=True)
class Facts:
    """What the run found out beyond the case itself. `inside` names what of the stage is to blame; `reproduced` is "3/3"; `versions`
    are (name, version) pairs. `counterpart` says what sets the case apart from the repro, for the program beside it that passes."""

    title: str = ""
    stage: str = ""
    inside: str = ""
    decisive: tuple[str, ...] = ()
    not_decisive: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    reproduced: str = ""
    counterpart: str = ""


def header(
    case: Case,
    observation: Observation,
    signature: Signature,
    facts: Facts,
    row: Divergence | None,
    recorded: list[str],
) -> str:
    """The docstring's content. `row` is the divergence that the repro checks, None for a crash; `recorded` names the
    inputs that come from a file."""
    if facts.counterpart:
        lines = [
            f"torch.compile gets this right: {op_names(case)}",
            "",
            f"The repro beside it differs in one thing: {facts.counterpart}.",
        ]
    else:
        lines = [facts.title or title(case, signature, row), "", symptom(case, observation, signature, row)]
    if facts.stage:
        lines.append(_stage(facts))
    lines += [f"Decisive: {fact}." for fact in facts.decisive[:MOST_FACTS]]
    lines += [f"Not decisive: {fact}." for fact in facts.not_decisive[:MOST_FACTS]]
    if recorded:
        lines.append(f"Needs {DATA_FILE} beside it: recorded values of {', '.join(recorded)}.")
    lines += facts.notes
    versions = ", ".join(f"{name} {version}" for name, version in facts.versions)
    reproduced = f"reproduced {facts.reproduced}" if facts.reproduced else ""
    if versions or reproduced:
        lines.append(f"{'; '.join(part for part in (versions, reproduced) if part)}.")
    lines.append(exit_codes(signature))
    return "\n".join(wrapped for line in lines for wrapped in textwrap.wrap(line, WIDTH) or [""])


def _stage(facts: Facts) -> str:
    """Two lines at most, however much inside the stage is to blame."""
    if not facts.inside:
        return f"First divergent stage: {facts.stage}."
    text = f"First divergent stage: {facts.stage}; inside it: {facts.inside}."
    return " ".join(textwrap.wrap(text, WIDTH, max_lines=2, placeholder=" ..."))


def title(case: Case, signature: Signature, row: Divergence | None) -> str:
    """One sentence: the symptom, the ops, how much of the result is wrong."""
    ops = op_names(case)
    if signature.family == "exception":
        return f"torch.compile raises {signature.name}: {ops}"
    if signature.family == "signal":
        return f"torch.compile kills the process ({signature.name}): {ops}"
    if signature.family == "hang" or row is None:
        return f"torch.compile hangs: {ops}"
    what = f"wrong {row.kind}" if not row.total else "wrong result"
    what = "wrong gradient" if row.where.startswith("grad:") else what
    what = "wrong value written to an input" if row.where.startswith("input:") and row.total else what
    extent = f" ({row.kind}, {row.bad} of {row.total} elements)" if row.total else ""
    return f"torch.compile gives a {what}: {ops}{extent}"


def op_names(case: Case) -> str:
    """The program in words: `mul + argmax`, the first and the last ones of a long one."""
    free = free_ops(case.graph)
    names = [short_name(op.target) for op in case.graph.ops if op.name not in free]
    if len(names) > 6:
        names = [*names[:2], f"{len(names) - 4} more", *names[-2:]]
    return " + ".join(names) or "no op"


def symptom(case: Case, observation: Observation, signature: Signature, row: Divergence | None) -> str:
    """What was expected and what was seen instead."""
    if signature.family == "exception":
        text = " ".join(observation.crash_text.split()) or f"{signature.name}: {signature.message}"
        return f"Eager runs; compiled raises {textwrap.shorten(_PATH.sub('', text), 240, placeholder=' ...')}"
    if signature.family == "signal":
        return f"Eager runs; the compiled program ends its process ({signature.name})."
    if row is None:
        return "Eager runs; the compiled program does not come to an end."
    place = ", ".join(part for part in (_place(case, row), f"element {list(row.index)}" if row.index else "") if part)
    return f"Expected {row.expected}, observed {row.observed}{f' ({place})' if place else ''}."


def _place(case: Case, row: Divergence) -> str:
    """Which result departs, "" where there is only one."""
    kind, _, name = row.where.partition(":")
    if kind == "output":
        names = [str(getattr(output, "name", output)) for output in case.graph.outputs]
        return f"output {names.index(name) if name in names else name}" if len(names) > 1 else ""
    return f"gradient of `{name}`" if kind == "grad" else f"`{name}` after the run"


def exit_codes(signature: Signature) -> str:
    if signature.family == "signal":
        return f"The bug shows as an end by {signature.name}; exit code 0: it does not show; 125: cannot tell."
    if signature.family == "hang":
        return f"Exit code 1: stuck for {HANG_SECONDS} s, the bug shows; 0: it does not; 125: cannot tell."
    return "Exit code 1: the bug shows; 0: it does not; 125: cannot tell."
