"""The oracle on this machine: questions go to warm workers, answers are kept on disk by content.

Owns the verdict cache, the retries, the repeats for failures that show only sometimes, and what the death of a worker
means. Does not know what is being searched for.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import pickle
import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as StillRunning
from pathlib import Path

from minify import case as cases
from minify import functions
from minify.ablation import Ablation
from minify.case import Case, Graph, Program
from minify.environment import search_path
from minify.errors import Stopped, WorkerBug
from minify.kernels.finding import Finding
from minify.oracle.pool import Reply, WorkerPool
from minify.oracle.replies import KILLED_FROM_OUTSIDE, Unjudged, observed, refuse_full_disk
from minify.oracle.surroundings import surroundings
from minify.sizes import Sizes
from minify.tolerance import NOISE
from minify.verdict import GraphSeen, Observation, Outcome, Question, Signature, Verdict, classify

RETRIES = 2
SURE = 0.02  # a candidate of a failure that shows sometimes is given up when this is the chance of having missed it
LEAST_TIMEOUT = 60.0
SHAPES_TIMEOUT = 60.0  # mostly a fraction of a second; a wrong shape rule may hang, and then equal sizes have to do
TIMES_SLOWEST = 10  # how much longer than all seen to finish a question may take
ENOUGH_SEEN = 3
COLD = 2  # a hang kills its worker, so that the next question may meet one that has yet to warm up
PATIENT = 0.9  # of the limit that it ran into, counted by two clocks


@dataclasses.dataclass(frozen=True)
class Manner:
    """How questions are asked: the check and its tolerance, the store that recorded values lie in, and the user's metric."""

    check: str
    store: Path
    rtol: float | None = None
    atol: float | None = None
    reference: str = "auto"
    metric: str = ""
    metric_tol: float = 0.0


