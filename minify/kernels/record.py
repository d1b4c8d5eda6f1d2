"""A generated kernel cut out of a run: its text, what it was given, what it left, and what is due. Plain data, in JSON on disk."""

from __future__ import annotations

import base64
import dataclasses
import json
import zlib
from collections.abc import Sequence
from typing import Any

Scalar = int | float | bool | None


@dataclasses.dataclass(frozen=True, slots=True)
class Memory:
    """What one allocation holds before the kernel runs and after it."""

    before: bytes
    after: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Due:
    """What a buffer should hold, in the order of its shape: `eager` in its own dtype, `reference` one precision up, `shaken` eager's on
    inputs moved by one unit in the last place. `reference_dtype` is that of `reference`."""

    eager: bytes
    reference: bytes
    reference_dtype: str
    shaken: tuple[bytes, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Argument:
    """One argument: a `value`, or a tensor that begins `offset` bytes into the allocation number `memory`.

    `type` is that of the C++ parameter. `buffer` is Inductor's name for the tensor, `node` that of the graph's node whose value
    it holds once the kernel has run; `due` is known of what the kernel `writes`, where the node is."""

    name: str
    type: str = ""
    value: Scalar = None
    memory: int = -1
    offset: int = 0
    dtype: str = ""
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    writes: bool = False
    buffer: str = ""
    node: str = ""
    due: Due | None = None

    @property
    def is_tensor(self) -> bool:
        return self.memory >= 0


@dataclasses.dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel and one call of it. `wrong` names the arguments that it leaves wrong. `grid`, `constants` and `options` are those of
    a launch of a Triton kernel; `versions` those of torch and Triton that it was recorded with."""

    language: str
    name: str
    source: str
    arguments: tuple[Argument, ...]
    memories: tuple[Memory, ...]
    wrong: tuple[str, ...] = ()
    grid: tuple[int, ...] = ()
    constants: dict[str, Any] = dataclasses.field(default_factory=dict)
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    versions: dict[str, str] = dataclasses.field(default_factory=dict)

    def argument(self, name: str) -> Argument:
        """Raises KeyError where there is none of that name."""
        found = next((argument for argument in self.arguments if argument.name == name), None)
        if found is None:
            raise KeyError(name)
        return found


# --- JSON -----------------------------------------------------------------------------------------------------------------


def to_json(kernel: Kernel) -> str:
    """The source stands in it line by line, contents compressed."""
    row = {**_plain(kernel), "source": kernel.source.split("\n")}
    return json.dumps(row, indent=1) + "\n"


def from_json(text: str) -> Kernel:
    """Raises ValueError, KeyError and TypeError where `text` is no record."""
    row = json.loads(text)
    arguments = tuple(_argument(item) for item in row.pop("arguments"))
    memories = tuple(Memory(_unpacked(item["before"]), _unpacked(item["after"])) for item in row.pop("memories"))
    source, wrong, grid = "\n".join(row.pop("source")), tuple(row.pop("wrong")), tuple(row.pop("grid"))
    return Kernel(source=source, arguments=arguments, memories=memories, wrong=wrong, grid=grid, **row)


def _argument(row: dict[str, Any]) -> Argument:
    due = row.pop("due")
    if due is not None:
        shaken = tuple(_unpacked(item) for item in due["shaken"])
        due = Due(_unpacked(due["eager"]), _unpacked(due["reference"]), due["reference_dtype"], shaken)
    return Argument(**{**row, "shape": tuple(row["shape"]), "stride": tuple(row["stride"]), "due": due})


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(zlib.compress(value, 9)).decode()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def _unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


def packed(contents: Sequence[bytes]) -> str:
    """What the allocations of a kernel hold, as text."""
    return json.dumps([_plain(content) for content in contents])


def unpacked(text: str) -> list[bytes]:
    return [_unpacked(item) for item in json.loads(text)]
