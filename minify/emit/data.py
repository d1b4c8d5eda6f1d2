"""Recorded values that a repro cannot spell out, in a file beside it."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

from minify import inputs as input_text
from minify import render
from minify.case import Case, write_whole
from minify.emit.header import DATA_FILE

if TYPE_CHECKING:  # most repros need no data, and their runs no torch in this process
    import torch


def read_inputs(case: Case) -> list[str]:
    """Names of the inputs whose values the text of `case` reads from the data file."""
    return re.findall(r'recorded\["(\w+)"\]', render.text(input_text.make_inputs(case)))


def data_of(case: Case, root: Path) -> dict[str, torch.Tensor]:
    """What belongs into the data file: the real data that the text of `case` still reads, by input name."""
    names = read_inputs(case)
    if not names:
        return {}
    from minify.replay import replay

    live = replay(case, root)
    return {name: live.scope["recorded"][name] for name in names}


def write_data(case: Case, root: Path, repro: Path) -> None:
    """Put the data of `case` beside `repro`, or nothing where it needs none. Raises OSError."""
    path = repro.with_name(DATA_FILE)
    values = data_of(case, root)
    if not values:
        path.unlink(missing_ok=True)
        return
    import torch

    content = io.BytesIO()
    torch.save(values, content)
    write_whole(path, content.getvalue())
