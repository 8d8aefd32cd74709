"""The error for a launch that needs more memory than the host has."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from workbench.errors import HostMemoryError

if TYPE_CHECKING:
    from workbench.ptx.bound import BoundLaunch
    from workbench.ptx.kernel import DecodedKernel


def without_memory(kernel: DecodedKernel, launch: BoundLaunch, words: str, workers: int) -> HostMemoryError:
    """Make the error for a launch of ``kernel`` on up to ``workers`` threads.

    ``words`` is the core's description of the failed allocation.
    """
    options, decoded = launch.options, kernel.decoded
    asked = [
        f"{math.prod(launch.block)} threads per block",
        f"{decoded.local_bytes} bytes of local memory per thread",
        f"{decoded.static_shared + launch.shared_bytes} bytes of shared memory",
        f"{math.prod(launch.grid)} blocks at once" if options.cooperative else f"blocks on up to {workers} threads",
        *["checks"] * options.checks,
        *["counts"] * options.statistics,
        *["a recording"] * (options.record_block is not None),
    ]
    missing = "" if words in ("", "std::bad_alloc") else f" for {words}"
    return HostMemoryError(
        f"{kernel.name}: the PTX machine got no memory{missing}. The launch has {', '.join(asked)}. Launch smaller"
        " blocks, run on fewer threads (threads=1), or let the process have more (ulimit -v, a container's limit)."
    )
