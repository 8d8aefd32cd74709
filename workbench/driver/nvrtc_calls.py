"""NVRTC in a process with the simulated driver: a client that requests machine code gets PTX.

`start` loads our ``libnvrtc.so.13`` (``host_libraries/nvrtc``) before any client does. A client that opens NVRTC by
this name, as torch, cuda.bindings and programs linked with ``-lnvrtc`` do, then finds ours. One that opens NVIDIA's
file by its path with ctypes gets ours, too.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench.toolchain import tools
from workbench.toolchain.source import kept

SONAME = "libnvrtc.so.13"

_Keep = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
_open: Callable[..., Any] = ctypes._dlopen  # type: ignore[attr-defined]


def start(library: Path) -> None:
    """Load our NVRTC, ``library``, in front of NVIDIA's, if that is installed."""
    real = tools.find_library(r"libnvrtc\.so\.13[\d.]*")
    if real is None:
        return
    # NVRTC opens its builtins by name only; loading them first makes that succeed from any folder.
    for path in sorted(real.parent.glob("libnvrtc-builtins.so*")):
        ctypes.CDLL(str(path))
    if ctypes.CDLL(str(library)).workbench_nvrtc_start(os.fsencode(real), _keep):
        ctypes._dlopen = functools.partial(_ours_for_theirs, str(library))  # type: ignore[attr-defined]


def _ours_for_theirs(ours: str, name: Any, *mode: int) -> Any:
    """Open a library as ctypes does, but ``ours`` where the path is that of NVIDIA's NVRTC."""
    text = os.fsdecode(name) if isinstance(name, str | bytes | os.PathLike) else ""
    return _open(ours if Path(text).name == SONAME else name, *mode)


@_Keep
def _keep(source: bytes, name: bytes, path: int, room: int) -> int:
    """Keep a copy of a source that came as text, and write the copy's path to C memory; return 0 if it cannot be."""
    try:
        file = Path(os.fsdecode(name))
        found = os.fsencode(file.absolute() if file.is_file() else kept(source.decode(), file.name))
    except (UnicodeDecodeError, ValueError):
        return 0
    if len(found) >= room or b'"' in found or b"\\" in found:
        return 0
    ctypes.memmove(path, found + b"\0", len(found) + 1)
    return 1
