"""Drop outputs, and with each the ops that nothing observable depends on any more.

May lose: a second consumer that stopped a fusion, an output that had to be materialised, or one that aliases another.
The last output can go too where an input is written to, since that is compared after the run.
"""

from __future__ import annotations

from minify.case import Case, canonical
from minify.errors import InvalidCandidate
from minify.passes.contract import Pass, Site
from minify.passes.prune import prune, with_graph, written_inputs


def find(case: Case) -> tuple[Site, ...]:
    """One site for each output: its place and what it returns."""
    outputs = case.graph.outputs
    if len(outputs) < 2 and not written_inputs(case):
        return ()
    return tuple((index, canonical(output)) for index, output in enumerate(outputs))


def rewrite(case: Case, sites: tuple[Site, ...]) -> Case:
    dropped = {site[0] for site in sites}
    outputs = tuple(output for index, output in enumerate(case.graph.outputs) if index not in dropped)
    smaller = prune(with_graph(case, case.graph.ops, outputs))
    if not smaller.graph.ops or not (outputs or written_inputs(smaller)):
        raise InvalidCandidate("nothing visible would remain")
    return smaller


DROP_OUTPUTS = Pass("drop outputs", find, rewrite)
