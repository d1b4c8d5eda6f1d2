"""The parent's side of capture: start the child on the user's script, follow its journal, and choose the case.

Owns the child process: its group, its timeout and its log. Imports no torch. `explain` says why there is no case.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from minify.capture.child import Plan
from minify.capture.explain import Event, explain, short
from minify.environment import search_path
from minify.errors import Stopped
from minify.oracle.nest import Nest
from minify.verdict import Divergence, Signature, accuracy_signature


@dataclasses.dataclass(frozen=True)
class Suspect:
    """A region that failed under watch, or that only a worker can judge (`certain` False), as one that was kept although it did
    not fail. `case` is its saved file, `signature` how the script failed.

    `part` is the ATen graph of the region that the case holds: `forward`, `inference` or `backward`; "" for the region. `sure` is
    how one of its outputs was wrong, by more than inputs that are a little off explain. `call` is the number of the region's run
    that the case has the inputs of."""

    region: int
    case: Path
    certain: bool
    signature: Signature | None = None
    part: str = ""
    sure: Signature | None = None
    call: int = 1

    def __str__(self) -> str:
        return f"region {self.region} {self.part}".rstrip()


@dataclasses.dataclass(frozen=True)
class Watched:
    """What a run of the script showed: suspects in the order they appeared, and the whole journal. `troubled` says that
    something raised, died or hung in it, be it what the watch was for or not."""

    suspects: tuple[Suspect, ...]
    events: tuple[Event, ...]
    troubled: bool = False


def watch_script(
    plan: Plan,
    timeout: float,
    stopped: Callable[[], str],
    tell: Callable[[str], None],
    compiles: Callable[[Path], None] = lambda case: None,
) -> Watched:
    """Run the script under watch. `timeout` bounds, in seconds, each compile and each compiled run, not the script; where
    a compiled backward may be under way, unseen, a silence of twice that bounds the script in a watch for crashes.
    `compiles` is called with the saved case of a region that is about to be compiled, if the plan wants those.

    Raises UsageError and NoFailure as the journal says, Stopped where `stopped()` gave a reason, and OSError where the
    disk is full; returns the suspects otherwise."""
    ending, events = _one_run(plan, timeout, stopped, tell, compiles)
    suspects = _suspects(plan, events, ending)
    if call := _fatal_call(plan, events):
        tell(f"it fails in run {call} of its region; once more, to keep the inputs of that run")
        again, later = _one_run(dataclasses.replace(plan, record_call=call), timeout, stopped, tell)
        suspects = _suspects(plan, later, again) or suspects
    if any(event["event"] == "refused" for event in events):
        suspects = ()
    if suspects and _ended_outside(plan, events, ending):
        what = "was silent for too long and was stopped" if ending == "hang" else f"ended with {ending}"
        tell(f"the script {what} outside its compiled regions; the backward of one may be why")
    if not suspects:
        explain(plan, events, ending, timeout)
    return Watched(suspects, events, _troubled(events, ending))


def _one_run(
    plan: Plan,
    timeout: float,
    stopped: Callable[[], str],
    tell: Callable[[str], None],
    compiles: Callable[[Path], None] = lambda case: None,
) -> tuple[str, tuple[Event, ...]]:
    """How the child ended, and its journal. Raises Stopped."""
    told = {""}

    def follow(event: Event) -> None:
        if (line := _line(event)) not in told:
            tell(line)
            told.add(line)
        if event.get("ahead"):
            compiles(Path(event["ahead"]))

    ending = _run_child(plan, timeout, stopped, follow)
    if ending == "stopped":
        raise Stopped(stopped())
    return ending, read_events(Path(plan.folder))


def _fatal_call(plan: Plan, events: Sequence[Event]) -> int:
    """Which run of its region crashed or did not come back, 0 for the first one, whose inputs are on disk already.

    Keeping the inputs of every run would cost a copy of them each time; so a later run is watched for anew."""
    ends = [event for event in events if event["event"] in ("running", "crashed", "left")]
    if plan.kind != "crash" or plan.record_call or not ends or ends[-1]["event"] == "left":
        return 0
    call = int(ends[-1].get("call", 0))
    return call if call > 1 else 0


class Journal:
    """The child's journal as it grows. A last line cut short, by its death or by our coming too soon, is left for later."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "events.jsonl"
        self._offset = 0

    def fresh(self) -> list[Event]:
        """The events since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as stream:
            stream.seek(self._offset)
            lines, _, _ = stream.read().rpartition(b"\n")
        self._offset += len(lines) + bool(lines)
        events = []
        for line in lines.splitlines():
            with contextlib.suppress(json.JSONDecodeError):  # a full disk leaves half a line in the middle
                events.append(json.loads(line))
        return events


def read_events(folder: Path) -> tuple[Event, ...]:
    """The whole journal."""
    return tuple(Journal(folder).fresh())


def _run_child(plan: Plan, timeout: float, stopped: Callable[[], str], follow: Callable[[Event], None]) -> str:
    """ "" when the child ended by itself, else `SIGSEGV`, `hang`, `exit 3`, `stopped` or `enough`."""
    folder = Path(plan.folder)
    plan_file = folder / "plan.json"
    plan_file.write_text(json.dumps(dataclasses.asdict(plan)))
    (folder / "events.jsonl").unlink(missing_ok=True)
    command = [sys.executable, "-m", "minify.capture.child", str(plan_file)]
    environment = {**os.environ, "PYTHONPATH": search_path()}
    with Nest() as nest, (folder / "script.log").open("wb") as log:
        child = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env=environment)
        nest.adopt(child.pid)
        try:
            return _follow(child, plan, timeout, stopped, follow)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _follow(
    child: subprocess.Popen[bytes],
    plan: Plan,
    timeout: float,
    stopped: Callable[[], str],
    follow: Callable[[Event], None],
) -> str:
    journal, last = Journal(Path(plan.folder)), None
    backward = False
    while child.poll() is None:
        time.sleep(0.05)
        if stopped():
            return "stopped"
        for last in journal.fresh():
            backward = backward or bool(last.get("backward"))
            follow(last)
        if last and (last["event"] == "refused" or (last["event"] in ("diverged", "crashed") and not plan.every)):
            return "enough"
        if last and time.time() - last["time"] > _patience(plan, last, backward, timeout):
            return "hang"
    code = child.returncode
    if code < 0:
        return signal.Signals(-code).name
    return f"exit {code}" if code else ""


def _patience(plan: Plan, last: Event, backward: bool, timeout: float) -> float:
    """Seconds of silence after the event `last` that count as a hang. Twice as many where that is only a guess: AOTAutograd
    compiles and runs the backward of a region when the script is long out of it, and scripts do long work of their own."""
    if last["event"] in ("compiling", "running", "measuring"):
        return timeout
    unseen = plan.kind == "crash" and backward and last["event"] == "left"
    return 2 * timeout if unseen else math.inf


_TOLD = {
    "region": "captured, {ops} ops",
    "compiling": "compiling",
    "running": "running",
    "diverged": "its compiled result diverges",
    "crashed": "its compile or run raises",
    "metric": "{text}",
    "deferred": "{why}: to be judged in a fresh process",
    "skipped": "cannot be written down: {why}",
    "unchecked": "cannot be checked here: {why}",
}


def _line(event: Event) -> str:
    """What the user is told of an event, "" for nothing. That the script raises in the end is the usual case."""
    if event["event"] not in _TOLD:
        return ""
    region = f"region {event['region']} {event.get('part', '')}".rstrip()
    return f"{region}: {short(_TOLD[event['event']].format_map(event))}"


def _suspects(plan: Plan, events: Sequence[Event], ending: str) -> tuple[Suspect, ...]:
    found: dict[tuple[int, str], Suspect] = {}
    saved = {event["region"]: event["case"] for event in events if event.get("case") and not event.get("part")}
    for event in events:
        region = event.get("region", -1)
        if event["event"] == "diverged":
            sure = accuracy_signature(tuple(Divergence(**row) for row in event["sure"]))
            found[region, ""] = Suspect(region, Path(event["case"]), True, sure=sure, call=event.get("call", 1))
        elif event["event"] == "deferred":
            part = event.get("part", "")
            found.setdefault((region, part), Suspect(region, Path(event["case"]), certain=False, part=part))
        elif event["event"] == "checked" and event.get("case"):
            found.setdefault((region, ""), Suspect(region, Path(event["case"]), certain=False))
        elif event["event"] == "crashed" and region in saved:
            how = Signature(**event["signature"])
            found[region, ""] = Suspect(region, Path(saved[region]), True, how, call=event.get("call", 1))
    if plan.kind == "crash" and ending and ending not in ("stopped", "enough") and events:
        last = events[-1]
        if last["event"] in ("compiling", "running") and last["region"] in saved:
            family = "hang" if ending == "hang" else "signal"
            found[last["region"], ""] = Suspect(
                last["region"], Path(saved[last["region"]]), True, Signature("crash", family, ending)
            )
    if _ended_outside(plan, events, ending) and not any(suspect.certain for suspect in found.values()):
        grown = {event["region"] for event in events if event.get("backward")} & saved.keys()
        how = Signature("crash", "hang" if ending == "hang" else "signal", ending)
        found |= {(region, ""): Suspect(region, Path(saved[region]), certain=False, signature=how) for region in grown}
    if plan.kind == "crash" and not found and any(event["event"] == "raised" for event in events):
        # Raised outside every region: in a backward pass, or a GPU's error that came to light later. A worker can tell.
        found = {(region, ""): Suspect(region, Path(case), certain=False) for region, case in saved.items()}
    if plan.keep and not found and saved and not _troubled(events, ending):
        region = min(saved)
        found = {(region, ""): Suspect(region, Path(saved[region]), certain=False)}
    return tuple(sorted(found.values(), key=lambda suspect: (not suspect.certain, suspect.region)))


def _troubled(events: Sequence[Event], ending: str) -> bool:
    raised = any(event["event"] in ("raised", "crashed") or event.get("raised") for event in events)
    return raised or ending not in ("", "enough")


def _ended_outside(plan: Plan, events: Sequence[Event], ending: str) -> bool:
    """Whether a watch for crashes ended by a signal or a hang while no region was compiled or run."""
    violent = ending == "hang" or ending in signal.Signals.__members__
    return plan.kind == "crash" and violent and bool(events) and events[-1]["event"] not in ("compiling", "running")
