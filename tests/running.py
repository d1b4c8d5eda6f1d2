"""The command as a user runs it: a process to watch, to interrupt and to kill, and what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PATIENCE = 600.0

# A compiler that needs no C++: its relu lets a little through. `SECONDS` is how long it takes over each compile.
WRONG_RELU = '''
import time

import torch

SECONDS = {seconds}


def leaky(gm, example_inputs):
    """Stands for a code generator whose relu lets a little through."""
    time.sleep(SECONDS)
    for node in gm.graph.nodes:
        if node.target in (torch.relu, torch.nn.functional.relu):
            node.target, node.kwargs = torch.clamp, {{"min": -0.5}}
    gm.recompile()
    return gm.forward


def model(x, y):
    for _ in range(4):
        x = torch.tanh(x + y) * 1.5
    x = torch.relu(x)
    for _ in range(4):
        x = torch.sin(x - y) + 0.1
    return x.sum(dim=0)


torch.manual_seed(0)
inputs = (torch.randn(4, 6), torch.randn(4, 6))
torch.compile(model, backend=leaky)(*inputs)
'''


class Run:
    """One `minify ARGS` in a process of its own, with a temporary folder of its own, by which its processes are known."""

    def __init__(self, folder: Path, *args: object, stdin: str = "", environment: dict[str, str] | None = None) -> None:
        self.temporary = folder / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self._out, self._err = folder / "stdout", folder / "stderr"
        (folder / "stdin").write_text(stdin)
        with self._out.open("wb") as out, self._err.open("wb") as err, (folder / "stdin").open() as given:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "minify", *map(str, args)],
                stdin=given,
                stdout=out,
                stderr=err,
                env={**os.environ, **(environment or {}), "TMPDIR": str(self.temporary)},
            )

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def stdout(self) -> str:
        return self._out.read_text()

    @property
    def stderr(self) -> str:
        return self._err.read_text()

    @property
    def last_line(self) -> str:
        return self.stderr.splitlines()[-1]

    def until(self, condition: Callable[[], bool]) -> Run:
        """Wait for it while the process lives."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.poll() is None, f"ended with {self.process.returncode} too soon: {self.stderr}"
            assert time.monotonic() < deadline, self.stderr
            time.sleep(0.02)
        return self

    def until_it_says(self, text: str) -> Run:
        return self.until(lambda: text in self.stderr)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def code(self, within: float = PATIENCE) -> int:
        """The exit code. Nothing may be left of the run some seconds later, nor may it show a traceback."""
        code = self.process.wait(within)
        assert eventually(lambda: not self.processes() and not self.folders()), (self.processes(), self.folders())
        assert "Traceback" not in self.stderr
        return code

    def processes(self, saying: str = "") -> dict[int, str]:
        """Those that share the temporary folder and whose command line has `saying` in it; this one's left out."""
        return {pid: line for pid, line in _processes(self.temporary) if saying in line and pid != self.process.pid}

    def folders(self) -> list[Path]:
        return list(self.temporary.glob("minify-*"))


def _processes(temporary: Path) -> Iterator[tuple[int, str]]:
    mark = f"TMPDIR={temporary}\0".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes() and " Z " not in (folder / "stat").read_text():
                yield int(folder.name), (folder / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue


def eventually(condition: Callable[[], bool], within: float = 30) -> bool:
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def report(out: Path) -> dict[str, Any]:
    row: dict[str, Any] = json.loads((out / "report.json").read_text())
    return row
