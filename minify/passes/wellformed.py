"""Whether a case hangs together: the check that every candidate can be put to, before it costs a query."""

from __future__ import annotations

from minify.case import Case, Graph, bodies, op_refs, refs


def well_formed(case: Case) -> bool:
    return not faults(case)


def faults(case: Case) -> tuple[str, ...]:
    """What is wrong with `case`, in words: names used twice, values read before they exist, parameters without an
    input or inputs without a parameter. Empty when it is sound."""
    params, given = case.graph.params, tuple(item.name for item in case.inputs)
    found = []
    if sorted(params) != sorted(given):
        found.append(f"parameters {params} are not the inputs {given}")
    return tuple(found) + graph_faults(case.graph)


def graph_faults(graph: Graph) -> tuple[str, ...]:
    found, known = [], set[str]()
    for name in graph.params:
        if name in known:
            found.append(f"two values are named {name}")
        known.add(name)
    for op in graph.ops:
        found += [f"{op.name} reads {name}, which does not exist yet" for name in op_refs(op) if name not in known]
        found += [fault for body in bodies(op) for fault in graph_faults(body)]
        if op.name in known:
            found.append(f"two values are named {op.name}")
        known.add(op.name)
    found += [f"an output reads {name}, which does not exist" for name in refs(graph.outputs) if name not in known]
    return tuple(found)
