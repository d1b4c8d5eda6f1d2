"""Every error `minify` shows a user: each owns its exit code and says what to do next.

Messages are lowercase, name the value, the allowed range and the next step. `cli` prints them as one line.
"""

from __future__ import annotations

EXIT_REDUCED = 0
EXIT_NO_FAILURE = 1
EXIT_USAGE = 2
EXIT_STOPPED_EARLY = 3
EXIT_UNSTABLE = 4
EXIT_BUG = 70

CHECK_GOOD = 0
CHECK_BAD = 1
CHECK_CANNOT_TELL = 125


class MinifyError(Exception):
    """Base of the family; `exit_code` is what the process answers, `next_step` is what the user can do."""

    exit_code: int = EXIT_BUG

    def __init__(self, message: str, next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.message}; {self.next_step}" if self.next_step else self.message


class UsageError(MinifyError):
    """The command line, a file or a value the user gave cannot be used."""

    exit_code = EXIT_USAGE


class NoFailure(MinifyError):
    """The program was watched and the asked-for failure did not show."""

    exit_code = EXIT_NO_FAILURE


class Drift(NoFailure):
    """Results are out of tolerance, and rounding explains it. `numbers` say in words how far out, and how far eager is."""

    def __init__(self, message: str, next_step: str = "", *, numbers: str) -> None:
        super().__init__(f"{message}: {numbers}" if message else numbers, next_step)
        self.numbers = numbers


class Unstable(MinifyError):
    """The failure shows only sometimes, or only inside the user's process."""

    exit_code = EXIT_UNSTABLE


class FailsInDynamo(Unstable):
    """The script fails while Dynamo captures it, and not without Dynamo: there is no graph to go on with."""


class PassBug(MinifyError):
    """A pass raised something other than `InvalidCandidate`; the case that broke it has been saved."""

    exit_code = EXIT_BUG


class WorkerBug(MinifyError):
    """A worker answered with an error of our own, not of torch."""

    exit_code = EXIT_BUG


class InvalidCandidate(Exception):
    """An edit makes no sense for this case. The only exception that crosses from a pass to the search."""


class Stopped(Exception):
    """The run was told to stop (Ctrl-C, SIGTERM, budget); the best case so far stands. `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
