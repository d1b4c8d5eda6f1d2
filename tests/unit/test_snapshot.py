"""From a running program to a case and back: the replayed text does exactly what the captured graph did."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from minify import interpret, reference, replay, torch_internals
from minify.case import Case, Input, ScalarInput
from tests.capturing import Captured, capture, facts


def replayed(case: Case, root: Path) -> tuple[list[Any], list[Any]]:
    """Facts of the outputs and the inputs after one eager run of the text, from seed 0."""
    live = replay.replay(case, root)
    with replay.applied(live):
        values = live.make_inputs()
        with replay.seeded(case):
            result = live.fn(*values)
    count = len(case.graph.outputs)
    outputs = () if count == 0 else (result,) if count == 1 else result
    rows = facts([*values, *outputs])
    return rows[len(values) :], rows[: len(values)]


def stepped(case: Case, root: Path, precision: str) -> tuple[list[Any], list[Any]]:
    """The same of a run op by op beside the reference."""
    live = replay.replay(case, root)
    with replay.applied(live):
        pair = reference.lockstep(
            case, live.make_inputs, precision, wants_reference=precision != "none", scope=live.scope
        )
    rows = facts([*pair.low, *pair.steps.eager])
    return rows[len(pair.low) :], rows[: len(pair.low)]


def base() -> torch.Tensor:
    return torch.arange(1.0, 25.0)


def matrix() -> torch.Tensor:
    return base().view(4, 6) / 7


class Buffered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))
        self.linear = nn.Linear(6, 3)
        self.norm = nn.BatchNorm1d(3)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps.add_(1)
        return self.act(self.norm(self.linear(x))) * self.steps


def several(x: torch.Tensor) -> Any:
    return x.sin(), {"a": x.cos(), "none": None}, [x.max(0).values]


def in_place(x: torch.Tensor, y: torch.Tensor) -> Any:
    x.add_(1)
    y[1:, ::2] = 5
    y[0] += 2
    x *= 2
    return x.view(-1)[3:]


def indexing(x: torch.Tensor, i: torch.Tensor) -> Any:
    return x[..., None], x[:, (0, 2)], x[(1,)], x[None, 1:3, ::2], x[i], x[-1, -1], x[[0, 2]]


def nan_literals(x: torch.Tensor) -> Any:
    full = torch.full_like(x, math.nan)
    return torch.where(x > 1, full, -math.inf), x * -0.0, x.clamp(max=math.inf), torch.full((2,), 1 - 2j)


def autocast(x: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.t()
        with torch.autocast("cpu", enabled=False):
            z = x @ x.t()
    return y, z, x.t() @ x


def grad_modes(x: torch.Tensor) -> Any:
    with torch.no_grad():
        y = x * 2
    return y + x, x.detach()


def branch(x: torch.Tensor) -> Any:
    def sine(v: torch.Tensor, w: torch.Tensor) -> Any:
        return v.sin() + w, w * 2

    def cosine(v: torch.Tensor, w: torch.Tensor) -> Any:
        return v.cos() - w, w * 3

    return torch.cond(x.sum() > 100, sine, cosine, (x, x * 2))


def foreach(x: torch.Tensor, y: torch.Tensor) -> Any:
    torch._foreach_mul_([x, y], 3.0)
    return torch._foreach_add([x, y], [y, x], alpha=2)


def named(values: dict[str, torch.Tensor]) -> Any:
    return values["lambda"] + values["float"] * values["torch"] - values["recorded"]


def sequences(x: torch.Tensor) -> Any:
    a, b = x.split(2)
    values, indices = torch.sort(x, dim=1, descending=True)
    return torch.cat([a, b]), torch.stack((values[0], values[1])), indices, x.size(0) * 2


def attributes(x: torch.Tensor) -> Any:
    z = torch.complex(x, x + 1)
    return x.T, x.mT, z.real, z.imag, z.mH, torch.view_as_real(z)


def checkpointed(x: torch.Tensor, w: torch.Tensor) -> Any:
    return checkpoint(lambda v, u: (v @ u).relu() * 2, x, w, use_reentrant=False) + 1


def mapped(x: torch.Tensor) -> Any:
    return torch.vmap(lambda v: v.sum() * v)(x)


def drops(x: torch.Tensor) -> Any:
    return F.dropout(x, 0.5) + torch.rand_like(x) + torch.randn(6)


def shapes(x: torch.Tensor, n: int) -> Any:
    return x.view(x.size(0) // 2, -1) * n, x.new_zeros(x.shape[1] + n), x.reshape(n * 2, -1)


def casts(x: torch.Tensor) -> Any:
    return x.half().float(), x.to(torch.bfloat16), x.type(torch.int32), x.bool() ^ True, x.double().long() << 2


def no_tensor_results(x: torch.Tensor) -> None:
    x.zero_()


def pools(x: torch.Tensor) -> Any:
    image = x.view(1, 1, 4, 6)
    value, index = F.max_pool2d(image, 2, return_indices=True)
    return F.max_pool2d(image, 2), value, index, F.adaptive_avg_pool2d(image, (2, 2))


def factories(x: torch.Tensor) -> Any:
    mask = torch.arange(6, device=x.device)[None] > torch.tensor([[1], [2], [3], [4]])
    return x.masked_fill(mask, 0), torch.eye(4) @ x, torch.linspace(0, 1, 6) * x, torch.zeros(2, dtype=torch.float64)


def written_view(x: torch.Tensor) -> Any:
    flat = x.view(-1)
    flat[2:5].mul_(10)
    return flat, x.t()


def as_ints(x: torch.Tensor) -> Any:
    return x.view(torch.int32), x.view(torch.int32) + 1


def constants(x: torch.Tensor) -> Any:
    return x * torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) + TABLE


TABLE = torch.full((6,), 0.25)


def in_place_result(x: torch.Tensor) -> Any:
    x.mul_(2)
    return x.sum(), x


def results_that_require_grad() -> tuple[torch.Tensor, ...]:
    return (matrix().requires_grad_() * 1,)


def views_of_one_memory() -> tuple[torch.Tensor, ...]:
    x = base()
    return x.view(4, 6), x[:24].view(4, 6)


class Dtype(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.softmax(x, dim=-1, dtype=torch.float32).to(x.dtype)


def dtypes(z: torch.Tensor, b: torch.Tensor, i: torch.Tensor) -> Any:
    return (z * z.conj(), z.abs(), z.conj(), b & (i > 2), i // 2, i % 3, ~b, i << 1, -i, i**2, i / 2)


def conjugate() -> torch.Tensor:
    return torch.complex(matrix(), matrix()).conj()


def odd_layouts(
    e: torch.Tensor, s: torch.Tensor, x: torch.Tensor, o: torch.Tensor, c: torch.Tensor, z: torch.Tensor
) -> Any:
    return (
        *(e.sum(), e * 2, torch.cat([e, e]), s * 2, s.expand(3), x.sum(1), x + 1, o.sum(1), o.t()),
        *(F.relu(c), c.mean((2, 3)), F.interpolate(c, scale_factor=2), z + 1),
    )


def many_modules(x: torch.Tensor) -> Any:
    square = x @ x.t() / 100
    q = x.view(1, 2, 3, 4)
    return (
        *(torch.linalg.norm(x), torch.fft.rfft(x), torch.special.expit(x), torch.linalg.svdvals(square)),
        *(torch.sum(x, dim=(0,), keepdim=True), torch.std(x, 1, correction=0), x.to(dtype=torch.float64, copy=True)),
        F.scaled_dot_product_attention(q, q, q, is_causal=True),
    )


def augmented(x: torch.Tensor, y: torch.Tensor) -> Any:
    x += y
    x -= 1
    y *= x
    x /= 2
    y **= 2
    n = 2
    n += 1
    return x * n, y


class Guided(torch.autograd.Function):
    """Saves a tensor and a number, returns two results, one of them without a gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, by: float) -> Any:
        ctx.save_for_backward(x)
        ctx.by = by
        positive = x > 1
        ctx.mark_non_differentiable(positive)
        return x.clamp(min=0.0) * by, positive

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradient.relu() * (x > 0) * ctx.by, None


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        ctx.y = y * 2
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * ctx.y


