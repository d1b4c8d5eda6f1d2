"""Record the Triton kernels that Inductor generates for a handful of programs, as test data for machines without a GPU.

    python scripts/record_kernels.py --out tests/data/kernels
    python scripts/record_kernels.py --out tests/data/kernels --interpret    # without a GPU

With `--interpret` Inductor generates its Triton kernels for the CPU, and Triton's interpreter runs them: such a record stands for
a GPU that does what its program says. Which it was stands in the record's `versions`, as `on`.

Of each program the kernel that writes its result becomes a file: text, arguments, launch, and what every buffer held before and
after. Some are made wrong: in the text that Inductor generates, or in what the GPU left, which stands for a fault of the Triton
compiler. A program that gives no record is told, and the others are written all the same.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp(prefix="record_kernels_"))
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

os.environ["TRITON_INTERPRET"] = "1" if "--interpret" in sys.argv else "0"  # which Triton reads as it is imported

import torch
import torch._inductor.config
from torch._inductor.async_compile import AsyncCompile

from minify import torch_internals
from minify.kernels.record import Kernel, Memory, to_json
from minify.kernels.recorder import Recorder

DEVICE = "cpu" if os.environ["TRITON_INTERPRET"] == "1" else "cuda"
TEMPLATES = {
    "max_autotune_gemm": True,
    "max_autotune_gemm_backends": "TRITON",
    "autotune_in_subproc": False,
    "benchmark_epilogue_fusion": False,  # which fuses only where that is faster
}
FRESH = {"fx_graph_cache": False, "compile_threads": 1}
LOOPED = {"triton.persistent_reductions": False, "split_reductions": False}
F = torch.nn.functional


def some(*shape: int, dtype: torch.dtype = torch.float32, most: int = 16) -> torch.Tensor:
    """Multiples of an eighth: they take little room when compressed, and TF32 holds their products exactly."""
    return (torch.randint(-most, most + 1, shape) / 8).to(DEVICE, dtype)


@dataclasses.dataclass(frozen=True)
class Program:
    """What is compiled; `sort` is how Inductor calls the sort of kernel that is wanted of it. Configs that this torch does not know
    are left out. `edit` changes the text of each kernel of it: a pattern and what stands in its place. `misread` says that the
    GPU's result is changed."""

    fn: Callable[..., Any]
    inputs: Callable[[], tuple[torch.Tensor, ...]]
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    edit: tuple[str, str] = ("", "")
    misread: bool = False
    sort: str = "poi"

    @property
    def wrong(self) -> bool:
        return self.misread or bool(self.edit[0]) or any("inject" in name for name in self.config)


