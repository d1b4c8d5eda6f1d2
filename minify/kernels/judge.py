"""Run a recorded kernel alone, otherwise than it was, and read off who is to blame for what it writes.

C++ is built by the same command with less of the compiler's doing; Triton is interpreted.
"""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from minify import torch_internals
from minify.environment import search_path
from minify.kernels import child
from minify.kernels.finding import (
    AS_BUILT,
    FAILED,
    INVALID_ACCESS,
    RIGHT,
    SCALAR,
    UNDEFINED,
    WRONG,
    Finding,
    Row,
    blame_cpp,
    blame_triton,
)
from minify.kernels.plain_triton import plain_triton
from minify.kernels.record import Kernel, to_json, unpacked
from minify.kernels.recorder import Recorder
from minify.kernels.tensors import agree, judged, memories, tensor_in, writable
from minify.tolerance import Tolerance
from minify.verdict import Divergence

BUILD_SECONDS = 120.0
RUN_SECONDS = 60.0
AT_A_TIME = 2
INTERPRETED, AS_LAUNCHED = "under Triton's interpreter", "on the GPU as it was launched"
_VECTOR_FLAGS = ("-mavx", "-mfma", "-mf16c", "-march=", "-mamx")
# How the sanitizers begin a report.
_REPORTS = (
    (re.compile(r"AddressSanitizer: (?!DEADLYSIGNAL|CHECK)[^\n]*"), INVALID_ACCESS),
    (re.compile(r"[^\n]*runtime error: [^\n]*"), UNDEFINED),
)
# The width that ATen's vectors have without vector instructions; the text of a kernel has the number of lanes written in it.
_WIDTH_WITHOUT = "CPU_CAPABILITY_AVX2"
# By this, the headers take vectors for granted and use their own plain C++ for them, where the machine is of another kind.
_PLAIN_VECTORS = "CPU_CAPABILITY_NEON"


@dataclasses.dataclass(frozen=True, slots=True)
class Build:
    """A way to build a C++ kernel: `change` makes its command of Inductor's, None where it cannot be had. A build that `sanitizes`
    reports what it sees instead of what the kernel computes."""

    how: str
    change: Callable[[list[str]], list[str] | None]
    sanitizes: bool = False


def _with_level(level: str) -> Callable[[list[str]], list[str]]:
    return lambda command: [word for word in command if not re.fullmatch(r"-O\w*", word)] + [level]


def _scalar(command: list[str]) -> list[str] | None:
    """The same text, with ATen's vectors in plain C++."""
    if not any(word.endswith("CPU_CAPABILITY_AVX512") for word in command):
        kept = [word for word in command if not word.startswith(_VECTOR_FLAGS)]
        return [word.replace(_WIDTH_WITHOUT, _PLAIN_VECTORS) for word in kept]
    return None


BUILDS = (
    Build(AS_BUILT, lambda command: command),
    Build("-O0", _with_level("-O0")),
    Build(SCALAR, _scalar),
    Build(
        "sanitizers",
        lambda command: [*_with_level("-O1")(command), "-fsanitize=address,undefined", "-fno-sanitize=alignment"],
        sanitizes=True,
    ),
)
# Asked only where those above disagree: what of the compiler's doing it is.
CLOSER = (
    Build("-O1", _with_level("-O1")),
    Build("-O2", _with_level("-O2")),
    Build("no FP contraction", lambda command: [*command, "-fno-fast-math", "-ffp-contract=off"]),
)


def judge(kernel: Kernel, tolerance: Tolerance) -> Finding:
    """Who is to blame for what `kernel` leaves wrong."""
    if not kernel.wrong:
        return Finding(kernel, notes=("it writes nothing wrong",))
    ways = {"cpp": _judge_cpp, "triton": _judge_triton}
    with tempfile.TemporaryDirectory(prefix="minify-kernel-") as folder:
        record = Path(folder, "record.json")
        record.write_text(to_json(kernel))
        return ways[kernel.language](kernel, Path(folder), tolerance)


