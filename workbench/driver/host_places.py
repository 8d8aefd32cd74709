"""Lines of the host's code, in Python and in C++, that call the simulated driver."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from workbench.analysis.places import HostPlace
from workbench.ptx.decode import is_installed

# Packages that pass a call on to the driver: the line that calls them is the one to name.
_PASS_ON = frozenset(
    (
        "torch", "functorch", "triton", "numpy", "pycuda", "pytools", "cupy", "cupyx", "cupy_backends", "numba",
        "numba_cuda", "cuda", "tinygrad", "tilelang", "cutlass", "helion", "_pytest", "pluggy", "pytest", "xdist",
    )
)  # fmt: skip
_OWN = str(Path(__file__).resolve().parent.parent)
_RUNNER = str(Path(_OWN, "programs"))  # beyond its frames lies what started the program
_SYSTEM = re.compile(
    r"(lib(cuda|cudart|cublas\w*|curand|cupti|python|ffi|c|m|dl|pthread|stdc\+\+|gcc_s)[-.\d]|ld-linux|python\d|_ctypes|_core)"
)
_LAUNCHERS = re.compile(r"(__device_stub_|_*cudaLaunch|.*\bcudaLaunch\w*[<(])")
_TOOLKIT = re.compile(r"(cuda_runtime(_api)?\.h|\.stub\.c|crt/host_runtime\.h)$")
_EXECUTABLE = 2  # ET_EXEC, whose addresses are absolute
_STANDARD = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})


class _Symbol(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p), ("base", ctypes.c_uint64), ("name", ctypes.c_char_p), ("begin", ctypes.c_uint64),
    )  # fmt: skip


class _Frame(NamedTuple):
    module: str
    address: int
    """Address in the module's file."""
    function: str


def python_place() -> HostPlace | None:
    """Return the innermost line of Python outside torch, Triton and the like that made the current call.

    A thread without Python code, such as autograd's, has the line where the main thread is. None if there is neither.
    """
    found = _outside(sys._getframe(1))
    main = threading.main_thread().ident
    if found is None and main is not None and threading.get_ident() != main:
        found = _outside(sys._current_frames().get(main))
    return found


def write_place(text: int, size: int) -> None:
    """Write the line of Python that makes the current call as a C string, "" without one, at the address ``text``."""
    content = str(python_place() or "").encode()[: size - 1] + b"\0"
    ctypes.memmove(text, content, len(content))


def _outside(frame: FrameType | None) -> HostPlace | None:
    while frame is not None and not frame.f_code.co_filename.startswith(_RUNNER):
        if not _passes_on(frame.f_code.co_filename):
            return HostPlace(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None


@functools.cache
def _passes_on(file: str) -> bool:
    if file.startswith((_OWN, "<frozen", "<__array")):
        return True
    parts = Path(file).parts
    for folder in ("site-packages", "dist-packages"):
        if folder in parts:
            package = parts[parts.index(folder) + 1]
            return package.removesuffix(".py") in _PASS_ON
    return file.startswith(_STANDARD)


def return_addresses(frames: Any, count: int) -> Sequence[int]:
    """Return the ``count`` addresses that a hook's ``frames`` point to."""
    return (ctypes.c_uint64 * count).from_address(frames)[:] if count else ()


def native_place(frames: Sequence[int], kernel: str = "") -> HostPlace | None:
    """Return the innermost line of a program's own code among return addresses, by its debug information.

    Code in installed packages and in the toolkit's headers is passed over, and so are launchers and the stub of
    ``kernel``. None if the program was compiled without lines.
    """
    return _line(tuple(_native(frames)), kernel)


def native_function(frames: Sequence[int]) -> HostPlace | None:
    """Return the innermost function of a program's own code among return addresses, where it has no lines."""
    return next((HostPlace("", 0, frame.function) for frame in _native(frames) if frame.function), None)


def _native(frames: Sequence[int]) -> Iterator[_Frame]:
    """Yield the frames of the program's own modules."""
    libc, symbol = ctypes.CDLL(None), _Symbol()
    for address in frames:
        if not libc.dladdr(ctypes.c_void_p(address - 1), ctypes.byref(symbol)) or not symbol.file:
            continue
        module = os.path.realpath(os.fsdecode(symbol.file))
        if _SYSTEM.match(os.path.basename(module)) or is_installed(module) or module.startswith(_OWN):
            continue
        base = 0 if _is_absolute(module) else symbol.base
        yield _Frame(module, address - 1 - base, (symbol.name or b"").decode(errors="replace"))


def _is_absolute(module: str) -> bool:
    try:
        with open(module, "rb") as file:
            return int.from_bytes(file.read(18)[16:], sys.byteorder) == _EXECUTABLE
    except OSError:
        return False


@functools.lru_cache
def _line(frames: tuple[_Frame, ...], kernel: str) -> HostPlace | None:
    tool = shutil.which("addr2line")
    if tool is None:
        return None
    stub = re.compile(rf"(.*[ :])?{re.escape(kernel)}\s*[<(]") if kernel else None
    for module, group in groupby(frames, key=lambda frame: frame.module):
        command = [tool, "-e", module, "-f", "-C", "-i", *(hex(frame.address) for frame in group)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        lines = done.stdout.splitlines()
        for function, place in zip(lines[::2], lines[1::2], strict=False):
            file, _, number = place.partition(" (discriminator")[0].rpartition(":")
            skipped = _LAUNCHERS.match(function) or _TOOLKIT.search(file) or is_installed(file)
            if number.isdigit() and int(number) and not skipped and not (stub and stub.match(function)):
                return HostPlace(file, int(number), function.partition("(")[0])
    return None
