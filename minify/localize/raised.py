"""In which step of the compile chain was an exception raised? Read from its traceback's frames, never from its message."""

from __future__ import annotations

import re
from collections.abc import Sequence

# By frame, `torch/_inductor/graph.py:run_node`; the innermost frame that a row knows decides. What all steps call (fake
# tensors, symbolic shapes, kernels of the meta device) is in no row. A backend that Dynamo calls is no step of the chain.
_STEPS = tuple(
    (re.compile(frame), step)
    for frame, step in (
        (r"triton/", "Triton"),
        (r"torch/_inductor/decomposition\.py:", "decompositions"),
        (r"torch/fx/experimental/proxy_tensor\.py:maybe_handle_decomp", "decompositions"),
        (r"torch/_inductor/", "Inductor"),
        (r"torch/_functorch/", "AOTAutograd"),
        (r"torch/_dynamo/(repro/|backends/|output_graph\.py:_?call_user_compiler)", ""),
        (r"torch/_dynamo/(utils|callback|eval_frame)\.py", None),
        (r"torch/_dynamo/", "Dynamo"),
    )
)


def raised_in(frames: Sequence[str]) -> str:
    """The step that was under way, "" where it was none of torch's own; `frames` are those of `Observation`."""
    for frame in reversed(frames):
        step = next((step for pattern, step in _STEPS if pattern.match(frame)), None)
        if step is not None:
            return step
    return ""
