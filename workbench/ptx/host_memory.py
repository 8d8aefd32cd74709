"""The error for a launch that needs more memory than the host has."""

from __future__ import annotations

import math

from workbench.errors import HostMemoryError
from workbench.ptx.options import LaunchOptions

_Shape = tuple[int, int, int]


def without_memory(
    name: str, words: str, grid: _Shape, block: _Shape, local_bytes: int, shared_bytes: int, workers: int,
    options: LaunchOptions,
) -> HostMemoryError:  # fmt: skip
    """Make the error for a launch of kernel ``name``; ``words`` is the core's description of the failed allocation."""
    asked = [
        f"{math.prod(block)} threads per block",
        f"{local_bytes} bytes of local memory per thread",
        f"{shared_bytes} bytes of shared memory",
        f"{math.prod(grid)} blocks at once" if options.cooperative else f"blocks on up to {workers} threads",
        *["checks"] * options.checks,
        *["counts"] * options.statistics,
        *["a recording"] * (options.record_block is not None),
    ]
    missing = "" if words in ("", "std::bad_alloc") else f" for {words}"
    return HostMemoryError(
        f"{name}: the PTX machine got no memory{missing}. The launch has {', '.join(asked)}. Launch smaller blocks,"
        " run on fewer threads (threads=1), or let the process have more (ulimit -v, a container's limit)."
    )
