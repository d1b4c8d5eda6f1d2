"""`def run(f)` of a repro: fresh inputs, the program, its backward where the check reads one, and what it hands back."""

from __future__ import annotations

import re

from minify.case import Case, TensorMeta
from minify.emit.compiling import contexts
from minify.emit.probe import Probe, metas, output_text
from minify.verdict import Observation

_DIFFERENTIABLE = ("float", "bfloat", "complex")


def run(case: Case, observation: Observation, probe: Probe | None) -> str:
    """The function as text; without a `probe` (a crash) it returns nothing and does whatever the case does."""
    seed = f"torch.manual_seed({case.settings.seed})"
    result = probe.result if probe else ""
    backward = _backward(case, observation) if probe is None or probe.backward else []
    keeps_inputs = observation.random or bool(backward) or "inputs[" in result
    lines = ["inputs = make_inputs()"] if keeps_inputs else []
    if observation.random:
        lines.append(seed)
    call = "f(*inputs)" if keeps_inputs else "f(*make_inputs())"
    name = "output" if len(case.graph.outputs) == 1 else "outputs"
    reads = len(re.findall(rf"\b{name}\b", " ".join([result, *backward])))
    turns = case.settings.replays
    if reads == 0:
        lines.append(call)
    elif reads == 1 and not backward and turns < 2:
        result = re.sub(rf"\b{name}\b", call, result)
    else:
        lines.append(f"{name} = {call}")
    if backward and case.settings.backward == "randn":
        lines.append(seed)
    *before, gradients = backward or [""]
    lines += before
    if gradients and probe is None:
        lines.append(gradients)
    result = result.replace("gradients", gradients) if result.count("gradients") == 1 else result
    if "gradients" in result:
        lines.append(f"gradients = {gradients}")
    if turns:
        lines = _again(turns, lines)
    if probe:
        lines.append(f"return {result}")
    elif _on_cuda(case, observation):
        lines.append("torch.cuda.synchronize()")  # what a kernel does wrong is raised here, if at all
    return _function(lines, contexts(case.settings))


def _again(turns: int, lines: list[str]) -> list[str]:
    """`lines` as often as that, each time after two calls with other values."""
    if turns == 1:
        return ["f(*other_inputs(0))", "f(*other_inputs(1))", *lines]
    body = ("f(*other_inputs(turn))", "f(*other_inputs(turn + 1))", *lines)
    return [f"for turn in range({turns}):", *(f"    {line}" for line in body)]


def _on_cuda(case: Case, observation: Observation) -> bool:
    known = metas(case, observation).values()
    return any(isinstance(meta, TensorMeta) and meta.device.startswith("cuda") for meta in known)


def _function(lines: list[str], entered: list[str]) -> str:
    if not entered:
        return "def run(f):\n" + "".join(f"    {line}\n" for line in lines)
    return f"def run(f):\n    with {', '.join(entered)}:\n" + "".join(f"        {line}\n" for line in lines)


def _backward(case: Case, observation: Observation) -> list[str]:
    """Statements, and last the expression of the gradients; none where the case has no backward."""
    wanted = [position for position, item in enumerate(case.inputs) if _requires_grad(item)]
    if not case.settings.backward or not wanted:
        return []
    texts = [output_text(case, position) for position in range(len(case.graph.outputs))]
    like = "torch.ones_like" if case.settings.backward == "ones" else "torch.randn_like"
    inputs = "inputs" if len(wanted) == len(case.inputs) else f"[{', '.join(f'inputs[{i}]' for i in wanted)}]"
    if len(texts) == 1:
        return [f"torch.autograd.grad(output, {inputs}, {like}(output), allow_unused=True)"]
    known = metas(case, observation)
    sure = all(_differentiable(known.get(getattr(output, "name", ""))) for output in case.graph.outputs)
    roots = "outputs" if sure else "roots"
    cotangents = f"[{like}(root) for root in {roots}]"
    lines = [] if sure else ["roots = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]"]
    return [*lines, f"torch.autograd.grad({roots}, {inputs}, {cotangents}, allow_unused=True)"]


def _requires_grad(item: object) -> bool:
    meta = getattr(item, "meta", None)
    return isinstance(meta, TensorMeta) and meta.requires_grad


def _differentiable(meta: object) -> bool:
    return isinstance(meta, TensorMeta) and meta.requires_grad and meta.dtype.startswith(_DIFFERENTIABLE)
