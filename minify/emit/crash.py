"""How a repro recognises a crash again: an exception by type and words, a signal by dying, a hang by the clock."""

from __future__ import annotations

import re

from minify.emit.compiling import Compiling
from minify.emit.header import HANG_SECONDS
from minify.verdict import Observation, Signature

_MOST_WORDS = 60
_CANNOT_TELL = """except Exception as error:
    print(f"cannot tell: {type(error).__name__}: {error}")
    sys.exit(125)
"""


def crash_tail(how: Compiling, observation: Observation, signature: Signature) -> str:
    """The statements after `def run(f)`: eager, then compiled, then the exit code."""
    if signature.family == "signal":
        return _signal(how)
    if signature.family == "hang":
        return _hang(how)
    return _exception(how, observation, signature)


def _signal(how: Compiling) -> str:
    return f"""
try:
    run(fn)
    print("expected: eager runs", flush=True)
    run({how.call})
{_CANNOT_TELL}print("observed: compiled runs as well")
"""


def _hang(how: Compiling) -> str:
    return f"""
try:
    run(fn)
    print("expected: eager runs", flush=True)
    faulthandler.dump_traceback_later({HANG_SECONDS}, exit=True)  # exits 1
    run({how.call})
{_CANNOT_TELL}print("observed: compiled runs as well")
"""


def _exception(how: Compiling, observation: Observation, signature: Signature) -> str:
    words = telling_words(signature.message, observation.crash_text)
    names, values, other = "name", repr(signature.name), "type(root).__name__ != name"
    if words:
        names, values = "name, words", f"{values}, {words!r}"
        other = "(type(root).__name__ != name or words not in str(root))"
    return f"""
try:
    run(fn)
    print("expected: eager runs")
{_CANNOT_TELL}try:
    run({how.call})
    print("observed: compiled runs as well")
    sys.exit(0)
except Exception as error:
    root, {names} = error, {values}
    while root is not None and {other}:
        root = getattr(root, "inner_exception", None) or root.__cause__
    print(f"observed: {{type(error).__name__}}: {{error}}")
    sys.exit(125 if root is None else 1)
"""


def telling_words(message: str, crash_text: str) -> str:
    """The longest run of words of a stripped message that stands literally in what was raised; "" where none does."""
    pieces = [piece.strip(" :,.;()") for piece in re.split(r"''|<path>|#|\n", message)]
    literal = [piece for piece in pieces if " " in piece and piece in crash_text]
    longest = max(literal, key=len, default="")
    return longest if len(longest) <= _MOST_WORDS else longest[:_MOST_WORDS].rsplit(" ", 1)[0]
