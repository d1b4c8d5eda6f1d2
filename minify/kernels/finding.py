"""Who is to blame for a kernel that writes something wrong: the answers of it run alone, and what they amount to. Plain data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from minify import case as cases
from minify.kernels.record import Kernel, to_json
from minify.verdict import Divergence

RIGHT, WRONG, FAILED = "right", "wrong", "cannot tell"
INVALID_ACCESS, UNDEFINED = "invalid access", "undefined behaviour"

INDUCTOR = "the code that Inductor generated"
MEMORY = "an invalid access in the code that Inductor generated"
UNDEFINED_CODE = "undefined behaviour in the code that Inductor generated"
CPP_COMPILER = "the C++ compiler"
VECTORS = "the vectorised functions that the kernel calls"
TRITON_COMPILER = "the Triton compiler"
UNKNOWN = ""

AS_BUILT, SCALAR = "as Inductor builds it", "no vector instructions"


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
        alone = f"; run alone, {answers}" if answers else ""
        return (
            f"kernel {self.kernel.name} writes the first wrong values, in {', '.join(buffers)}: {blame}{alone}",
            *self.notes,
        )

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


def blame_cpp(builds: Sequence[Row], sanitized: Sequence[Row] = ()) -> tuple[str, tuple[str, ...]]:
    """Who is to blame, and what has to be said with it. The first of `builds` is Inductor's own, `sanitized` are those that report."""
    as_built, *others = builds
    reports = {row.answer: (row.why,) for row in sanitized if row.answer in (INVALID_ACCESS, UNDEFINED)}
    if INVALID_ACCESS in reports:
        return MEMORY, reports[INVALID_ACCESS]
    if as_built.answer == RIGHT:
        return UNKNOWN, ("alone, the kernel is right: what surrounds it matters, or the order of its threads",)
    told = [row for row in others if row.answer in (RIGHT, WRONG)]
    if as_built.answer != WRONG or not told:
        return UNKNOWN, ("the kernel could not be run alone in more than one way",)
    cures = [row.how for row in told if row.answer == RIGHT]
    if not cures:
        return INDUCTOR, reports.get(UNDEFINED, ())
    if UNDEFINED in reports:  # of that a compiler may make what it likes
        return UNDEFINED_CODE, reports[UNDEFINED]
    if cures == [SCALAR] and len(told) > 1:
        return VECTORS, ()
    return CPP_COMPILER, (f"it is right built with {', '.join(cures)}",)


def blame_triton(interpreted: Row, launched: Sequence[Row] = ()) -> tuple[str, tuple[str, ...]]:
    """By the interpreter's answer; its row `agrees` where it left what the GPU left. `launched` are runs on a GPU, the first as it
    was launched in the program."""
    if interpreted.answer == RIGHT:
        return TRITON_COMPILER, _by_launch(launched)
    if interpreted.answer == WRONG and interpreted.agrees:
        return INDUCTOR, ()
    if interpreted.answer == WRONG:
        return UNKNOWN, ("under the interpreter it is wrong in another way than on the GPU",)
    return UNKNOWN, ()


def _by_launch(launched: Sequence[Row]) -> tuple[str, ...]:
    """What of the launch the fault depends on."""
    if not launched or launched[0].answer == FAILED:
        return ()
    if launched[0].answer == RIGHT:
        return ("launched again, alone, it is right",)
    cures = [row.how for row in launched if row.answer == RIGHT]
    return (f"it is right with {', '.join(cures)}" if cures else "it is wrong however it is launched",)
