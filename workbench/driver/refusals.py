"""Refused launches of the driver's clients, as ``libcuda.so.1`` and the CUDA runtime report them."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

from workbench.analysis.refused_launches import RefusedLaunch
from workbench.analysis.watching import watched
from workbench.driver.host_places import native_function, native_place, python_place, return_addresses
from workbench.ptx.decode import readable

_u32, _u64 = ctypes.c_uint32, ctypes.c_uint64


class HookRefusal(ctypes.Structure):
    """A refused launch, laid out as in library/hooks.hpp; the hook writes ``number``."""

    _fields_ = (
        ("kernel", ctypes.c_char_p), ("grid", _u32 * 3), ("block", _u32 * 3), ("dynamic_shared", _u64), ("code", _u32),
        ("error", ctypes.c_char_p), ("why", ctypes.c_char_p), ("frames", ctypes.c_void_p), ("frame_count", _u32),
        ("status_is_kept", _u32), ("number", _u64),
    )  # fmt: skip


class Refusals:
    """Implementation of the hooks ``refused`` and ``fetched``: adds refused launches to the process's watch."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._waiting: dict[int, RefusedLaunch] = {}  # those whose error the program may still fetch

    def refused(self, pointer: Any) -> None:
        """Keep a refused launch, if launches are watched."""
        told: HookRefusal = pointer.contents
        watch = watched()
        if watch is None or watch.idle is not None:
            return
        mangled = told.kernel.decode(errors="replace")
        kernel = readable(mangled) if mangled else "a kernel that is not known"
        frames = return_addresses(told.frames, told.frame_count)
        why = told.why.decode(errors="replace").replace(f"{mangled}: ", "") if mangled else told.why.decode()
        launch = RefusedLaunch(
            kernel, tuple(told.grid), tuple(told.block), told.dynamic_shared, f"{why} ({told.error.decode()})",
            native_place(frames, kernel) or python_place() or native_function(frames), not told.status_is_kept,
        )  # fmt: skip
        kept = watch.refuse(launch)
        number = next((number for number, one in self._waiting.items() if one is kept), None)
        if number is None:
            number = next(self._numbers)
            self._waiting[number] = kept
        told.number = number

    def fetched(self, number: int) -> None:
        """Note that the program has read the error of a refused launch."""
        launch = self._waiting.pop(number, None)
        if launch is not None:
            launch.asked = True
