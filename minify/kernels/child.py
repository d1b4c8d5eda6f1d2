"""Processes that build a kernel or run it: each ends with its time limit.

They stay in the process group of whoever starts them, which a worker leads, and so end with it at the latest.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence

_TAIL = 4000


@dataclasses.dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended: its exit code, None where it was killed for its time, and the end of what it printed."""

    code: int | None
    said: str


def run(command: Sequence[str], seconds: float, environment: Mapping[str, str] | None = None) -> Ended:
    """Raises OSError where it cannot be started."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        log.seek(0)
        return Ended(code, log.read()[-_TAIL:].decode(errors="replace"))
