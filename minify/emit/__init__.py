"""A reduced case -> one standalone `repro.py`, and its confirmation in fresh processes."""

from __future__ import annotations

from minify.emit.data import data_of, write_data
from minify.emit.header import Facts
from minify.emit.literals import inline_values, plainer_literals
from minify.emit.repro import emit
from minify.emit.verify import Verification, check, verify

__all__ = [
    "Facts",
    "Verification",
    "check",
    "data_of",
    "emit",
    "inline_values",
    "plainer_literals",
    "verify",
    "write_data",
]
