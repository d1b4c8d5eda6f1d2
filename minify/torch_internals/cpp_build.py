"""How Inductor builds C++ on this machine."""

from __future__ import annotations

import importlib
import shlex
from pathlib import Path

_LIBRARIES = "-ltorch", "-lc10"  # by how their names begin


def cpp_command(source: Path, library: Path, *, vectors: bool = True) -> list[str]:
    """The command line by which Inductor makes `library` of `source`, less torch's own libraries, which a kernel needs not; without
    `vectors` for a source that has none. Raises ImportError, AttributeError and TypeError where this torch lacks it."""
    builder = importlib.import_module("torch._inductor.cpp_builder")
    isa = importlib.import_module("torch._inductor.cpu_vec_isa")
    options = builder.CppTorchDeviceOptions(
        include_pytorch=False,
        shared=True,
        device_type="cpu",
        vec_isa=isa.pick_vec_isa() if vectors else isa.invalid_vec_isa,
    )
    made = builder.CppBuilder(
        name=library.stem, sources=str(source), output_dir=str(library.parent), BuildOption=options
    )
    words = shlex.split(made.get_command_line())
    place = words.index("-o")
    kept = [word for word in words[:place] + words[place + 2 :] if not word.startswith(_LIBRARIES)]
    return [*kept, "-o", str(library)]
