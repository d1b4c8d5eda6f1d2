"""`minify`: shrink a program that torch.compile gets wrong, or crashes on, to a standalone repro.

The names below are the public API. Importing this package imports no torch; the first use of a name that needs it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minify.case import Case
from minify.errors import MinifyError, NoFailure, PassBug, Unstable, UsageError, WorkerBug
from minify.tolerance import Tolerance
from minify.verdict import Outcome, Signature, Verdict

if TYPE_CHECKING:
    from minify.api import minify
    from minify.report import Report

__all__ = [
    "Case",
    "MinifyError",
    "NoFailure",
    "Outcome",
    "PassBug",
    "Report",
    "Signature",
    "Tolerance",
    "Unstable",
    "UsageError",
    "Verdict",
    "WorkerBug",
    "minify",
]
_LAZY = {"Report": "minify.report", "minify": "minify.api"}


def __getattr__(name: str) -> Any:
    import importlib

    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'minify' has no attribute {name!r}")
