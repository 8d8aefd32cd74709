"""Lines of the host's code, in Python and in C++, that call the simulated driver."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

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
_LIBRARIES = ("libcuda", "libcublas", "libcurand", "libcupti")  # ours
_STANDARD = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})


class HostPlace(NamedTuple):
    """A line of the host's code."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


def python_place() -> HostPlace | None:
    """Return the innermost line of Python outside torch, Triton and the like that made the current call.

    A thread without Python code, such as autograd's, has the line where the main thread is. None if there is neither.
    """
    found = _outside(sys._getframe(1))
    main = threading.main_thread().ident
    if found is None and main is not None and threading.get_ident() != main:
        found = _outside(sys._current_frames().get(main))
    return found


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


class _Symbol(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("at", ctypes.c_void_p),
    )


@functools.cache
def native_place(frames: Sequence[int]) -> HostPlace | None:
    """Return the innermost line of a program's own code among return addresses, by its debug information.

    None if the program was compiled without it.
    """
    for address in frames:
        found = _Symbol()
        if not ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(found)) or not found.file:
            continue
        module = Path(found.file.decode(errors="replace"))
        if module.name.startswith(_LIBRARIES) or is_installed(module) or module == Path(sys.executable).resolve():
            continue
        place = _line_of(module, address - 1 - (found.base or 0))
        if place is not None:
            return place
    return None


def _line_of(module: Path, offset: int) -> HostPlace | None:
    """Return the line of an offset in an ELF file; of inlined code the innermost that is not a library's."""
    command = ["addr2line", "-i", "-e", str(module), hex(offset)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):  # no binutils: no line
        return None
    for text in done.stdout.splitlines():
        file, _, line = text.split(" (discriminator")[0].rpartition(":")
        if line.isdecimal() and int(line) and not is_installed(file):
            return HostPlace(file, int(line))
    return None
