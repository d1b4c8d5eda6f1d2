"""Other failures than the one asked for, met on the way: each is the beginning of a run of its own.

A candidate may have failed otherwise, and the screen may have shown more than one op that is wrong by itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from minify import case as cases
from minify import store
from minify.attempt import Attempt
from minify.case import Case
from minify.errors import InvalidCandidate, Stopped
from minify.graph import short_name
from minify.passes.cut_ops import keep
from minify.reduce import Session
from minify.verdict import Signature, accuracy_signature

MOST_ASKED = 3


def found_beside(this: Attempt, session: Session) -> tuple[str, ...]:
    """Each in words, with the command that goes on with it."""
    slipped = [(str(signature), signature, case) for signature, case in session.slipped.items()]
    told = []
    found = (*_set_aside(session), *slipped, *_wrong_alone(this, session))
    for number, (words, signature, case) in enumerate(found, start=1):
        folder = this.folder.within(f"also-found-{number}")
        folder.save_request(dataclasses.replace(this.request, kind=signature.kind, every=False, sure=None, metric=""))
        cases.save(case, folder.case_file)
        told.append(f"{words}; `minify resume {folder.path}` reduces it")
    return tuple(told)


def _set_aside(session: Session) -> Iterator[tuple[str, Signature, Case]]:
    """What is wrong, and does not make the original wrong."""
    for aside in session.set_aside:
        if signature := accuracy_signature(aside.observation.divergences):
            calls = ", ".join(dict.fromkeys(short_name(op.target) for op in aside.case.graph.ops))
            yield f"{signature} in {calls}, which does not reach the original's results", signature, aside.case


def _wrong_alone(this: Attempt, session: Session) -> Iterator[tuple[str, Signature, Case]]:
    """Calls that the screen showed to be wrong, of another kind than those that are left, and that a query confirms. The screen
    feeds each call the true values of its operands, so what one gets wrong is none of another's doing."""
    known = {
        op.target for case in (session.best, *(aside.case for aside in session.set_aside)) for op in case.graph.ops
    }
    targets = {op.name: op.target for op in session.start.graph.ops}
    worst: dict[str, str] = {}
    for name in session.blamed:
        if targets[name] not in known:
            worst.setdefault(targets[name], name)
    for target, name in list(worst.items())[:MOST_ASKED]:
        signature = accuracy_signature(session.blamed[name])
        if signature is None:
            continue
        try:
            case = keep(session.start, frozenset([name]), store.save_base(this.folder.store, session.start), "all_used")
            if this.oracle.judge(case, signature).fails:
                yield f"{signature} in {short_name(target)}", signature, case
        except InvalidCandidate:
            continue
        except Stopped:
            return
