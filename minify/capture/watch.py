"""Watch every region a program compiles: compare each run with eager and the reference, or keep its case on disk while
the compiler and the compiled code run. Works inside the user's process; disturbs nothing it can leave alone.

Events are appended to `events.jsonl` in the run folder as they happen, so that a process that dies has told all it knew.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from minify import case as cases
from minify import crashes, interpret, reference, torch_internals, trial
from minify import metric as metrics
from minify.capture import comparison, snapshot
from minify.capture import prelude as preludes
from minify.capture.aten import aten_snapshots, kept
from minify.capture.convert import Converted, Unrepresentable, convert
from minify.case import Const
from minify.errors import UsageError
from minify.tolerance import Tolerance

CHECKED_CALLS = 16
# Of a region that is put on disk before its compile: with fewer ops that is over too soon, and more bytes cost a healthy program
# more than the time that is saved for a wrong one.
AHEAD_FROM_OPS = 16
AHEAD_MOST_BYTES = 1 << 30


@dataclasses.dataclass
class Region:
    """One compiled graph of the user's program; `calls` counts its runs, `deferred` says that a worker is to judge it, `module`
    is the graph for as long as its ATen parts may be asked for."""

    number: int
    how: dict[str, Any]
    converted: Converted | None
    deferred: bool = False
    calls: int = 0
    module: torch.fx.GraphModule | None = None


@dataclasses.dataclass(frozen=True)
class Watch:
    """What to look for. `kind` is `accuracy` or `crash`; `only` a region number, None for all; `every` goes on after the
    first find; `record_call` saves the inputs of that call of a crashing region. `level`: `aten` watches the graphs AOTAutograd
    makes of a region, `dynamo` the region itself, `auto` the former where the latter cannot be done. `keep` is the number of a
    region whose case is wanted even if its result is right. `ahead` wants that of a region before it is compiled."""

    kind: str
    folder: Path
    tolerance: Tolerance = Tolerance()
    reference: str = "auto"
    only: int | None = None
    every: bool = False
    record_call: int = 0
    level: str = "dynamo"
    keep: int | None = None
    ahead: bool = False


class Watcher:
    """Stands between Dynamo and the user's backends. `script_globals` and `script_source` name what a setting refers to."""

    def __init__(self, watch: Watch, script_globals: dict[str, Any], script_source: str = "") -> None:
        self.watch = watch
        self.regions: list[Region] = []
        self._globals = script_globals
        self.source = script_source
        self.metric: metrics.Metric | None = None
        self._busy = False
        self._ahead = False
        self.found = 0

    # --- the two hooks --------------------------------------------------------------------------------------------

    def wrap(self, compiler: Callable[..., Any], how: dict[str, Any]) -> Callable[..., Any]:
        """Stand in for a graph compiler."""

        def watching(module: torch.fx.GraphModule, example_inputs: list[Any], **kwargs: Any) -> Callable[..., Any]:
            if self._busy:
                return compiler(module, example_inputs, **kwargs)  # type: ignore[no-any-return]
            region = self._enter_region(module, how)
            if self.watch.kind == "crash":
                self._save(region, example_inputs, "compiling")
            else:
                self.event("compiling", region=region.number, ahead=self._saved_ahead(region, example_inputs))
            compiled = self._guarded(region, lambda: compiler(module, example_inputs, **kwargs))
            if (region.converted is None and region.module is None) or self.watch.only not in (None, region.number):
                return compiled  # type: ignore[no-any-return]
            run = self._run_crash if self.watch.kind == "crash" else self._run_accuracy
            return lambda *args: run(region, compiled, args)

        return watching

    def event(self, name: str, **facts: Any) -> None:
        """Append one line to the journal, at once."""
        with (self.watch.folder / "events.jsonl").open("a") as stream:
            stream.write(json.dumps({"event": name, "time": time.time(), **facts}) + "\n")

    def refuse(self, error: UsageError) -> None:
        """Tell that something the user gave is of no use; whoever follows the journal ends this process then."""
        self.event("refused", message=error.message, next_step=error.next_step)

    def _enter_region(self, module: torch.fx.GraphModule, how: dict[str, Any]) -> Region:
        number = len(self.regions)
        try:
            converted = convert(module)
            self.event("region", region=number, ops=cases.op_count(converted.graph))
        except Unrepresentable as error:
            converted = None
            self.event("skipped", region=number, why=str(error))
        region = Region(number, how, converted)
        if self.watch.level != "dynamo":
            region.module = kept(module)
        self.regions.append(region)
        return region

    # --- crash ------------------------------------------------------------------------------------------------------

    def _guarded(self, region: Region, action: Callable[[], Any]) -> Any:
        try:
            result = action()
            if self.watch.kind == "crash":
                torch_internals.synchronise()
        except Exception as error:
            if self.watch.kind == "crash" and self.watch.only in (None, region.number):
                signature = crashes.crash_signature(error)
                facts = dataclasses.asdict(signature)
                self.event("crashed", region=region.number, call=region.calls, signature=facts)
                self.found += 1
            else:
                self.event("left", region=region.number, raised=type(error).__name__)
            raise
        self.event("left", region=region.number)
        return result

    def _run_crash(self, region: Region, compiled: Callable[..., Any], args: Sequence[Any]) -> Any:
        region.calls += 1
        if region.calls == max(self.watch.record_call, 1):
            self._save(region, args, "running")
        elif region.calls > 1:
            self.event("running", region=region.number, call=region.calls, case="")
        return self._guarded(region, lambda: compiled(*args))

    def _save(self, region: Region, args: Sequence[Any], event: str) -> None:
        """Put the region's case on disk before something that may not come back."""
        if self.watch.only not in (None, region.number):
            return
        if region.converted is None or self.watch.level == "aten":
            self._save_aten(region, args)
            self.event(event, region=region.number, call=region.calls, backward=_wants_backward(args))
            return
        try:
            taken = self._snapshot(region, args)
            path = self._write(region, taken)
            backward = bool(taken.settings.backward)
            self.event(event, region=region.number, call=region.calls, case=str(path), backward=backward)
        except Unrepresentable as error:
            self.event("skipped", region=region.number, why=str(error))
            self._save_aten(region, args)

    # --- ATen graphs ------------------------------------------------------------------------------------------------

    def _save_aten(self, region: Region, args: Sequence[Any]) -> None:
        """Write down what AOTAutograd makes of a region, once; a worker tells which part fails."""
        module, region.module = region.module, None
        if module is None:
            return
        busy, self._busy = self._busy, True
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                parts = aten_snapshots(module, args, self._settings(region, args))
            for part, taken in parts:
                path = str(self._write(region, taken, f"-{part}"))
                why = "is judged as ATen graphs"
                self.event("deferred", region=region.number, call=region.calls, part=part, case=path, why=why)
        except Exception as error:  # noqa: BLE001 - AOTAutograd cannot trace it, say: never the user's run
            why = f"no ATen graphs: {type(error).__name__}: {crashes.first_line(str(error))}"
            self.event("skipped", region=region.number, why=why)
        finally:
            self._busy = busy

    # --- accuracy ---------------------------------------------------------------------------------------------------

    def _saved_ahead(self, region: Region, args: Sequence[Any]) -> str:
        """The file of a region that is about to be compiled, the first of those worth the trouble; "" for any other."""
        if not self.watch.ahead or self._ahead or region.converted is None:
            return ""
        size = sum(arg.untyped_storage().nbytes() for arg in args if isinstance(arg, torch.Tensor))
        small = cases.op_count(region.converted.graph) < AHEAD_FROM_OPS
        unwanted = self.watch.only not in (None, region.number) or self.watch.level == "aten"
        if small or unwanted or size > AHEAD_MOST_BYTES or _wants_backward(args):
            return ""
        try:
            path = str(self._write(region, self._snapshot(region, args)))
        except Exception:  # noqa: BLE001 - a guess that does not come off: never the user's compile
            return ""
        self._ahead = True
        return path

    def _run_accuracy(self, region: Region, compiled: Callable[..., Any], args: Sequence[Any]) -> Any:
        region.calls += 1
        calls = region.calls
        due = calls <= CHECKED_CALLS or calls & (calls - 1) == 0
        if self._busy or not due or (self.found and not self.watch.every) or torch_internals.functional_guard():
            return compiled(*args)
        self._busy = True
        try:
            if region.converted is None or self.watch.level == "aten":
                self._save_aten(region, args)
                self.event("running", region=region.number)
                return self._guarded(region, lambda: compiled(*args))
            return self._checked_run(region, compiled, args)
        finally:
            self._busy = False

    def _checked_run(self, region: Region, compiled: Callable[..., Any], args: Sequence[Any]) -> Any:
        try:
            taken = self._snapshot(region, args)
        except Unrepresentable as error:
            self.event("skipped", region=region.number, why=str(error))
            region.converted = None
            self._save_aten(region, args)
            return compiled(*args)
        self.event("running", region=region.number)
        result = self._guarded(region, lambda: compiled(*args))
        state = interpret.random_state()
        try:
            with warnings.catch_warnings():  # the script may have made errors of them
                warnings.simplefilter("ignore")
                self._compare(region, compiled, taken, args, result)
        except UsageError as error:
            self.refuse(error)
        except Exception as error:  # noqa: BLE001 - eager cannot run it, say: worth a note, never the user's run
            self.event(
                "unchecked", region=region.number, why=f"{type(error).__name__}: {crashes.first_line(str(error))}"
            )
            self._save_aten(region, comparison.placed(taken, taken.values(), args))
        finally:
            interpret.restore_random(state)
        return result

    def _compare(
        self, region: Region, compiled: Callable[..., Any], taken: snapshot.Snapshot, args: Sequence[Any], result: Any
    ) -> None:
        assert region.converted is not None
        inputs = tuple(snapshot.given(param, args) for param in region.converted.params)
        outputs = tuple(result) if isinstance(result, list | tuple) else (result,)
        ours = trial.Run(inputs, outputs, {})
        case, taken, pair = self._beside_reference(region.converted, taken)
        if pair.steps.random:
            self._defer(region, taken, "draws random numbers")
            return
        eager = trial.Run(pair.low, pair.steps.eager, {})
        truth = reference.reference_run(pair)
        found = trial.compare_runs(case, ours, eager, truth, self.watch.tolerance)
        wrong, drift = found.wrong, found.drift
        sure, moved = [row for row in wrong if row.where.startswith("output:")], list[trial.Run | None]()
        if sure:
            trials, rounded = comparison.moved_runs(case, taken, sure)
            left = trial.compare_runs(case, ours, eager, truth, self.watch.tolerance, trials, rounded)
            sure, moved = [row for row in left.wrong if row.where.startswith("output:")], [*trials, *rounded]
        tell = functools.partial(self.event, region=region.number, call=region.calls)
        wrong, drift, passed = metrics.ruled(self.metric, case, wrong, drift, (ours, eager, truth, moved), tell)
        sure = [row for row in sure if not (passed and metrics.judged(row))]
        if not wrong and taken.settings.backward:
            found = comparison.compare_gradients(case, taken, compiled, args, pair, self.watch.tolerance)
            wrong = tuple(row for row in found.wrong if not (passed and metrics.judged(row)))
            drift += found.drift
        for row in drift:
            self.event("drift", region=region.number, call=region.calls, **dataclasses.asdict(row))
        if wrong:
            self.found += 1
            path = str(self._write(region, taken))
            rows = [dataclasses.asdict(row) for row in wrong]
            certain = [dataclasses.asdict(row) for row in sure]
            self.event("diverged", region=region.number, call=region.calls, case=path, rows=rows, sure=certain)
        else:
            wanted = region.number == self.watch.keep and region.calls == 1
            path = str(self._write(region, taken)) if wanted else ""
            self.event("checked", region=region.number, call=region.calls, case=path)
            if drift and trial.rounds_in_half(case, pair.steps.trace):
                self._defer(region, taken, "drifts in half precision")

    def _beside_reference(
        self, converted: Converted, taken: snapshot.Snapshot
    ) -> tuple[cases.Case, snapshot.Snapshot, reference.Pair]:
        """Eager and the reference on copies of the inputs. A backward that the program never asked for, and that eager
        cannot run (a custom op without one, say), is left out from here on."""
        wanted = self.watch.reference
        while True:
            case = cases.Case(cases.Program(converted.graph), comparison.placeholders(taken), taken.settings)
            try:
                return (
                    case,
                    taken,
                    reference.lockstep(
                        case, taken.values, wanted, wants_reference=wanted != "none", scope=taken.scope()
                    ),
                )
            except Exception:  # an error of the forward comes again, and is raised then
                if not taken.settings.backward:
                    raise
                forward = dataclasses.replace(taken.settings, backward="")
                taken = dataclasses.replace(taken, settings=forward)

    def _defer(self, region: Region, taken: snapshot.Snapshot, why: str) -> None:
        """Leave it to a worker: a region that draws random numbers can be compared only where eager and compiled draw the same,
        and one whose half precision may hide an error can be run in float32 there."""
        if not region.deferred:
            region.deferred = True
            case = str(self._write(region, taken))
            self.event("deferred", region=region.number, call=region.calls, case=case, why=why)

    # --- writing down -------------------------------------------------------------------------------------------------

    def _snapshot(self, region: Region, args: Sequence[Any]) -> snapshot.Snapshot:
        assert region.converted is not None
        return snapshot.take(region.converted, args, self._settings(region, args))

    def _settings(self, region: Region, args: Sequence[Any]) -> cases.Settings:
        return snapshot.current_settings(region.how, self._name_of, backward=_wants_backward(args))

    def _name_of(self, value: object) -> str | None:
        return preludes.expression_for(value, self._globals)

    @functools.cache  # noqa: B019 - one watcher lives as long as its process
    def _prelude(self, wanted: frozenset[str], namespaces: frozenset[str]) -> str:
        """What of the script a region needs; modules beside the script are found through its folder."""
        text = preludes.prelude(self.source, wanted, namespaces=namespaces)
        folder = Path(str(self._globals.get("__file__", "."))).resolve().parent
        if not any(_is_loaded_from(folder, name) for name in preludes.local_imports(text, folder)):
            return text
        return f"import sys\nsys.path.insert(0, {str(folder)!r})\n{text}"

    def _write(self, region: Region, taken: snapshot.Snapshot, part: str = "") -> Path:
        wanted = _constants(taken.settings)
        text = ""
        if self.source and (wanted or taken.converted.namespaces):
            text = self._prelude(frozenset(wanted), taken.converted.namespaces)
        case = taken.case(self.watch.folder / "store", text)
        path = self.watch.folder / "regions" / f"{region.number}{part}.case"
        cases.save(case, path)
        return path


def _is_loaded_from(folder: Path, name: str) -> bool:
    """Whether the module of this name is the file in `folder`, and not one that was imported before from elsewhere, which
    the script then got: a `signal.py` beside it is never read. One that is not imported yet may be."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    return module is None or (file is not None and folder in Path(file).resolve().parents)


def _constants(settings: cases.Settings) -> set[str]:
    """Expressions in settings that refer to the script's own names."""
    values = [settings.backend, *(value for _, value in settings.options), *(value for _, _, value in settings.config)]
    return {value.text for value in values if isinstance(value, Const) and not value.text.startswith("torch.")}


def _wants_backward(args: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args)