class LocalOracle:
    """Implements `Oracle` with a pool of worker processes. A context manager.

    `timeout` bounds one question in seconds; `calibrates` says that it may be set by measure. `rate` is how often the
    original failed when it was run: below 1, a candidate passes only after enough runs. `whole` is the digest of the saved case
    whose outputs the metric is of, "" for none. `bugs` are the errors of our own that left a candidate unjudged. `stopped()`
    gives a reason as soon as the run is to end."""

    def __init__(
        self,
        manner: Manner,
        folder: Path,
        workers: int,
        *,
        stopped: Callable[[], str] = lambda: "",
        tell: Callable[[Verdict], None] = lambda verdict: None,
    ) -> None:
        self.manner = manner
        self.queries = 0
        self.cache_hits = 0
        self.timeout = 600.0
        self.calibrates = True
        self.rate = 1.0
        self.whole = ""
        self.bugs: list[str] = []
        self._folder = folder / "verdicts"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._stopped = stopped
        self._tell = tell
        self.workers = workers
        self._memory: dict[str, Observation] = {}
        self._ahead: dict[str, Future[Reply]] = {}
        self._traced: dict[str, Observation] = {}
        self._finished: list[float] = []
        self._allowed = 0.0
        command = [sys.executable, "-m", "minify.worker"]
        self._surroundings = surroundings()
        self._pool = WorkerPool(command, workers, environment=_environment(), forks=True)

    def __enter__(self) -> LocalOracle:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def warm_up(self) -> None:
        """Start the workers while something else goes on, so that the first question need not wait for imports."""
        nothing = Case(Program(Graph((), (), ())), ())
        for _ in range(self.workers):
            self._pool.submit(self._question("warm", nothing), None)

    # --- asking ---------------------------------------------------------------------------------------------------

    def judge(self, case: Case, signature: Signature) -> Verdict:
        """The verdict on one case; one that our own code fails on is as good as lost. Raises Stopped, and WorkerBug where no
        worker can be started."""
        return next(iter(self.judge_in_order([case], signature)))

    def glimpse(self, case: Case, signature: Signature) -> Verdict:
        """The verdict of one run without shaken inputs, which would take several times the memory of a case. Raises Stopped."""
        verdict = self._verdict(self._ask(case), signature)
        self._tell(verdict)
        return verdict

    def judge_in_order(self, cases_: Iterable[Case], signature: Signature) -> Iterator[Verdict]:
        """Verdicts in the order of the cases, looking ahead as far as there are workers."""
        return self._judged(((case, None) for case in cases_), signature)

    def judge_ablated(self, case: Case, ablations: Iterable[Ablation], signature: Signature) -> Iterator[Verdict]:
        """Verdicts on one case, each with another part of the compiler left out; in order, and looking ahead."""
        return self._judged(((case, ablation) for ablation in ablations), signature)

    def _judged(self, source: Iterator[tuple[Case, Ablation | None]], signature: Signature) -> Iterator[Verdict]:
        waiting: deque[_Asked] = deque()
        try:
            while True:
                while len(waiting) < self.workers and (pair := next(source, None)) is not None:
                    waiting.append(self._ask(pair[0], noise=self._noise(signature), ablation=pair[1]))
                if not waiting:
                    return
                yield self._conclude(waiting.popleft(), signature)
        finally:
            for asked in waiting:
                asked.drop()

    def observe(self, case: Case, *, noise: int = 0, run: int = 0) -> Observation:
        """What one run shows. `run` tells apart repeated runs of the same case; `noise` adds runs on shaken inputs."""
        return self._settle(self._ask(case, noise=noise, run=run))

    def observe_runs(self, case: Case, runs: Sequence[int], *, noise: int = 0) -> list[Observation]:
        """What each of several runs of one case shows; they go on side by side. The first takes the runs on shaken inputs."""
        asked = [self._ask(case, noise=noise if run == runs[0] else 0, run=run) for run in runs]
        return [self._settle(one) for one in asked]

    def patched(self, part: Case, whole: Case) -> Observation:
        """What `whole` shows in eager with the compiled results of `part` in place of its own. A query: `part` is compiled."""
        return self._settle(self._ask(part, noise=NOISE, inside=whole))

    def ask_ahead(self, case: Case) -> None:
        """Have a worker begin with what a `glimpse` of `case` may ask. A query, be its answer wanted in the end or not."""
        asked = self._ask(case)
        if asked.future is not None:
            self._ahead[asked.key] = asked.future
            self.queries += 1

    def graphs(self, case: Case) -> tuple[GraphSeen, ...]:
        """What there is to say of each ATen graph that Inductor compiles of `case`; nothing where a worker does not live to tell."""
        return self._settle(self._ask(case, action="graphs")).graphs

    def trace(self, case: Case) -> Observation:
        """What each value is like, from an eager run. Not a query: nothing is compiled."""
        digest = cases.digest(case)
        if digest not in self._traced:
            reply = self._wait(self._pool.submit(self._question("trace", case), self.timeout))
            if not isinstance(reply.value, Observation):
                return Observation(reply.phase)
            self._traced = {digest: reply.value}  # the last one only: the same case is soon asked for again, or never
        return self._traced[digest]

    def write_artifacts(self, case: Case, ablation: Ablation | None, folder: Path) -> None:
        """Compile `case` once more, what `ablation` says left out, with what the compiler makes of it on the way written to
        `folder`: as far as it comes, if it raises or dies. A query, whose answer is known. Raises Stopped."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        question = dataclasses.replace(self._question("judge", case, ablation=ablation), artifacts=str(folder))
        self._wait(self._pool.submit(question, self.timeout))
        self.queries += 1

    def sizes(self, case: Case) -> Sizes | None:
        """How the dims and numbers of a case hang together; None where that cannot be found out. Not a query: no kernel runs."""
        reply = self._wait(self._pool.submit(self._question("sizes", case), min(self.timeout, SHAPES_TIMEOUT)))
        return reply.value if isinstance(reply.value, Sizes) else None

    def wrong_kernel(self, case: Case) -> Finding | None:
        """The first kernel that writes something wrong, and who is to blame; None where no worker lived to tell. A query."""
        reply = self._wait(self._pool.submit(self._question("kernel", case), self.timeout))
        self.queries += 1
        return reply.value if isinstance(reply.value, Finding) else None

    def materialise(self, case: Case) -> Case:
        """`case` with every derived value written to the store. Not a query: nothing is compiled."""
        for _ in range(1 + RETRIES):
            reply = self._wait(self._pool.submit(self._question("materialise", case), self.timeout))
            if isinstance(reply.value, Case):
                return reply.value
            if reply.died not in KILLED_FROM_OUTSIDE and not getattr(reply.value, "worker_lost", ""):
                break
        refuse_full_disk(getattr(reply.value, "text", ""))
        raise WorkerBug(
            f"values of {cases.digest(case)} could not be recorded: {reply.died or reply.value} {reply.stderr_tail[-300:]}"
        )

    # --- one question ---------------------------------------------------------------------------------------------

    def _question(
        self, action: str, case: Case, noise: int = 0, inside: Case | None = None, ablation: Ablation | None = None
    ) -> Question:
        how = self.manner
        return Question(
            action, case, how.check, str(how.store), how.rtol, how.atol, how.reference, noise,
            how.metric, how.metric_tol, self.whole, inside, ablation,
        )  # fmt: skip

    def _ask(
        self,
        case: Case,
        *,
        noise: int = 0,
        run: int = 0,
        inside: Case | None = None,
        ablation: Ablation | None = None,
        action: str = "judge",
    ) -> _Asked:
        question = self._question("patch" if inside else action, case, noise, inside, ablation)
        how = self.manner
        of = cases.digest(case) + (f" in {cases.digest(inside)}" if inside else "")
        of += "" if ablation is None else f" {ablation}"
        of += "" if action == "judge" else f" {action}"
        text = (
            f"{of}:{how.check}:{how.rtol}:{how.atol}:{how.reference}:{noise}:{run}:{self._surroundings}"
            f":{how.metric}:{functions.content(how.metric)}:{how.metric_tol}:{self.whole}"
        )
        key = hashlib.sha256(text.encode()).hexdigest()[:32]
        known = self._known(key)
        ahead = self._ahead.pop(key, None)
        future = None if known else ahead or self._pool.submit(question, self.timeout)
        return _Asked(case, question, key, run, known, future, ahead is not None)

    def _known(self, key: str) -> Observation | None:
        """The answer on record. One that took too long says nothing once a question may take longer."""
        if key not in self._memory:
            try:
                found = pickle.loads((self._folder / key).read_bytes())
            except Exception:  # noqa: BLE001 - unpickling may raise anything; without the file the question is asked again
                return None
            if not isinstance(found, Observation):
                return None
            self._memory[key] = found
        seen = self._memory[key]
        return None if seen.timed_out and seen.seconds < PATIENT * self.timeout else seen

    def _conclude(self, asked: _Asked, signature: Signature) -> Verdict:
        """The verdict, after as many runs as it takes to trust a pass."""
        verdict = self._verdict(asked, signature)
        for run in range(1, self._patience()):
            if verdict.outcome is not Outcome.PASSES:
                break
            again = self._ask(asked.case, noise=self._noise(signature), run=run, ablation=asked.question.ablation)
            verdict = self._verdict(again, signature)
        self._tell(verdict)
        if signature.family == "hang":
            self._learn(verdict)
        return verdict

    def _learn(self, verdict: Verdict) -> None:
        """Every hang that is found costs the whole timeout, and the program itself, hanging, could not say how long is long.
        Candidates that come back can."""
        if self.calibrates and verdict.outcome is Outcome.PASSES:
            self._finished.append(verdict.observation.seconds)
            self._allowed = self._allowed or self.timeout
            if len(self._finished) >= ENOUGH_SEEN:
                self.timeout = min(self._allowed, COLD * calibrated(self._finished))

    def _verdict(self, asked: _Asked, signature: Signature) -> Verdict:
        try:
            observation = self._settle(asked)
        except Unjudged as bug:
            self.bugs.append(bug.message)
            observation = Observation("load", worker_lost=bug.message)
        return dataclasses.replace(classify(observation, signature), cached=asked.known is not None)

    def _noise(self, signature: Signature) -> int:
        """A value may be wrong because rounding decides it, be it that eager is lucky, and even a NaN may turn into a float that
        is hardly off. A stride is no matter of rounding."""
        return NOISE if self.manner.check == "accuracy" and signature.family == "value" else 0

    def _patience(self) -> int:
        """Runs without a failure after which a candidate counts as passing: 1 for a failure that always shows."""
        return 1 if self.rate >= 1 else math.ceil(math.log(SURE) / math.log(1 - self.rate))

    def _settle(self, asked: _Asked) -> Observation:
        asked.known = self._known(asked.key)
        if asked.known is not None:
            asked.drop()
            self.cache_hits += 1
            return asked.known
        observation = self._answer(asked)
        if observation.invalid and observation.retire_worker:  # an earlier candidate may have spoilt the GPU's context
            asked.future = None
            observation = self._answer(asked)
        if not observation.worker_lost:
            self._keep(asked.key, observation)
        self.queries += not asked.ahead
        return observation

    def _answer(self, asked: _Asked) -> Observation:
        """What a worker that lives to tell saw; where none does, what became of the last."""
        observation = Observation("", worker_lost="never asked")
        for _ in range(1 + RETRIES):
            future = asked.future or self._pool.submit(asked.question, self.timeout)
            observation = observed(self._wait(future), self.manner.metric)
            if not observation.worker_lost:
                break
            asked.future = None
        return observation

    def _keep(self, key: str, observation: Observation) -> None:
        self._memory[key] = observation
        cases.write_whole(self._folder / key, pickle.dumps(observation, protocol=4))

    def _wait(self, future: Future[Reply]) -> Reply:
        while True:
            if reason := self._stopped():
                future.cancel()
                raise Stopped(reason)
            try:
                return future.result(timeout=0.1)
            except StillRunning:
                continue


def calibrated(seconds: Iterable[float]) -> float:
    """The timeout for questions of which such ones took `seconds`."""
    return max(LEAST_TIMEOUT, TIMES_SLOWEST * max(seconds))


@dataclasses.dataclass
class _Asked:
    """A question under way, or one whose answer is `known`, which may be so only by the time that it is wanted. One that was asked
    `ahead` has been counted."""

    case: Case
    question: Question
    key: str
    run: int
    known: Observation | None
    future: Future[Reply] | None
    ahead: bool = False

    def drop(self) -> None:
        if self.future is not None:
            self.future.cancel()


def _environment() -> dict[str, str]:
    return {
        "PYTHONPATH": search_path(),
        "PYTHONHASHSEED": "0",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_LOCAL_PGO": "0",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # to look for a GPU through CUDA itself would keep forks from using one
        "TOKENIZERS_PARALLELISM": "false",
    }
