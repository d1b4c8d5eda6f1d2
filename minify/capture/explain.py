"""Why a watched script leaves nothing to minify, read from its journal, as the error that fits.

Owns the words and the exit code of each such ending. Imports no torch.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from minify.capture.child import Plan
from minify.errors import FailsInDynamo, NoFailure, Unstable, UsageError
from minify.oracle.nest import Nest

Event = dict[str, Any]
_ROOM_BYTES = 1 << 16


def explain(plan: Plan, events: Sequence[Event], ending: str, timeout: float) -> NoReturn:
    """Raise UsageError, NoFailure or Unstable. `ending` is how the child ended, "" for by itself."""
    _refuse_full_disk(Path(plan.folder), events)
    _refuse_metric(plan, events, ending, timeout)
    _refuse_before_graph(plan, events, timeout)
    _refuse_unkept_crash(plan, events, ending, timeout)
    _explain(plan, events, ending, timeout)


def _refuse_full_disk(folder: Path, events: Sequence[Event]) -> None:
    """Where nothing could be written down, nothing found means nothing."""
    told = " ".join(str(event.get("why", event.get("text", ""))) for event in events)
    try:
        if os.strerror(errno.ENOSPC) in told:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(_ROOM_BYTES))
    except OSError as error:
        raise UsageError(
            f"cannot write to {folder}: {error.strerror}", "make room and run `minify resume` on it"
        ) from error


def _refuse_metric(plan: Plan, events: Sequence[Event], ending: str, timeout: float) -> None:
    """A metric of the user's own that gives no numbers."""
    refused = next((event for event in events if event["event"] == "refused"), None)
    if refused is not None:
        raise UsageError(refused["message"], refused["next_step"])
    if ending and events and events[-1]["event"] == "measuring":
        how = f"is not done after {timeout:g} s" if ending == "hang" else f"ends with {ending}"
        raise UsageError(f"--metric {plan.metric} {how}", "it is called for each run that is out of tolerance")


def _refuse_before_graph(plan: Plan, events: Sequence[Event], timeout: float) -> None:
    """An error while Dynamo was capturing is the program's own where it shows without Dynamo too, else Dynamo's."""
    names = {event["event"] for event in events}
    if not {"raised", "compiles"} <= names or names & {"region", "skipped", "eager_raised", "unusable"}:
        return
    what = next(event for event in events if event["event"] == "raised")
    told = f"{Path(plan.script).name}: {what['type']}: {short(what['text'])} ({what['where']})"
    if _fails_without_dynamo(plan, timeout):
        raise NoFailure(f"already fails in eager: {told}", "this is not a compiler bug")
    raise FailsInDynamo(f"fails inside Dynamo, before there is a graph: {told}", "such failures cannot be reduced yet")


def _fails_without_dynamo(plan: Plan, timeout: float) -> bool:
    """Whether the script fails with torch.compile switched off; one that is still running after `timeout` does not."""
    command = [sys.executable, plan.script, *plan.args]
    environment = {**os.environ, "TORCHDYNAMO_DISABLE": "1"}
    with Nest() as nest, (Path(plan.folder) / "script-eager.log").open("wb") as log:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
        )
        nest.adopt(child.pid)
        try:
            return child.wait(timeout) != 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _refuse_unkept_crash(plan: Plan, events: Sequence[Event], ending: str, timeout: float) -> None:
    """A region that fails, but of which there is no case, is a failure all the same."""
    if plan.kind != "crash":
        return
    crashed = next((event for event in events if event["event"] == "crashed"), None)
    last = events[-1] if events else {"event": ""}
    if crashed is not None:
        region, how = crashed["region"], f"{crashed['signature']['name']}: {short(crashed['signature']['message'])}"
    elif ending and ending != "enough" and last["event"] in ("compiling", "running"):
        region = last["region"]
        how = f"still {last['event']} after {timeout:g} s" if ending == "hang" else f"{ending} while {last['event']}"
    else:
        return
    reasons = [event["why"] for event in events if event["event"] == "skipped" and event["region"] == region]
    why = f"cannot be written down ({short(reasons[0])})" if reasons else "was not written down"
    name = Path(plan.script).name
    raise Unstable(f"region {region} of {name} fails ({how}) but {why}", "it cannot be replayed outside the script")


