"""What a worker holds while it looks at every value of a long program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

MIB = 1 << 20

# One op after another on 0.5 MiB each: 5 GiB of intermediates, were they all kept.
RECORD = """
import dataclasses, json, resource, sys
from pathlib import Path

import torch

from minify import store
from minify.case import Case, Input, Op, Program, Recipe, Ref, Settings, numel
from minify.graph import Graph, TensorMeta
from minify.reduce.screen import chunks
from minify.reduce.session import annotated
from minify.verdict import Question
from minify.worker import judge

torch.set_num_threads(1)
OPS, SHAPE, ROOT = 10_000, (256, 512), Path(sys.argv[1])
meta = TensorMeta(SHAPE, (SHAPE[1], 1), 0, "float32", "cpu", False, 0, numel(SHAPE))
inputs = tuple(
    Input(name, dataclasses.replace(meta, storage=number), Recipe("randn")) for number, name in enumerate(("a", "b"))
)
names = ["a", "b", *(f"v{i}" for i in range(OPS))]
ops = tuple(Op(name, "torch.sub", (Ref(names[i + 1]), Ref(names[i]))) for i, name in enumerate(names[2:]))
graph = Graph(("a", "b"), ops, (Ref(names[-1]),))
case = Case(Program(graph), inputs, Settings())

def ask(case):
    seen = judge(Question("trace", case, "accuracy", str(ROOT)), lambda phase: None)
    assert not seen.invalid, seen.invalid
    return seen

case = annotated(case, ask(case))
base = store.save_base(ROOT, case)
screened = parts = 0
for part in chunks(case, [op.name for op in ops[:600]], base):
    ask(part)
    screened, parts = screened + len(part.graph.ops), parts + 1
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"peak": peak, "screened": screened, "parts": parts}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in other units elsewhere")
def test_recording_ten_thousand_values_holds_few_of_them_at_a_time(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", RECORD, str(tmp_path)], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["screened"] == 600
    assert told["peak"] <= 2 * (1024 + 1) * MIB, f"{told['peak'] / MIB:.0f} MiB in {told['parts']} screens"
