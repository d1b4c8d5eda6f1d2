"""An installed minify as torch sees it: a backend known by name, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from minify.runs import RunFolder

SCRIPT = """
import torch
from minify import torch_internals

def wrong(module, example_inputs, **_):
    return lambda *args: [out + 1 for out in module(*args)]

known = torch_internals.backend
torch_internals.backend = lambda name: wrong if name == "inductor" else known(name)
print(torch.compile(torch.neg, backend="minify")(torch.ones(2)).tolist())
print(torch.compile(torch.exp, backend="eager")(torch.zeros(2)).tolist())
"""


def installed(site: Path, pyproject: str) -> None:
    """Write what pip would of the entry points that the project declares."""
    folder = site / "torch_minify-0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-minify\nVersion: 0\n")
    name, place = pyproject.split("[project.entry-points.torch_dynamo_backends]\n")[1].splitlines()[0].split(" = ")
    (folder / "entry_points.txt").write_text(f"[torch_dynamo_backends]\n{name} = {json.loads(place)}\n")


def test_an_installed_minify_is_found_by_name_and_by_torchs_own_override(root: Path) -> None:
    site = Path("site").resolve()
    installed(site, (root / "pyproject.toml").read_text())
    paths = os.pathsep.join((str(site), str(root)))
    environment = {**os.environ, "PYTHONPATH": paths, "TORCH_COMPILE_OVERRIDE_BACKENDS": ">=0:minify"}
    ran = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert ran.stdout == "[0.0, 0.0]\n[2.0, 2.0]\n", ran.stderr
    assert ran.stderr.count("minify resume") == 2
    for number in (1, 2):
        assert RunFolder(Path(f"minify-out/backend-{number}")).captured() is not None
