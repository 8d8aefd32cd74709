"""The place in a program's host code from which a call of the simulated driver came."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from workbench.analysis.refused_launches import HostPlace
from workbench.ptx.decode import is_installed

_OURS = str(Path(__file__).resolve().parents[1])
_STANDARD = sysconfig.get_paths()["stdlib"]
_SYSTEM = re.compile(
    r"(lib(cuda|cudart|python|ffi|c|m|dl|pthread|stdc\+\+|gcc_s)[-.\d]|ld-linux|python\d|_ctypes|_core)"
)
_LAUNCHERS = re.compile(r"(__device_stub_|_*cudaLaunch|.*\bcudaLaunch\w*[<(])")
_TOOLKIT = re.compile(r"(cuda_runtime(_api)?\.h|\.stub\.c|crt/host_runtime\.h)$")
_EXECUTABLE = 2  # ET_EXEC, whose addresses are absolute


class _Symbol(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p), ("base", ctypes.c_uint64), ("name", ctypes.c_char_p), ("begin", ctypes.c_uint64),
    )  # fmt: skip


class _Frame(NamedTuple):
    module: str
    address: int
    """Address in the module's file."""
    function: str


def calling_place(frames: Sequence[int], kernel: str) -> HostPlace | None:
    """Return the line that launched ``kernel``; ``frames`` are the return addresses of the call, innermost first.

    Code in installed packages and in the toolkit's headers is passed over. Host code without line numbers has a
    function's name.
    """
    found = tuple(_native(frames))
    named = next((HostPlace("", 0, frame.function) for frame in found if frame.function), None)
    return _line(found, kernel) or _python_line() or named


def _native(frames: Sequence[int]) -> Iterator[_Frame]:
    """Yield the frames of the program's own modules."""
    libc, symbol = ctypes.CDLL(None), _Symbol()
    for address in frames:
        if not libc.dladdr(ctypes.c_void_p(address - 1), ctypes.byref(symbol)) or not symbol.file:
            continue
        module = os.path.realpath(os.fsdecode(symbol.file))
        if _SYSTEM.match(os.path.basename(module)) or is_installed(module) or module.startswith(_OURS):
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
    """Return the innermost line of the frames that is neither a launcher's nor the kernel's own stub."""
    tool = shutil.which("addr2line")
    if tool is None:
        return None
    stub = re.compile(rf"(.*[ :])?{re.escape(kernel)}\s*[<(]")
    for module, group in groupby(frames, key=lambda frame: frame.module):
        command = [tool, "-e", module, "-f", "-C", "-i", *(hex(frame.address) for frame in group)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        lines = done.stdout.splitlines()
        for function, place in zip(lines[::2], lines[1::2], strict=False):
            file, _, number = place.partition(" (discriminator")[0].rpartition(":")
            skipped = _LAUNCHERS.match(function) or stub.match(function) or _TOOLKIT.search(file) or is_installed(file)
            if number.isdigit() and int(number) and not skipped:
                return HostPlace(file, int(number), function.partition("(")[0])
    return None


def _python_line() -> HostPlace | None:
    """Return the innermost line of Python that is the program's own."""
    frame = sys._getframe()
    while frame is not None:
        file = frame.f_code.co_filename
        ours = os.path.realpath(file).startswith((_OURS, _STANDARD))
        if not (ours or file.startswith("<") or is_installed(file)):
            return HostPlace(file, frame.f_lineno, frame.f_code.co_name.strip("<>"))
        frame = frame.f_back  # type: ignore[assignment]
    return None