def first_wrong(recorder: Recorder, tolerance: Tolerance) -> Finding:
    """Who is to blame for the kernel that `recorder` cut out; without one, what it saw instead."""
    unknown = f"what is due of {', '.join(dict.fromkeys(recorder.unknown))} is not known" if recorder.unknown else ""
    if recorder.kernels:
        found = judge(recorder.kernels[0], tolerance)
        return dataclasses.replace(found, notes=(*found.notes, *filter(None, [unknown])))
    if recorder.spoilt:
        told = f"{', '.join(recorder.spoilt)} is wrong before any generated kernel reads it"
    elif recorder.too_large:
        told = f"kernel {recorder.too_large[0]} has too much in hand to be run alone"
    else:
        right = f"{len(recorder.right)} were seen" if recorder.right else "none was seen"
        told = f"no generated kernel does otherwise than its graph says ({right})"
    return Finding(notes=(told, *filter(None, [unknown])))


# --- C++ ------------------------------------------------------------------------------------------------------------------


def _judge_cpp(kernel: Kernel, folder: Path, tolerance: Tolerance) -> Finding:
    source = folder / "kernel.cpp"
    source.write_text(kernel.source)
    try:
        command = torch_internals.cpp_command(source, folder / "kernel.so", vectors="at::vec" in kernel.source)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        return Finding(kernel, notes=(f"how Inductor builds C++ is not known here: {error}",))

    def built(builds: Sequence[Build]) -> list[Row]:
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            return list(pool.map(lambda build: _run_build(kernel, build, command, folder, tolerance), builds))

    rows = built(BUILDS)
    plain = [row for row, build in zip(rows, BUILDS, strict=True) if not build.sanitizes]
    if len({row.answer for row in plain} & {RIGHT, WRONG}) > 1:
        more = built(CLOSER)
        rows, plain = rows + more, plain + more
    sanitized = [row for row, build in zip(rows, BUILDS, strict=False) if build.sanitizes]
    blame, notes = blame_cpp(plain, sanitized)
    return Finding(kernel, blame, tuple(rows), notes)


def _run_build(kernel: Kernel, build: Build, command: list[str], folder: Path, tolerance: Tolerance) -> Row:
    changed = build.change(command[:-2])
    if changed is None:
        return Row(build.how, FAILED, why="not to be had of the text with vectors of this width")
    place = Path(tempfile.mkdtemp(dir=folder))
    library, result = place / "kernel.so", place / "result"
    try:
        made = child.run([*changed, "-w", "-o", str(library)], BUILD_SECONDS)
        if made.code != 0:
            return Row(build.how, FAILED, why=f"does not build: {_last_line(made)}")
        environment = _under_sanitizer(changed[0]) if build.sanitizes else {}
        ended = _alone("cpp", folder, library, result, environment)
    except OSError as error:
        return Row(build.how, FAILED, why=str(error))
    if build.sanitizes:
        for pattern, answer in _REPORTS:
            if report := pattern.search(ended.said):
                return Row(build.how, answer, why=report[0].strip().replace(f"{folder}/", ""))
    return _row(build.how, kernel, ended, result, tolerance)


