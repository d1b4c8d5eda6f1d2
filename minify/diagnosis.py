"""What of the compiler a failure needs: the first divergent stage, and what inside it.

The one place where the case that a search ends with and a region that nothing was reduced of are asked the same. Whoever knows
more of a stage adds a step to `diagnose`, a field to `Diagnosis`, and to `told` what the report says of it.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path

from minify import case as cases
from minify.attempt import Attempt
from minify.case import Case
from minify.errors import Stopped
from minify.kernels.finding import Finding
from minify.localize import Localised, Rung, first_stage, ladder
from minify.localize.evidence import Compile, Evidence, gather, telling_words
from minify.localize.inside import Inside, Row, has_parts, look_inside
from minify.localize.nodes import FirstNode, first_node
from minify.report import Report
from minify.runs import Request
from minify.verdict import Signature

GENERATES_KERNELS = ("Inductor", "max-autotune", "CUDA graphs")
# Kinds that a kernel shows the fault of: of those before them, the graph that it is made of is wrong already.
MADE_INTO_KERNELS = ("layout", "lowering", "inlining", "fusion", "memory", "codegen")


@dataclasses.dataclass(frozen=True, slots=True)
class Diagnosis:
    """The ladder's answers, and those with parts of the stage left out, None where none was asked; where its values first differ; what
    the compiler makes of the program with what is to blame and without. `stopped` says why there is no more of it."""

    located: Localised = dataclasses.field(default_factory=Localised)
    inside: Inside | None = None
    node: FirstNode | None = None
    kernel: Finding | None = None
    evidence: Evidence | None = None
    stopped: str = ""

    @property
    def culprit(self) -> str:
        """What inside the stage is to blame, in words; "" where that is not known."""
        return str(self.inside.culprit) if self.inside and self.inside.culprit else ""

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.located.notes, *_said(self.inside, self.located), *(self.kernel.told if self.kernel else ()))

    def told(self, report: Report, request: Request) -> Report:
        """`report` with what was found out in it, each row of its tables with the command line that asks it again."""

        def again(row: dict[str, object], *options: str) -> dict[str, object]:
            return row | {"replay": stage_command(request, report.repro, options) if row["digest"] else ""}

        return dataclasses.replace(
            report,
            stage=self.located.stage,
            stage_pair=self.located.pair(),
            ladder=tuple(again(rung.as_row(), "--rung", rung.stage) for rung in self.located.rungs),
            inside=self.culprit,
            ablations=tuple(
                again(row.as_row(), *self._options(row)) for row in (self.inside.table if self.inside else ())
            ),
            first_node={"region": report.region, **self.node.as_row()} if self.node else {},
            kernel=self.kernel.as_row() if self.kernel else {},
            evidence=self.evidence.as_row(report.folder) if self.evidence else {},
            notes=(*report.notes, *self.notes),
        )

    def _options(self, row: Row) -> tuple[str, ...]:
        """What `minify stage` is given to ask a row of the ablation table again: the rung, unless it is the case itself."""
        failing = self.located.failing
        assert failing is not None
        rung = () if row.ablation.kind and failing is self.located.rungs[-1] else ("--rung", failing.stage)
        return (*rung, *row.ablation.options())


# Options of `minify stage` by the field of a request that they set. A repro holds by itself what the latter two say of a script.
_OPTIONS = {"kind": "--kind", "atol": "--atol", "rtol": "--rtol", "reference": "--reference", "timeout": "--timeout"}
_OF_SCRIPTS = {"region": "--region", "level": "--level", "device": "--device", "backend": "--backend", "mode": "--mode"}
_FLAGS = {"dynamic": {True: "--dynamic", False: "--static"}, "train": {True: "--train"}}


def stage_command(request: Request, repro: Path | None, options: Sequence[str] = ()) -> str:
    """`minify stage` with `options`, of the failure that `request` describes: of its repro, if there is one, else of its script, in
    the folder that this one was run in, since a script may read files by names relative to it."""
    plain = Request("", "")
    words = ["minify", "stage", str(repro or request.script)]
    for field, option in (_OPTIONS if repro else _OPTIONS | _OF_SCRIPTS).items():
        value = getattr(request, field)
        if value != getattr(plain, field):
            words += [option, str(value)]
    if not repro:
        words += [flags[value] for field, flags in _FLAGS.items() if (value := getattr(request, field)) in flags]
    arguments = ["--", *request.args] if request.args and not repro else []
    command = shlex.join([*words, *options, *arguments])
    return command if repro else in_this_folder(command)


def in_this_folder(command: str) -> str:
    return f"{shlex.join(['cd', str(Path.cwd())])} && {command}"


def diagnose(
    this: Attempt, case: Case, signature: Signature, rate: float = 1.0, *, into_kernels: bool = True
) -> Diagnosis:
    """What `case` needs of the compiler for the failure `signature`, which shows in `rate` of its runs: 0 for a healthy program.
    `into_kernels` asks for the generated kernel that is wrong, too.

    Raises Stopped before there is a stage; what is missing after that is left out."""
    found = Diagnosis(first_stage(case, signature, this.oracle))
    if not rate or signature.family == "hang":
        return found
    try:
        if rate == 1:
            found = dataclasses.replace(found, inside=_inside(this, case, signature, found.located))
        found = dataclasses.replace(found, node=_node(this, case, signature, found.located))
        if rate == 1 and into_kernels:
            found = dataclasses.replace(found, kernel=_kernel(this, case, signature, found))
        return dataclasses.replace(found, evidence=_evidence(this, case, found))
    except Stopped as stop:
        return dataclasses.replace(found, stopped=stop.reason)


def _inside(this: Attempt, case: Case, signature: Signature, located: Localised) -> Inside | None:
    """What of the stage the failure needs, asked of the rung that names it. Each question of a hang would take the whole timeout."""
    failing = located.failing
    if not located.stage or failing is None or not has_parts(failing.stage):
        return None
    this.progress.step(f"which part of {failing.stage} does it need?")
    return look_inside(_question(case, failing), signature, this.oracle, failing.stage)


def _node(this: Attempt, case: Case, signature: Signature, located: Localised) -> FirstNode | None:
    if not located.stage or located.failing is None:
        return None
    this.progress.step("which of its values differs first?")
    return first_node(_question(case, located.failing), signature, this.oracle)


def _question(case: Case, rung: Rung) -> Case:
    return next(question for _, question in ladder(case) if cases.digest(question) == rung.digest)


def _evidence(this: Attempt, case: Case, found: Diagnosis) -> Evidence | None:
    """What changes in what the compiler makes of the program: without what inside the stage is to blame or, where that is not known,
    without the stage."""
    failing, passing = found.located.failing, found.located.passing
    if failing is None or passing is None:
        return None
    culprit = found.inside.culprit if found.inside else None
    with_it = Compile(_question(case, failing), failing.digest)
    without = Compile(_question(case, passing), passing.digest)
    if culprit is not None:
        gone = culprit.confirmations[1]
        without = Compile(with_it.case, gone.digest, gone.ablation)
    this.progress.step(f"what changes with {culprit or found.located.stage}?")
    part, words = (found.node.part, (found.culprit, found.node.call)) if found.node else ("", (found.culprit,))
    return gather(without, with_it, this.oracle, this.folder.evidence, telling_words(*words), part)


def _kernel(this: Attempt, case: Case, signature: Signature, found: Diagnosis) -> Finding | None:
    """The generated kernel that writes the first wrong values; not asked where what comes before code generation is to blame."""
    failing, culprit = found.located.failing, found.inside.culprit if found.inside else None
    if failing is None or failing.stage not in GENERATES_KERNELS or signature.family != "value":
        return None
    if culprit is not None and culprit.kind not in MADE_INTO_KERNELS:
        return None
    this.progress.step("which kernel writes the first wrong values, and who is to blame for it?")
    finding = this.oracle.wrong_kernel(_question(case, failing))
    if finding is not None:
        finding.keep(this.folder.path)
    return finding


def _said(inside: Inside | None, located: Localised) -> tuple[str, ...]:
    if inside is None or located.failing is None:
        return ()
    if inside.culprit is None:
        return (f"no part of {located.failing.stage} is to blame by itself", *inside.notes)
    return (*inside.culprit.notes, *inside.notes)
