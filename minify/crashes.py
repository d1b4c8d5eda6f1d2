"""The identity of a crash: what makes two exceptions the same failure.

Owns the root of an exception, the compiler's innermost frame, and the stripping of numbers, names and paths. Runs nothing.
"""

from __future__ import annotations

import re
import subprocess

from minify.verdict import Signature

MOST_FRAMES = 40
_ERROR = re.compile(r"^.*?\berror:")
_STRIPPED = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"(/[\w.+\-]+)+"), "<path>"),
    (re.compile(r"""'[^'\n]*'|"[^"\n]*"|‘[^’\n]*’|`[^`\n]*`"""), "''"),
    (re.compile(r"0x[0-9a-fA-F]+"), "#"),
    (re.compile(r"\b\w*\d\w*\b"), "#"),
    (re.compile(r"\b(complex)?(half|float|double|bool|byte|char|short|int|long)\b", re.IGNORECASE), "#"),
    (re.compile(r"(# *[,x×] *)+#"), "#"),
    (re.compile(r"\s+"), " "),
)


def plain_message(text: str) -> str:
    """A message without numbers, names, dtypes and paths; of a C++ compiler's output the first error."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line[line.index("error:") :] for line in lines if "error:" in line]
    message = errors[0] if errors else " ".join(lines[:2])
    for pattern, replacement in _STRIPPED:
        message = pattern.sub(replacement, message)
    return message.strip()[:200]


_COMPILER_PATHS = ("torch/_inductor", "torch/_dynamo", "torch/_functorch", "torch/fx", "torch/_subclasses", "torch/_decomp",
                   "torch/_refs", "torch/_prims", "torch/_higher_order_ops", "torch/_meta_registrations", "torch/utils/_sympy",
                   "triton/")  # fmt: skip
_PLUMBING = re.compile(
    r"(__call__|_fn|inner|wrapper|wrapped|compile_wrapper|_compile_to_module|__torch_dispatch__|result)"
)


def root_cause(error: BaseException) -> BaseException:
    """The exception that started it, under torch's wrappers (BackendCompilerFailed, InductorError, LoweringException).

    A program that ended badly, such as g++, is no cause by itself: what quotes its output is."""
    seen = {id(error)}
    while True:
        inner = getattr(error, "inner_exception", None) or error.__cause__
        if not isinstance(inner, BaseException) or id(inner) in seen or isinstance(inner, subprocess.SubprocessError):
            return error
        seen.add(id(inner))
        error = inner


def compiler_frame(error: BaseException) -> str:
    """`file.py:function` of the innermost frame that lies in torch's compiler, "" if none does."""
    frames = compiler_frames(error)
    return frames[-1].rsplit("/", 1)[-1] if frames else ""


def compiler_frames(error: BaseException) -> tuple[str, ...]:
    """The frames that lie in torch's compiler, innermost last, as `torch/_inductor/graph.py:run_node`."""
    found = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        path = code.co_filename.replace("\\", "/")
        mark = next((mark for mark in _COMPILER_PATHS if mark in path), "")
        if mark and not _PLUMBING.fullmatch(code.co_name):
            found.append(f"{path[path.rindex(mark) :]}:{code.co_name}")
        trace = trace.tb_next
    return tuple(found)


def root_frames(error: BaseException) -> tuple[str, ...]:
    """The same of what started an exception, the innermost `MOST_FRAMES`."""
    return (compiler_frames(root_cause(error)) or compiler_frames(error))[-MOST_FRAMES:]


def crash_signature(error: BaseException) -> Signature:
    """The identity of an exception: its root's type, the innermost compiler frame, the stripped message."""
    root = root_cause(error)
    frame = compiler_frame(root) or compiler_frame(error)
    return Signature("crash", "exception", type(root).__name__, frame, plain_message(str(root)))


def trace_text(error: BaseException) -> str:
    """The type and the words of an exception's root; of a C++ compiler's output what follows the first error."""
    root = root_cause(error)
    lines = str(root).splitlines()
    first = next((number for number, line in enumerate(lines) if _ERROR.search(line)), 0)
    text = "\n".join([_ERROR.sub("error:", lines[first], count=1), *lines[first + 1 :]]) if first else str(root)
    return f"{type(root).__name__}: {text}"[:4000]


def first_line(text: str) -> str:
    stripped = text.strip()
    return stripped.splitlines()[0][:300] if stripped else ""
