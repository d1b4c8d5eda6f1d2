"""Between tensors and a record: what is kept of a tensor, and the tensors of a record made again, those that share memory sharing it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from minify.compare import Compared, compare_results
from minify.interpret import dtype_name
from minify.kernels.record import Argument, Due, Kernel
from minify.tolerance import Tolerance


def content(tensor: torch.Tensor) -> bytes:
    """The elements in the order of the shape."""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().cpu().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def memory_content(tensor: torch.Tensor) -> bytes:
    """All that the allocation of `tensor` holds."""
    storage = tensor.untyped_storage()
    whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, 0, (storage.nbytes(),), (1,))
    return whole.cpu().numpy().tobytes()


def named_dtype(name: str) -> torch.dtype:
    return getattr(torch, name)  # type: ignore[no-any-return]


def of_content(raw: bytes, dtype: str, shape: Sequence[int]) -> torch.Tensor:
    """The opposite of `content`."""
    wanted = named_dtype(dtype)
    if not raw:
        return torch.empty(tuple(shape), dtype=wanted)
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(wanted).reshape(tuple(shape))


def tensor_in(memory: torch.Tensor, argument: Argument) -> torch.Tensor:
    """The tensor of `argument` within `memory`, the bytes of its allocation."""
    dtype = named_dtype(argument.dtype)
    whole = memory[: memory.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
    return torch.as_strided(whole, argument.shape, argument.stride, argument.offset // dtype.itemsize)


def memories(kernel: Kernel, *, after: bool = False) -> list[torch.Tensor]:
    """The bytes of each allocation, as the kernel found it or as it left it; writable."""
    return writable([memory.after if after else memory.before for memory in kernel.memories])


def writable(contents: Sequence[bytes]) -> list[torch.Tensor]:
    return [torch.frombuffer(bytearray(raw or b"\0"), dtype=torch.uint8) for raw in contents]


def due_of(eager: torch.Tensor, reference: torch.Tensor, shaken: Sequence[torch.Tensor] = ()) -> Due:
    return Due(content(eager), content(reference), dtype_name(reference.dtype), tuple(map(content, shaken)))


def judged(out: torch.Tensor, argument: Argument, tolerance: Tolerance) -> Compared:
    """How what the buffer holds departs from what is due."""
    due = argument.due
    assert due is not None
    eager = of_content(due.eager, argument.dtype, argument.shape)
    reference = of_content(due.reference, due.reference_dtype, argument.shape)
    shaken = [of_content(raw, argument.dtype, argument.shape) for raw in due.shaken]
    return one_of(compare_results(argument.name, out.cpu(), eager, reference, tolerance, shaken, strides=False))


def agree(one: torch.Tensor, other: torch.Tensor, tolerance: Tolerance) -> bool:
    """Whether two runs of a kernel left the same, give and take what rounding explains."""
    return not one_of(compare_results("", one, other, None, tolerance, strides=False)).wrong


def one_of(rows: Sequence[Compared]) -> Compared:
    """The row of wrong values if there is one."""
    return next((row for row in rows if row.wrong), rows[0] if rows else Compared())