def two_outputs(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tanh(x) * y, torch.log1p(x.abs()) - y


PROGRAMS = {
    "pointwise": Program(lambda x, y: torch.sin(x) * torch.exp(y) + 1, lambda: (some(13, 11), some(11))),
    "pointwise_half": Program(lambda x, y: F.gelu(x) + y, lambda: (some(9, 16, dtype=torch.float16),) * 2),
    "two_outputs": Program(two_outputs, lambda: (some(64), some(64))),
    "reduction": Program(lambda x: (x * 2).sum(-1), lambda: (some(3, 1500),), LOOPED, sort="red"),
    "persistent_reduction": Program(lambda x: torch.softmax(x, -1), lambda: (some(5, 50),), sort="per"),
    "argmax": Program(lambda x: x.argmax(-1), lambda: (some(4, 40),), sort="per"),
    "welford": Program(lambda x: torch.var(x, -1), lambda: (some(3, 1100),), LOOPED, sort="red"),
    "layer_norm": Program(lambda x: F.layer_norm(x, (40,)), lambda: (some(4, 40),), sort="per"),
    "scan": Program(lambda x: torch.cumsum(x, -1), lambda: (some(4, 50),), sort="per"),
    "gather": Program(lambda x, at: x[at] * 2, lambda: (some(20, 6), torch.tensor([3, 0, 19, 3], device=DEVICE))),
    "matmul_epilogue": Program(
        lambda x, w: torch.relu(x @ w), lambda: (some(32, 32), some(32, 32)), TEMPLATES, sort="tem"
    ),
    "matmul_half": Program(
        lambda x, w: torch.sigmoid(x @ w),
        lambda: (some(32, 48, dtype=torch.float16, most=4), some(48, 32, dtype=torch.float16, most=4)),
        TEMPLATES,
        sort="tem",
    ),
    "wrong_relu": Program(
        lambda x: torch.relu(x) * 2, lambda: (some(13, 11),), {"triton.inject_relu_bug_TESTING_ONLY": "accuracy"}
    ),
    "wrong_exp": Program(
        lambda x: torch.exp(x) + 1, lambda: (some(13, 11),), edit=(r"\b(libdevice|tl_math)\.exp\(", r"\1.exp2(")
    ),
    "wrong_sum": Program(
        lambda x: (x + 1).sum(-1),
        lambda: (some(5, 50),),
        edit=(r"tl\.sum\((\w+), (\d)\)", r"triton_helpers.max2(\1, \2)"),
        sort="per",
    ),
    "miscompiled_pointwise": Program(lambda x, y: torch.sin(x) + y, lambda: (some(13, 11), some(11)), misread=True),
    "miscompiled_reduction": Program(lambda x: torch.softmax(x, -1), lambda: (some(5, 50),), misread=True, sort="per"),
}


class NoDriver:
    """Stands for the driver of a GPU, which Inductor asks what it generates code for."""

    def is_active(self) -> bool:
        return True

    def get_current_target(self) -> Any:
        return importlib.import_module("triton.backends.compiler").GPUTarget("cuda", 90, 32)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


def interpret() -> None:
    """From now on Triton's kernels are interpreted, and what they call of CUDA's math is torch's."""
    importlib.import_module("torch.utils._triton").triton_hash_with_backend = lambda: "interpreter"
    importlib.import_module("triton").runtime.driver.set_active(NoDriver())
    torch_internals.replace_libdevice(importlib.import_module("minify.kernels.stand_ins").libdevice)


@contextlib.contextmanager
def edited(pattern: str, by: str, applied: list[str]) -> Iterator[None]:
    """What Inductor hands to Triton is changed; `applied` then has the names of the kernels that were."""
    right = AsyncCompile.triton

    def triton(self: Any, kernel_name: str, source_code: str, *args: Any, **kwargs: Any) -> Any:
        source, count = re.subn(pattern, by, source_code) if pattern else (source_code, 0)
        applied.extend([kernel_name] * bool(count))
        return right(self, kernel_name, source, *args, **kwargs)

    AsyncCompile.triton = triton
    try:
        yield
    finally:
        AsyncCompile.triton = right


def recorded(program: Program) -> Kernel:
    """The last kernel of the sort that is wanted, if it is known what is due of what it writes. Raises LookupError where there is
    none, or it is not as `program` says."""
    torch.manual_seed(0)
    inputs, recorder, applied = program.inputs(), Recorder(every=True, shaken=0), list[str]()
    torch._dynamo.reset()
    known = torch._inductor.config.get_config_copy()
    configs = {key: value for key, value in program.config.items() if key in known}
    with (
        torch._inductor.config.patch(
            {**configs, "cpu_backend": "triton", "fx_graph_cache": False, "compile_threads": 1}
        ),
        torch_internals.no_caches(),
        torch_internals.kernels_watched(recorder),
        edited(*program.edit, applied),
    ):
        torch.compile(program.fn)(*inputs)
    if program.edit[0] and not applied:
        raise LookupError("the edit changed no kernel")
    told = [
        kernel
        for kernel in recorder.kernels
        if kernel.name.startswith(f"triton_{program.sort}_") and any(argument.due for argument in kernel.arguments)
    ]
    wrong = [kernel for kernel in told if kernel.wrong]
    if not told or bool(wrong) != (program.wrong and not program.misread):
        seen = [
            (kernel.name, kernel.wrong, [argument.node for argument in kernel.arguments]) for kernel in recorder.kernels
        ]
        raise LookupError(f"no such kernel among {seen}, not known: {recorder.unknown}")
    return misread(told[-1]) if program.misread else (wrong or told)[-1]


def misread(kernel: Kernel) -> Kernel:
    """As if every 32nd lane had been written by a compiler that loses a bit: what it left there has the opposite sign, and one more."""
    argument = next(argument for argument in reversed(kernel.arguments) if argument.due)
    memories = list(kernel.memories)
    held = memories[argument.memory]
    after = torch.frombuffer(bytearray(held.after), dtype=getattr(torch, argument.dtype))
    after[7::32] = -after[7::32] - 1
    memories[argument.memory] = Memory(held.before, after.numpy().tobytes())
    return dataclasses.replace(kernel, memories=tuple(memories), wrong=(argument.name,))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("programs", nargs="*", help=f"of {', '.join(PROGRAMS)}; all if none is named")
    parser.add_argument("--interpret", action="store_true", help="without a GPU")
    options = parser.parse_args()
    if options.interpret:
        interpret()
    elif not torch.cuda.is_available():
        print("no CUDA device: nothing can be recorded here but with --interpret", file=sys.stderr)
        return 2
    where = "the interpreter" if options.interpret else torch.cuda.get_device_name()
    options.out.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in options.programs or PROGRAMS:
        try:
            kernel = recorded(PROGRAMS[name])
        except Exception as error:  # noqa: BLE001 - the other programs are to be recorded all the same
            failed.append(name)
            print(f"{name}: {type(error).__name__}: {error}")
            traceback.print_exc(limit=-6)
            continue
        kernel = dataclasses.replace(kernel, versions={**kernel.versions, "on": where})
        path = options.out / f"{name}.json"
        path.write_text(to_json(kernel))
        print(f"{name}: {kernel.name}, {path.stat().st_size} bytes, wrong: {', '.join(kernel.wrong) or 'nothing'}")
    print(f"{len(options.programs or PROGRAMS) - len(failed)} recorded, failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
