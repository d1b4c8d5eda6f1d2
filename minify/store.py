"""Tensors and base cases on disk, by content: `values/<digest>.pt` (one 1-D storage each) and `cases/<digest>.case`.

Shared by the process that captures, the workers and the emitter; writing the same content twice is harmless.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import TYPE_CHECKING

from minify import case as cases
from minify.case import Case

if TYPE_CHECKING:  # the process that only keeps bases never needs torch
    import torch


def storage_of(tensor: torch.Tensor) -> torch.Tensor:
    """All elements of the memory `tensor` lies in as they are there, lazy bits apart, as a 1-D tensor of its dtype (no copy)."""
    import torch

    from minify import torch_internals

    size = tensor.untyped_storage().nbytes() // max(tensor.element_size(), 1)
    bare = tensor.detach()
    bare = torch_internals.neg_view(bare) if bare.is_neg() else bare
    bare = bare.conj() if bare.is_conj() else bare
    return torch.as_strided(bare, (size,), (1,), 0)


def save_storage(root: Path, storage: torch.Tensor) -> str:
    """Write a 1-D tensor and return its digest. Raises OSError (a full disk)."""
    import torch

    flat = storage.detach().cpu().contiguous()
    raw = flat.view(torch.uint8) if flat.numel() else flat.to(torch.uint8)
    content = hashlib.sha256(str(flat.dtype).encode())
    content.update(raw.numpy().data)
    digest = content.hexdigest()[:32]
    path = root / "values" / f"{digest}.pt"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        torch.save(flat.clone(), buffer)
        cases.write_whole(path, buffer.getvalue())
    return digest


def load_storage(root: Path, digest: str) -> torch.Tensor:
    """The 1-D CPU tensor saved under `digest`; read-only by contract (it may be a map of the file)."""
    import torch

    return torch.load(root / "values" / f"{digest}.pt", map_location="cpu", weights_only=True)  # type: ignore[no-any-return]


def save_base(root: Path, case: Case) -> str:
    """Keep a case that others derive values from; returns its digest."""
    name = cases.digest(case)
    path = root / "cases" / f"{name}.case"
    if not path.exists():
        cases.save(case, path)
    return name


def load_base(root: Path, digest: str) -> Case:
    return cases.load(root / "cases" / f"{digest}.case")
