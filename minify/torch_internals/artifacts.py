"""What the compiler makes of a program on its way: graphs, scheduler IR and code, written down as they come to be.

Owns which of torch's records and places there are and what each is called. A release that lacks one writes the rest.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from minify import artifacts
from minify.torch_internals.dynamo import GraphCompiler, watched_compiles
from minify.torch_internals.switches import exists, replaced

_TRACE_LOG = "torch.__trace"  # what `TORCH_TRACE` writes to a folder
_FUSE = "torch._inductor.scheduler:Scheduler.fuse_nodes"
# By the name of the record, or of the artifact in it.
_KINDS = {
    "before_pre_grad_graph": artifacts.BEFORE_PRE_GRAD,
    "after_pre_grad_graph": artifacts.PRE_GRAD,
    "aot_joint_graph": artifacts.TRACED_JOINT,
    "before_joint_graph": artifacts.BEFORE_JOINT,
    "after_joint_graph": artifacts.JOINT,
    "aot_inference_graph": artifacts.ATEN,
    "aot_forward_graph": artifacts.ATEN,
    "aot_backward_graph": artifacts.ATEN,
    "before_post_grad_graph": artifacts.BEFORE_POST_GRAD,
    "inductor_post_grad_graph": artifacts.POST_GRAD,
    "inductor_output_code": artifacts.CODE,
}
_TRAINING = "aot_forward_graph"  # there is such a record only where a backward is compiled as well


class _Written(logging.Handler):
    """Writes each text to a file of its own, numbered as they come: what a compile that dies has made by then is there."""

    def __init__(self, folder: Path) -> None:
        super().__init__(logging.DEBUG)
        self._folder = folder
        self._met: Counter[str] = Counter()
        self._training = False

    def write(self, kind: str, text: str) -> None:
        self._met[kind] += 1
        number = sum(self._met.values())
        name = artifacts.file_name(number, kind, self._part(kind))
        (self._folder / name).write_text(text if text.endswith("\n") else f"{text}\n")

    def _part(self, kind: str) -> str:
        """Of a program with a backward the compiler comes to the forward first, and then to the backward."""
        turn = self._met[kind]
        per_part = kind in artifacts.PER_PART
        if self._training and per_part and turn <= len(artifacts.PARTS):
            return artifacts.PARTS[turn - 1]
        return "" if turn == 1 else str(turn)

    def emit(self, record: logging.LogRecord) -> None:
        metadata, text = getattr(record, "metadata", None), getattr(record, "payload", None)
        if not isinstance(metadata, dict) or not isinstance(text, str):
            return
        named = metadata.get("artifact")
        for name in (*metadata, named.get("name", "") if isinstance(named, dict) else ""):
            self._training = self._training or name == _TRAINING
            if name in _KINDS:
                self.write(_KINDS[name], text)

    def handleError(self, record: logging.LogRecord) -> None:
        """A full disk is no news to the compiler."""


@contextlib.contextmanager
def artifacts_written(folder: Path) -> Iterator[Callable[[str, str], None]]:
    """Everything that is compiled meanwhile leaves its artifacts in `folder`; what is yielded writes another one."""
    written, log = _Written(folder), logging.getLogger(_TRACE_LOG)
    with contextlib.ExitStack() as stack:
        log.addHandler(written)
        stack.callback(log.removeHandler, written)
        stack.enter_context(watched_compiles(functools.partial(_beside, written)))
        if exists(_FUSE):
            stack.enter_context(replaced(_FUSE, functools.partial(_scheduled, written)))
        yield written.write


def _beside(written: _Written, compiler: GraphCompiler, how: dict[str, Any]) -> GraphCompiler:
    """A graph compiler that leaves what it is given and, if it is none of torch's own, the graphs that it is seen to make of it."""
    own = not isinstance(how.get("backend", ""), str)

    def compile_graph(module: torch.fx.GraphModule, inputs: Any, **kwargs: Any) -> Any:
        given = _readable(module)
        written.write(artifacts.DYNAMO, given)
        compiled = compiler(module, inputs, **kwargs)
        for text in dict.fromkeys(map(_readable, (module, *_held(compiled)))) if own else ():
            if text != given:
                written.write(artifacts.BACKEND, text)
        return compiled

    return compile_graph


def _held(compiled: Any) -> Iterator[torch.fx.GraphModule]:
    """The graphs that a backend's answer is, belongs to, or was made of."""
    cells = [cell.cell_contents for cell in getattr(compiled, "__closure__", None) or () if _filled(cell)]
    for held in (compiled, getattr(compiled, "__self__", None), *cells):
        if isinstance(held, torch.fx.GraphModule):
            yield held


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _readable(module: torch.fx.GraphModule) -> str:
    return module.print_readable(print_output=False)


def _scheduled(written: _Written, fuse: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fuse)
    def noted(scheduler: Any, nodes: Any) -> Any:
        written.write(artifacts.UNFUSED, _listed(nodes))
        fused = fuse(scheduler, nodes)
        written.write(artifacts.FUSED, _listed(fused))
        return fused

    return noted


def _listed(nodes: Any) -> str:
    return "\n\n".join(str(node.debug_str()) for node in nodes)