def autograd_functions(x: torch.Tensor) -> Any:
    y, positive = Guided.apply(x * 2, 3.0)
    return Square.apply(y / 9), positive, Square.apply(x)


torch.manual_seed(0)  # of the modules below: their weights decide how near rounding brings a result to its bound
PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], Sequence[Any]], dict[str, Any]]] = {
    "several outputs": (several, lambda: (matrix(),), {}),
    "in-place ops on inputs": (in_place, lambda: (matrix(), matrix().clone()), {}),
    "in-place ops on two views": (in_place, views_of_one_memory, {}),
    "in-place on a result": (in_place_result, results_that_require_grad, {}),
    "writes to a view": (written_view, lambda: (matrix(),), {}),
    "nothing returned": (no_tensor_results, lambda: (matrix(),), {}),
    "buffers": (Buffered(), lambda: (matrix(),), {}),
    "buffers, evaluating": (Buffered().eval(), lambda: (matrix(),), {}),
    "parameters and gradients": (nn.Linear(6, 3), lambda: (matrix().requires_grad_(),), {}),
    "indexing": (indexing, lambda: (matrix(), torch.tensor([0, 3, 1])), {}),
    "indexing, dynamic": (lambda x: (x[1:, :2], x[:, -1], x.flip(0)), lambda: (matrix(),), {"dynamic": True}),
    "literals": (nan_literals, lambda: (matrix(),), {}),
    "autocast": (autocast, lambda: (matrix(),), {}),
    "grad modes": (grad_modes, lambda: (matrix().requires_grad_(),), {}),
    "a branch": (branch, lambda: (matrix(),), {}),
    "a branch, dynamic": (branch, lambda: (matrix(),), {"dynamic": True}),
    "foreach": (foreach, lambda: (matrix(), matrix() + 1), {}),
    "names that are taken": (
        named,
        lambda: ({name: matrix() + at for at, name in enumerate(("lambda", "float", "torch", "recorded"))},),
        {},
    ),
    "sequences": (sequences, lambda: (matrix(),), {}),
    "sequences, dynamic": (sequences, lambda: (matrix(),), {"dynamic": True}),
    "attributes": (attributes, lambda: (matrix(),), {}),
    "a checkpoint": (checkpointed, lambda: (matrix().requires_grad_(), torch.ones(6, 2, requires_grad=True)), {}),
    "a checkpoint, dynamic": (
        checkpointed,
        lambda: (matrix().requires_grad_(), torch.ones(6, 2, requires_grad=True)),
        {"dynamic": True},
    ),
    "autograd functions": (autograd_functions, lambda: (matrix().requires_grad_(),), {}),
    "vmap": (mapped, lambda: (matrix(),), {}),
    "random numbers": (drops, lambda: (matrix(),), {}),
    "dynamic shapes": (shapes, lambda: (matrix(), 3), {"dynamic": True}),
    "a dynamic float": (lambda x, s: x * s + s, lambda: (matrix(), 1.5), {"dynamic": True}),
    "static numbers": (shapes, lambda: (matrix(), 3), {}),
    "casts": (casts, lambda: (matrix(),), {}),
    "pools": (pools, lambda: (matrix(),), {}),
    "factories": (factories, lambda: (matrix(),), {}),
    "views of another dtype": (as_ints, lambda: (matrix(),), {}),
    "constants": (constants, lambda: (matrix(),), {}),
    "half": (Dtype(), lambda: (matrix().half(),), {}),
    "bfloat16": (Dtype(), lambda: (matrix().bfloat16(),), {}),
    "many dtypes": (dtypes, lambda: (conjugate(), torch.tensor([True, False, True]), torch.tensor([1, 2, 7])), {}),
    "odd layouts": (
        odd_layouts,
        lambda: (
            torch.empty(0, 3),
            torch.tensor(2.5),
            torch.arange(4.0).view(4, 1).expand(4, 3),
            base().as_strided((5, 4), (2, 1), 3),
            torch.arange(24.0).view(1, 2, 3, 4).contiguous(memory_format=torch.channels_last),
            torch_internals.zerotensor((6,), torch.float32, "cpu"),
        ),
        {},
    ),
    "functions of many modules": (many_modules, lambda: (matrix(),), {}),
    "in-place augmented operators": (augmented, lambda: (matrix(), matrix()), {}),
}  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module", params=PROGRAMS)
def program(request: pytest.FixtureRequest, root: Path) -> tuple[str, Captured]:
    """A program's name and what was captured of it, once for all tests."""
    fn, inputs, how = PROGRAMS[request.param]
    torch.manual_seed(1)
    (found,) = capture(fn, inputs(), root, **how)
    return request.param, found


