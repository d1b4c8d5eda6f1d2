"""The identity of a crash: what makes two exceptions the same failure.

Owns the stripping of numbers, names and paths. Works on exceptions; runs nothing.
"""

from __future__ import annotations

import re

from minify import torch_internals
from minify.verdict import Signature

_STRIPPED = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"(/[\w.+\-]+)+"), "<path>"),
    (re.compile(r"""'[^'\n]*'|"[^"\n]*"|‘[^’\n]*’|`[^`\n]*`"""), "''"),
    (re.compile(r"0x[0-9a-fA-F]+"), "#"),
    (re.compile(r"\b\w*\d\w*\b"), "#"),
    (re.compile(r"(# *[,x×] *)+#"), "#"),
    (re.compile(r"\s+"), " "),
)


def plain_message(text: str) -> str:
    """A message without numbers, names and paths; of a C++ compiler's output the first error."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line[line.index("error:") :] for line in lines if "error:" in line]
    message = errors[0] if errors else " ".join(lines[:2])
    for pattern, replacement in _STRIPPED:
        message = pattern.sub(replacement, message)
    return message.strip()[:200]


def crash_signature(error: BaseException) -> Signature:
    """The identity of an exception: its root's type, the innermost compiler frame, the stripped message."""
    root = torch_internals.root_cause(error)
    frame = torch_internals.compiler_frame(root) or torch_internals.compiler_frame(error)
    return Signature("crash", "exception", type(root).__name__, frame, plain_message(str(root)))


def trace_text(error: BaseException) -> str:
    root = torch_internals.root_cause(error)
    return f"{type(root).__name__}: {root}"[:4000]


def first_line(text: str) -> str:
    stripped = text.strip()
    return stripped.splitlines()[0][:300] if stripped else ""
