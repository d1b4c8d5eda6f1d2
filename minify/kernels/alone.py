"""Runs in a process of its own: one kernel of a record, alone, on what it was given; leaves what its memory then holds.

`python -m minify.kernels.alone cpp RECORD LIBRARY RESULT`, or `... triton RECORD SOURCE RESULT`. Whatever goes wrong ends the
process with a traceback. C++ needs no torch here, so that a sanitizer sees the kernel and little else.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minify.kernels.record import Argument, Kernel, from_json, packed

_ALIGNMENT = 64  # as torch's allocator has it
_SCALARS: dict[str, Any] = {
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "bool": ctypes.c_bool,
    "int": ctypes.c_int,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "long": ctypes.c_long,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
}


def main() -> None:
    language, record, code, result = sys.argv[1:]
    kernel = from_json(Path(record).read_text())
    left = run_cpp(kernel, code) if language == "cpp" else run_triton(kernel, Path(code))
    Path(result).write_text(packed(left))


def run_cpp(kernel: Kernel, library: str) -> list[bytes]:
    """What each allocation holds afterwards. Raises OSError where the library cannot be loaded."""
    function = _loaded(library).kernel
    places = [_allocated(memory.before) for memory in kernel.memories]
    given = [_argument(argument, places) for argument in kernel.arguments]
    function.restype = None
    function(*given)
    return [ctypes.string_at(place, len(memory.before)) for place, memory in zip(places, kernel.memories, strict=True)]


def _loaded(library: str) -> ctypes.CDLL:
    """Some vectorised code calls what is in torch's library, which takes long to load."""
    try:
        return ctypes.CDLL(library)
    except OSError:
        ctypes.CDLL(_torch_library(), ctypes.RTLD_GLOBAL)
        return ctypes.CDLL(library)


def _torch_library() -> str:
    spec = importlib.util.find_spec("torch")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return str(Path(folders[0], "lib", "libtorch_cpu.so")) if folders else ""


def _allocated(content: bytes) -> int:
    """An allocation of just that size, so that a sanitizer knows where it ends."""
    allocate = ctypes.CDLL(None).posix_memalign
    place = ctypes.c_void_p()
    if allocate(ctypes.byref(place), ctypes.c_size_t(_ALIGNMENT), ctypes.c_size_t(max(1, len(content)))):
        raise MemoryError
    assert place.value is not None
    ctypes.memmove(place.value, content, len(content))
    return place.value


def _argument(argument: Argument, places: Sequence[int]) -> Any:
    """Raises KeyError for a type that no kernel was seen to take."""
    if argument.is_tensor:
        return ctypes.c_void_p(places[argument.memory] + argument.offset)
    return _SCALARS[argument.type.removeprefix("const ").strip()](argument.value)


def run_triton(kernel: Kernel, source: Path) -> list[bytes]:
    """The same under Triton's interpreter where the environment says so, else on the GPU. `source` is plain Triton."""
    from minify import torch_internals
    from minify.kernels import tensors

    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if interpreted:
        from minify.kernels import stand_ins

        torch_internals.replace_libdevice(stand_ins.libdevice)
    spec = importlib.util.spec_from_file_location("plain_kernel", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    memories = [memory.to("cpu" if interpreted else "cuda") for memory in tensors.memories(kernel)]
    given = {
        argument.name: tensors.tensor_in(memories[argument.memory], argument) if argument.is_tensor else argument.value
        for argument in kernel.arguments
    }
    module.KERNEL[kernel.grid](**given, **kernel.constants, **kernel.options)
    held = [memory.cpu().numpy().tobytes() for memory in memories]
    return [raw[: len(memory.before)] for raw, memory in zip(held, kernel.memories, strict=True)]


if __name__ == "__main__":
    main()
