"""A reduced case -> one standalone `repro.py`, and its confirmation in fresh processes."""

from __future__ import annotations

from minify.emit.data import data_of, write_data
from minify.emit.header import Facts
from minify.emit.literals import EXACT, inline_values, plainer_literals, with_plainer_literals
from minify.emit.repro import emit
from minify.emit.verify import Verification, check, verify, verifying

__all__ = [
    "EXACT",
    "Facts",
    "Verification",
    "check",
    "data_of",
    "emit",
    "inline_values",
    "plainer_literals",
    "verify",
    "verifying",
    "with_plainer_literals",
    "write_data",
]
