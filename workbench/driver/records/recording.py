"""A log of all that this process does to the memory of its simulated device, which another process can repeat.

The driver's library and torch's operators write the entries (library/recording.hpp), which
`workbench.driver.records.replaying` reads. A log is bytes from a process that need not be trusted.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
from collections.abc import Iterable, Iterator
from typing import Any

from workbench.driver.library_files import library_path
from workbench.ptx.buffers import span_of

FIRST_ADDRESS, ALIGNMENT = 0x0200 << 32, 512
"""Addresses of a recorded process may begin here, or a multiple of the alignment behind."""

PASSED, NAMES = "P", "N"
_recorded = False
_PUT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(library_path()))
    library.workbench_driver_begin_addresses.argtypes = [ctypes.c_uint64]
    numbers = ctypes.POINTER(ctypes.c_uint64)
    library.workbench_driver_log.argtypes = [
        ctypes.c_uint32,
        numbers,
        ctypes.c_uint32,
        ctypes.c_char_p,
        ctypes.c_uint64,
    ]
    return library


def start(addresses: int) -> None:
    """Record this process from here on; its device's memory begins at ``addresses``."""
    _library().workbench_driver_begin_addresses(addresses)
    _record(True)


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Leave what happens within the block out of the log."""
    _record(False)
    try:
        yield
    finally:
        _record(True)


def take() -> bytes:
    """Return the entries since the last call, and forget them."""
    taken: list[bytes] = []

    def put(_: object, content: int, size: int) -> int:
        taken.append(ctypes.string_at(content, size) if size else b"")
        return 0

    _library().workbench_driver_take_log(None, _PUT(put))
    return taken[0]


def is_recorded() -> bool:
    """Return True if this process is recorded."""
    return _recorded


def _record(on: bool) -> None:
    global _recorded
    _recorded = on
    _library().workbench_driver_record(on)


def log_passed(tensors: Iterable[tuple[str, Any]]) -> None:
    """Add the tensors on the device, with their names, that the next launch has as arguments."""
    rows = [
        {"name": name, "type": str(one.dtype).removeprefix("torch."), "address": one.data_ptr(),
         "sizes": list(one.shape), "strides": list(one.stride())}
        for name, one in tensors if one.is_cuda and span_of(one)[1]
    ]  # fmt: skip
    _log(PASSED, rows)


def log_names(kernel: str, names: Iterable[str]) -> None:
    """Add the names of a kernel's parameters."""
    _log(NAMES, {"kernel": kernel, "names": list(names)})


def _log(kind: str, value: object) -> None:
    content = json.dumps(value).encode()
    _library().workbench_driver_log(ord(kind), None, 0, content, len(content))
