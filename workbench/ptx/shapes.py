"""The shape of a launch: grid, block and dynamic shared memory, and the rules of kernels and GPUs for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from workbench.errors import ArgumentError

Dimensions = tuple[int, int, int]

GRID_LIMIT = (2**31 - 1, 65535, 65535)
BLOCK_LIMIT = (1024, 1024, 64)


class BlockLimits(Protocol):
    """Limits of one block on an architecture."""

    @property
    def arch(self) -> str:
        """Name of the architecture, such as ``"sm_90"``."""

    @property
    def threads_per_block(self) -> int:
        """Largest number of threads in a block."""

    @property
    def shared_per_block(self) -> int:
        """Largest shared memory of a block, static and dynamic together, in bytes."""


def dimensions(name: str, value: int | Sequence[int], limit: Dimensions) -> Dimensions:
    """Return ``value`` as three numbers from 1 to ``limit``. Raises ArgumentError naming ``name``."""
    if value.__class__ is int:
        if 1 <= value <= limit[0]:
            return value, 1, 1
    elif value.__class__ is tuple and 0 < len(value) <= 3:
        x, y, z = full = value if len(value) == 3 else (*value, 1, 1)[:3]
        whole = x.__class__ is int and y.__class__ is int and z.__class__ is int
        if whole and 1 <= x <= limit[0] and 1 <= y <= limit[1] and 1 <= z <= limit[2]:
            return full
    given = tuple(value) if isinstance(value, Sequence) else (value,)
    rule = f"1 to 3 whole numbers, from 1 to {limit}"
    whole = all(isinstance(number, int | np.integer) and not isinstance(number, bool) for number in given)
    if not whole or not 1 <= len(given) <= 3:
        raise ArgumentError(name, value, rule, "Pass an int or a tuple.")
    full = x, y, z = (*map(int, given), 1, 1)[:3]
    if any(not 1 <= number <= most for number, most in zip(full, limit, strict=True)):
        remedy = "Leave out a launch of nothing." if 0 in full else "Spread the work over the other dimensions."
        raise ArgumentError(name, value, rule, remedy)
    return x, y, z


@dataclass(frozen=True)
class BlockRules:
    """Rules for the blocks in which a kernel can run; memory in bytes."""

    label: str
    static_shared: int = 0
    static_limit: int | None = None
    """Largest static shared memory that an assembler accepts; None if the code is never assembled."""
    dynamic_shared: int = 0
    """Dynamic shared memory of a launch that names none."""
    at_least: bool = False
    """True if every launch gets at least ``dynamic_shared``."""
    threads: int | None = None
    """Largest number of threads for which the code was compiled."""
    exact: bool = False
    """True if a block must have exactly ``threads``."""

    def check(
        self, grid: int | Sequence[int], block: int | Sequence[int], shared_bytes: int, limits: BlockLimits
    ) -> tuple[Dimensions, Dimensions, int]:
        """Return grid, block and dynamic shared memory of a launch.

        Raises ArgumentError for a launch that a GPU of that architecture would refuse.
        """
        grid, block = dimensions("grid", grid, GRID_LIMIT), dimensions("block", block, BLOCK_LIMIT)
        threads, most = block[0] * block[1] * block[2], limits.threads_per_block
        if self.threads is not None:
            most = min(most, self.threads)
            if self.exact and threads != self.threads:
                remedy = f"{self.label} was compiled for exactly these."
                raise ArgumentError("block", block, f"{self.threads} threads", remedy)
        if threads > most:
            bound = ", as its __launch_bounds__ say" if most == self.threads else ""
            remedy = f"{self.label} cannot run with more{bound}: use smaller blocks and more of them."
            raise ArgumentError("block", f"{threads} threads", f"at most {most}", remedy)
        if shared_bytes.__class__ is not int or shared_bytes < 0:
            if isinstance(shared_bytes, bool) or not isinstance(shared_bytes, int | np.integer) or shared_bytes < 0:
                raise ArgumentError("shared_bytes", shared_bytes, "0 or more bytes", "Pass a whole number.")
            shared_bytes = int(shared_bytes)
        if self.static_limit is not None and self.static_shared > self.static_limit:
            remedy = "Declare it extern, which is dynamic shared memory, and pass shared_bytes=."
            where, got = f"static shared memory of {self.label}", f"{self.static_shared} bytes"
            raise ArgumentError(where, got, f"at most {self.static_limit}", remedy)
        if not shared_bytes or (self.at_least and shared_bytes < self.dynamic_shared):
            shared_bytes = self.dynamic_shared
        room = limits.shared_per_block - self.static_shared
        if shared_bytes > room:
            allowed = f"at most {room} beside the kernel's own {self.static_shared} on {limits.arch}"
            raise ArgumentError("shared_bytes", shared_bytes, allowed, "Use smaller tiles.")
        return grid, block, shared_bytes