def _under_sanitizer(compiler: str) -> dict[str, str]:
    """The sanitizer's library has to be there before Python is. Raises OSError where the compiler cannot be asked for it."""
    found = subprocess.run(
        [compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, timeout=RUN_SECONDS, check=False
    )
    return {
        "LD_PRELOAD": found.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",
        "UBSAN_OPTIONS": "print_stacktrace=0",
    }


# --- Triton -----------------------------------------------------------------------------------------------------------------


def _judge_triton(kernel: Kernel, folder: Path, tolerance: Tolerance) -> Finding:
    row, launched = interpreted(kernel, folder, tolerance), list[Row]()
    if row.answer == RIGHT and torch.cuda.is_available():
        launched = [_launched(how, other, folder, tolerance) for how, other in launches(kernel)]
    blame, notes = blame_triton(row, launched)
    return Finding(kernel, blame, (row, *launched), (*notes, *([row.why] if row.why else [])))


def launches(kernel: Kernel) -> list[tuple[str, Kernel]]:
    """The kernel as it was launched, and otherwise than that: what it computes is the same in each."""
    found = [(AS_LAUNCHED, kernel)]
    for option, value in (("num_warps", 1), ("num_warps", 8), ("num_stages", 1)):
        if kernel.options.get(option) not in (None, value):
            options = {**kernel.options, option: value}
            found.append((f"{option}={value}", dataclasses.replace(kernel, options=options)))
    for block, along in (("XBLOCK", 0), ("YBLOCK", 1), ("R0_BLOCK", None)):
        size = kernel.constants.get(block, 1)
        if size > 1 and (along is None or along < len(kernel.grid)):
            grid = tuple(count * 2 if place == along else count for place, count in enumerate(kernel.grid))
            constants = {**kernel.constants, block: size // 2}
            found.append((f"{block}={size // 2}", dataclasses.replace(kernel, grid=grid, constants=constants)))
    return found


def _launched(how: str, kernel: Kernel, folder: Path, tolerance: Tolerance) -> Row:
    """On the GPU of this machine, alone."""
    place = Path(tempfile.mkdtemp(dir=folder))
    (place / "record.json").write_text(to_json(kernel))
    source, result = place / "plain_kernel.py", place / "result"
    source.write_text(plain_triton(kernel.source, interpreted=False))
    try:
        ended = _alone("triton", place, source, result, {})
    except OSError as error:
        return Row(how, FAILED, why=str(error))
    return _row(how, kernel, ended, result, tolerance)


def interpreted(kernel: Kernel, folder: Path, tolerance: Tolerance) -> Row:
    """The kernel under the interpreter of the Triton that is installed; its record lies in `folder`."""
    try:
        text = plain_triton(kernel.source)
    except ValueError as error:
        return Row(INTERPRETED, FAILED, why=f"not to be read: {error}")
    source, result = folder / "plain_kernel.py", folder / "result"
    source.write_text(text)
    # Of a GPU that is there the interpreter would ask the driver.
    environment = {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    try:
        ended = _alone("triton", folder, source, result, environment)
    except OSError as error:
        return Row(INTERPRETED, FAILED, why=str(error))
    return _row(INTERPRETED, kernel, ended, result, tolerance)


# --- both -------------------------------------------------------------------------------------------------------------------


def _alone(language: str, folder: Path, code: Path, result: Path, environment: dict[str, str]) -> child.Ended:
    command = [
        sys.executable,
        "-m",
        "minify.kernels.alone",
        language,
        str(folder / "record.json"),
        str(code),
        str(result),
    ]
    return child.run(command, RUN_SECONDS, {**environment, "PYTHONPATH": search_path()})


def _last_line(ended: child.Ended) -> str:
    lines = [line.strip() for line in ended.said.splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"exit {ended.code}"


def _row(how: str, kernel: Kernel, ended: child.Ended, result: Path, tolerance: Tolerance) -> Row:
    """What the memory that a kernel left says."""
    if ended.code is None:
        return Row(how, FAILED, why=f"still running after {RUN_SECONDS:g} s")
    if ended.code != 0:
        return Row(how, FAILED, why=_last_line(ended) if ended.code > 0 else f"died of signal {-ended.code}")
    left = writable(unpacked(result.read_text()))
    recorded = memories(kernel, after=True)
    worst: Divergence | None = None
    within: Divergence | None = None
    agrees = True
    for argument in kernel.arguments:
        if argument.due is None:
            continue
        ours, theirs = (tensor_in(held[argument.memory], argument) for held in (left, recorded))
        found = judged(ours, argument, tolerance)
        worst = _worse(worst, found.wrong)
        within = _worse(within, found.within or found.drift)
        agrees = agrees and agree(ours, theirs, tolerance)
    return Row(how, WRONG if worst else RIGHT, worst or within, agrees=agrees)


def _worse(one: Divergence | None, other: Divergence | None) -> Divergence | None:
    return max((row for row in (one, other) if row), key=lambda row: row.excess, default=None)
