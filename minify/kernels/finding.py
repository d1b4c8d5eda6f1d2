"""Who is to blame for a kernel that writes something wrong: the answers of it run alone, and what they amount to. Plain data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from minify import case as cases
from minify.kernels.record import Kernel, to_json
from minify.verdict import Divergence

RIGHT, WRONG, FAILED, INVALID_ACCESS = "right", "wrong", "cannot tell", "invalid access"

INDUCTOR = "Inductor's code generation"
CPP_COMPILER = "the C++ compiler"
VECTORS = "the vectorised functions that the kernel calls"
TRITON_COMPILER = "the Triton compiler"
MEMORY = "an invalid access in Inductor's code"
UNKNOWN = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """The kernel run alone in one way, `how`: what is due, or not; the numbers of the worst that is not. `why` says what came in
    between, or what a sanitizer reports. `agrees` says whether it left what was recorded, None where that was not asked."""

    how: str
    answer: str
    numbers: Divergence | None = None
    why: str = ""
    agrees: bool | None = None

    def as_row(self) -> dict[str, object]:
        """For `report.json`."""
        return {**dataclasses.asdict(self), "numbers": self.numbers and dataclasses.asdict(self.numbers)}


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """The first kernel that writes something wrong, None where there is none, and who is to blame, "" where that is not known."""

    kernel: Kernel | None = None
    blame: str = UNKNOWN
    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def told(self) -> tuple[str, ...]:
        """In lines of a report."""
        if self.kernel is None:
            return self.notes
        buffers = [
            f"{argument.buffer or argument.name}{f' ({argument.node})' if argument.node else ''}"
            for argument in self.kernel.arguments
            if argument.name in self.kernel.wrong
        ]
        blame = f"{self.blame} is to blame" if self.blame else "who is to blame is not clear"
        answers = ", ".join(f"{row.how}: {row.answer}" for row in self.rows)
        alone = f"; alone it is, {answers}" if answers else ""
        return (f"kernel {self.kernel.name} writes {', '.join(buffers)} wrong: {blame}{alone}", *self.notes)

    def keep(self, folder: Path) -> None:
        """Leave the kernel there as text, and with its inputs as a record. Raises OSError."""
        if self.kernel is not None:
            suffix = {"cpp": "cpp", "triton": "py"}[self.kernel.language]
            cases.write_whole(folder / f"kernel.{suffix}", self.kernel.source.encode())
            cases.write_whole(folder / "kernel.json", to_json(self.kernel).encode())

    def as_row(self) -> dict[str, object]:
        """For `report.json`."""
        kernel = self.kernel
        return {
            "name": kernel.name if kernel else "",
            "language": kernel.language if kernel else "",
            "wrong": list(kernel.wrong) if kernel else [],
            "blame": self.blame,
            "rows": [row.as_row() for row in self.rows],
        }


def blame_cpp(as_built: Row, others: Sequence[Row], sanitized: Sequence[Row]) -> tuple[str, tuple[str, ...]]:
    """Who is to blame, and what has to be said with it. `others` are builds with less of the compiler's doing, the last those that
    leave the vector instructions out as well."""
    if any(row.answer == INVALID_ACCESS for row in sanitized):
        return MEMORY, ()
    if as_built.answer == RIGHT:
        return UNKNOWN, ("alone, the kernel is right: what surrounds it, or the order of its threads, matters",)
    told = [row for row in others if row.answer in (RIGHT, WRONG)]
    if as_built.answer != WRONG or not told:
        return UNKNOWN, ("the kernel could not be run alone in more than one way",)
    cures = [row.how for row in told if row.answer == RIGHT]
    if not cures:
        return INDUCTOR, ()
    plain = [row.how for row in told if row.how != SCALAR]
    if cures == [SCALAR] and plain:
        return VECTORS, ()
    return CPP_COMPILER, (f"it is right built with {', '.join(cures)}",)


SCALAR = "no vector instructions"


def blame_triton(interpreted: Row) -> tuple[str, tuple[str, ...]]:
    """By the interpreter's answer; its row `agrees` where it left what the GPU left."""
    if interpreted.answer == RIGHT:
        return TRITON_COMPILER, ()
    if interpreted.answer == WRONG and interpreted.agrees:
        return INDUCTOR, ()
    if interpreted.answer == WRONG:
        return UNKNOWN, ("under the interpreter it is wrong in another way than on the GPU",)
    return UNKNOWN, ()
