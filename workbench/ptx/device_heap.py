"""The heap of kernels, from which malloc takes inside them, and what of it nobody has freed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.ptx.decode import readable
from workbench.ptx.findings import place_of
from workbench.ptx.machine import core

if TYPE_CHECKING:
    from workbench.ptx.kernel import DecodedKernel

HEAP_BYTES = 8 << 20
"""The bytes that kernels may take at a time, as CUDA has it unless cudaLimitMallocHeapSize says otherwise."""
HEAP_SPAN = core.HEAP_SPAN
"""How many times as many addresses a heap takes, as its blocks stand apart and are not given out again soon."""


class DeviceHeap:
    """A heap that outlives launches, at ``address``, of which kernels may hold ``limit`` bytes at a time."""

    def __init__(self, address: int, limit: int = HEAP_BYTES):
        self.core = core.DeviceHeap(address, limit)
        self._kernels: list[DecodedKernel] = []

    @property
    def row(self) -> tuple[int, int, int, bool, int]:
        """The heap as a launch takes memory: address, bytes, address here, writable, where its marks are."""
        return self.core.row

    def begin(self, kernel: DecodedKernel) -> int:
        """Return the number by which the heap remembers what a kernel takes."""
        if kernel not in self._kernels:
            self._kernels.append(kernel)
        return self._kernels.index(kernel)

    def leaks(self) -> list[str]:
        """Return a line for each instruction of whose blocks some were never freed."""
        rows: list[tuple[int, int, int, int]] = self.core.leaks()
        return [
            f"{readable(self._kernels[number].name)}: {_counted(blocks, 'block')} of malloc, {bytes_:,} bytes "
            f"together, never freed: {place_of(self._kernels[number], pc)}"
            for number, pc, blocks, bytes_ in rows
        ]


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' if count != 1 else ''}"
