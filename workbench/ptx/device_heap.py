"""The heap for malloc in kernels, and the blocks of it that were never freed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.ptx.decode import readable
from workbench.ptx.findings import place_of
from workbench.ptx.machine import core

if TYPE_CHECKING:
    from workbench.ptx.kernel import DecodedKernel

HEAP_BYTES = 8 << 20
"""Bytes that kernels may hold at a time: CUDA's default of cudaLimitMallocHeapSize."""
HEAP_SPAN = core.HEAP_SPAN
"""Ratio of a heap's address range to its limit: blocks lie apart, and a freed block is not reused soon."""


class DeviceHeap:
    """A heap that outlives launches, at ``address``, of which kernels may hold ``limit`` bytes at a time."""

    def __init__(self, address: int, limit: int = HEAP_BYTES):
        self.core = core.DeviceHeap(address, limit)
        self._kernels: list[DecodedKernel] = []

    @property
    def row(self) -> tuple[int, int, int, bool, int]:
        """Memory of the heap as a launch takes it: address, bytes, address here, writable, address of its marks."""
        return self.core.row

    def begin(self, kernel: DecodedKernel) -> int:
        """Return the number under which the heap records the blocks of a kernel."""
        if kernel not in self._kernels:
            self._kernels.append(kernel)
        return self._kernels.index(kernel)

    def leaks(self) -> list[str]:
        """Return a line for each instruction that allocated blocks which were never freed."""
        rows: list[tuple[int, int, int, int]] = self.core.leaks()
        return [
            f"{readable(self._kernels[number].name)}: {_counted(blocks, 'block')} of malloc, {bytes_:,} bytes "
            f"together, never freed: {place_of(self._kernels[number], pc)}"
            for number, pc, blocks, bytes_ in rows
        ]


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' if count != 1 else ''}"
