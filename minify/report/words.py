"""A report in lines of text, as the commands tell it on stderr. Prints nothing."""

from __future__ import annotations

from collections.abc import Iterator

from minify.progress import counted
from minify.report import Report
from minify.report.ladder import short_digest, table


def of_reduction(report: Report) -> Iterator[str]:
    """What `minify accuracy` and `minify crash` say."""
    sizes = f"{report.original['ops']} -> {counted(report.reduced['ops'], 'op')}" if report.reduced else ""
    verified = f"{report.verified.get('reproduced', 0)}/{report.verified.get('runs', 0)} fresh runs fail"
    minimal = f"1-minimal ({counted(report.edits_tried, 'edit')} tried)" if report.one_minimal else "not 1-minimal"
    stage = f"first divergent stage: {report.stage}, " if report.stage else ""
    yield from (f"decisive: {fact}" for fact in report.decisive)
    yield from (f"not decisive: {fact}" for fact in report.not_decisive)
    yield from _of_inside(report)
    cost = f"{counted(report.queries, 'query')}, {report.seconds:.0f} s"
    yield f"{report.signature}: {sizes}, {stage}{minimal}, {verified}, {cost}"
    yield from (f"also found: {also}" for also in report.also_found)
    yield from _of_evidence(report)
    if report.passing:
        yield f"the nearest program that passes: {report.passing}"
    yield from _message(report)


def of_row(report: Report) -> Iterator[str]:
    """What `minify stage` says of one question."""
    for rows, named in ((report.ladder, "stage"), (report.ablations, "left_out")):
        yield from table(rows, named) if rows else ()
    yield from _message(report)


def of_stage(report: Report) -> Iterator[str]:
    """What `minify stage` says."""
    yield from table(report.ladder)
    if report.stage_pair:
        with_it, without = (short_digest(report.stage_pair[answer]) for answer in ("fails", "passes"))
        yield f"with {report.stage} it fails ({with_it}), without it passes ({without})"
    yield from _of_inside(report)
    yield from table(report.ablations, "left_out") if report.ablations else ()
    yield from _of_evidence(report)
    yield from report.evidence.get("diff", ())
    if again := [row["replay"] for row in (*report.ladder, *report.ablations) if row.get("replay")]:
        yield f"each row can be asked again, the last by: {again[-1]}"
    yield from (f"note: {note}" for note in report.notes)
    said = f"{report.signature}, " if report.signature else ""
    yield f"{said}{counted(report.queries, 'query')}, {report.seconds:.0f} s; report: {report.folder}"
    yield from _message(report)


def _of_inside(report: Report) -> Iterator[str]:
    if report.inside:
        alone = "" if report.inside.endswith("as a whole") else ", alone it fails"
        yield f"inside {report.stage}: {report.inside}: with it fails, without it passes{alone}"


def _of_evidence(report: Report) -> Iterator[str]:
    if node := report.first_node:
        named = f"{node['node']} ({node['call']}) differs first" if node["node"] else "no node is named"
        region = f" of region {node['region']}" if node["region"] is not None else ""
        yield f"{node['kind']}{region}, {node['part']}: {named}; {node['note']}"
    if report.evidence:
        file = report.evidence["file"]
        where = f": {report.folder / file}" if file else ""
        yield f"evidence: {report.evidence['artifact'] or report.evidence['note']}{where}"


def _message(report: Report) -> Iterator[str]:
    if report.message:
        yield f"minify: {report.message}"