def _explain(plan: Plan, events: Sequence[Event], ending: str, timeout: float) -> NoReturn:
    by_name: dict[str, list[Event]] = {}
    for event in events:
        by_name.setdefault(event["event"], []).append(event)
    name, log = Path(plan.script).name, Path(plan.folder) / "script.log"
    regions = len({event["region"] for event in events if event["event"] in ("region", "skipped")})
    if "eager_raised" in by_name:
        what = by_name["eager_raised"][0]
        raise NoFailure(
            f"{name} already fails in eager: {what['type']}: {short(what['text'])}", "this is not a compiler bug"
        )
    if "unusable" in by_name:
        what = by_name["unusable"][0]
        raise UsageError(
            f"{what['option']} cannot be used: {what['type']}: {short(what['text'])}", "give another value"
        )
    if ending == "hang" and plan.kind == "accuracy":
        region, doing = events[-1]["region"], events[-1]["event"]
        raise NoFailure(
            f"region {region} of {name} is still {doing} after {timeout:g} s, so its result cannot be compared",
            "try `minify crash`, which takes a hang for a failure, or a longer --timeout",
        )
    if "nothing" in by_name:
        raise NoFailure(
            f"{name} compiles nothing, and defines no `model` (callable) and `inputs` (tuple or dict)",
            "call torch.compile in it or define both",
        )
    raised = by_name.get("raised", ())
    if raised and not regions:
        what = raised[0]
        raise UsageError(
            f"{name} raises before it compiles anything: {what['type']}: {short(what['text'])} ({what['where']})",
            f"make it run by itself first; its output is in {log}",
        )
    if plan.only is not None and plan.only >= regions:
        raise UsageError(
            f"--region {plan.only} does not exist", f"{name} compiled {regions} region(s), numbered from 0"
        )
    skipped = [*by_name.get("skipped", ()), *by_name.get("unchecked", ())]
    if plan.kind == "accuracy" and skipped and not by_name.keys() & {"checked", "drift"}:
        raise Unstable(
            f"no run of the {regions} region(s) that {name} compiles could be checked: {short(skipped[0]['why'])}",
            "whether they diverge is not known",
        )
    steps = (_other_kind(plan, events, ending), f"the script's output is in {log}")
    raise NoFailure(_no_failure(plan, by_name, regions, ending), "; ".join(filter(None, steps)))


def _other_kind(plan: Plan, events: Sequence[Event], ending: str) -> str:
    """The command that looks for what this one does not, where that may be what ails the program; else ""."""
    if plan.kind == "crash":
        return "whether its results are right, `minify accuracy` tells"
    last = events[-1]["event"] if events else ""
    died = ending in signal.Signals.__members__ and last in ("compiling", "running")
    raised = any(event.get("raised") for event in events if event["event"] == "left")
    return "try `minify crash`" if died or raised else ""


def short(text: str) -> str:
    return " ".join(text.split())[:200]


def _loudest(measured: Sequence[Event]) -> Sequence[Event]:
    """The one that moves the user's metric most, if there is any."""
    return sorted(measured, key=lambda event: float(event["by"]))[-1:]


def _no_failure(plan: Plan, by_name: dict[str, list[Event]], regions: int, ending: str) -> str:
    name = Path(plan.script).name
    skipped = [*by_name.get("skipped", ()), *by_name.get("unchecked", ())]
    note = f"; {len(skipped)} region(s) or run(s) could not be checked ({short(skipped[0]['why'])})" if skipped else ""
    ended = f"; the script ended with {ending}" if ending and ending != "enough" else ""
    if ending == "hang":
        ended = "; the script was silent for too long after its last region and was stopped"
    raised = by_name.get("raised", ())
    if raised:
        ended += f"; it raised {raised[0]['type']}: {short(raised[0]['text'])}"
    if plan.kind == "crash":
        return f"no crash in the {regions} region(s) that {name} compiles{note}{ended}"
    drift = by_name.get("drift", ())
    if drift:
        note = "".join(f"; {event['text']}" for event in _loudest(by_name.get("metric", ()))) + note
        worst = max(drift, key=lambda row: float(row["excess"]))
        return (
            f"drift, no divergence, in the {regions} region(s) that {name} compiles: max abs {worst['max_abs']:.3g}, "
            f"max rel {worst['max_rel']:.3g}, eager's own error {worst['eager_abs']:.3g}{note}{ended}"
        )
    calls = len(by_name.get("checked", ()))
    return f"no divergence in {calls} checked run(s) of the {regions} region(s) that {name} compiles{note}{ended}"