def test_a_replayed_program_does_what_the_captured_one_did(program: tuple[str, Captured], root: Path) -> None:
    seen = program[1]
    assert replayed(seen.case, root) == (seen.outputs, seen.inputs)
    assert replayed(seen.case, root) == (seen.outputs, seen.inputs)


def test_a_program_run_op_by_op_does_what_it_does_as_text(program: tuple[str, Captured], root: Path) -> None:
    seen = program[1]
    for precision in ("none", "fp64"):
        assert stepped(seen.case, root, precision) == (seen.outputs, seen.inputs)


def test_the_reference_of_a_program_is_near_to_it(program: tuple[str, Captured], root: Path) -> None:
    name, seen = program
    live = replay.replay(seen.case, root)
    with replay.applied(live):
        pair = reference.lockstep(seen.case, live.make_inputs, "auto", wants_reference=True, scope=live.scope)
    assert pair.steps.reference is not None, pair.steps.notes
    for low, high in zip(
        interpret.leaves((pair.low, pair.steps.eager)), interpret.leaves((pair.high, pair.steps.reference)), strict=True
    ):
        loose = 2e-2 if name == "casts" or low.dtype in (torch.bfloat16, torch.float16) else 1e-5
        torch.testing.assert_close(high.to(low.dtype), low, rtol=loose, atol=loose, equal_nan=True)
    assert {name for name, g in pair.low_grads.items() if g is not None} == {
        name for name, g in pair.high_grads.items() if g is not None
    }
    for name, gradient in pair.low_grads.items():
        if gradient is not None:
            torch.testing.assert_close(pair.high_grads[name].float(), gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_text_is_captured_again_as_the_same_program(program: tuple[str, Captured], root: Path) -> None:
    """A compiler that is handed the text sees what it saw of the user's program."""
    name, seen = program
    live = replay.replay(seen.case, root)
    with replay.applied(live), replay.seeded(seen.case):
        again = capture(live.fn, live.make_inputs(), root, **PROGRAMS[name][2])
    assert len(again) == 1
    assert again[0].outputs == seen.outputs
    assert [op.target for op in again[0].case.graph.ops] == [op.target for op in seen.case.graph.ops]
    assert dynamics(again[0].case) == dynamics(seen.case)


def dynamics(case: Case) -> list[Any]:
    return [item.dynamic_dims if isinstance(item, Input) else item.dynamic for item in case.inputs]


def test_a_dynamic_number_stays_one_without_dynamic_shapes(root: Path) -> None:
    fn = lambda x, n: x * n  # noqa: E731
    with torch_internals.config_patch(list(torch_internals.dynamic_numbers(["n"]))):
        (seen,) = capture(fn, (matrix(), 7), root)
    scalar = seen.case.inputs[1]
    assert isinstance(scalar, ScalarInput)
    assert (scalar.name, scalar.value, scalar.dynamic) == ("n", 7, True)
    live = replay.replay(seen.case, root)
    with replay.applied(live):
        (again,) = capture(live.fn, live.make_inputs(), root)
    assert dynamics(again.case) == dynamics(seen.case) == [(), True]
