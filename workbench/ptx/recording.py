"""What one block of a launch asked of memory, request by request, and when its warps ran and waited."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from workbench.ptx.arguments import Buffer

if TYPE_CHECKING:
    from workbench.ptx.launch import Kernel

MAX_REQUESTS = 50_000  # of one recording, and as many spans: about 100 MB of Python objects

# As the core's RecordedRequest and RecordedSpan lay them out.
_REQUEST = np.dtype(
    [(name, "<i4") for name in ("warp", "pc")]
    + [(name, "<u4") for name in ("mask", "bytes", "flags", "sectors", "wavefronts", "ideal")]
    + [("address", "<u8", 32)]
)
_SPAN = np.dtype(
    [(name, "<i4") for name in ("warp", "pc", "barrier")] + [("waiting", "<u4"), ("start", "<u8"), ("end", "<u8")]
)
_SHARED, _READS, _WRITES = 1, 2, 4


@dataclass(frozen=True, slots=True)
class WarpRequest:
    """One memory instruction of one warp.

    ``order`` is its place among the recorded requests of its warp (from 0), ``warp`` the warp's index in the block.
    ``addresses`` has one byte address per lane, None for a lane that takes no part: an address of the machine's
    global memory, or an offset in the block's shared memory. ``buffer`` names the argument that the first active
    lane's address lies in ("argument 0"), None in shared memory. ``sectors`` are the 32-byte sectors of a global
    request; ``wavefronts`` and ``ideal_wavefronts`` those of a shared one (LineFacts says how they count). An atomic
    loads and stores. A cp.async makes two requests: a global load and a shared store.
    """

    order: int
    warp: int
    pc: int
    ptx_line: int
    text: str
    source: str
    source_line: int
    kernel_source: str
    kernel_line: int
    space: Literal["global", "shared"]
    is_load: bool
    is_store: bool
    bytes_per_lane: int
    addresses: tuple[int | None, ...] = field(repr=False)
    buffer: str | None
    sectors: int
    wavefronts: int
    ideal_wavefronts: int


@dataclass(frozen=True, slots=True)
class WarpSpan:
    """A stretch of one warp's time, from ``start`` to before ``end`` by the block's logical clock.

    The clock counts the warp instructions that the warp issued; where it waits at a barrier it moves on to the clock
    of the last warp that arrives there, or exits instead. ``kind`` is "run" or "wait". ``barrier`` and the source lines
    are of the barrier that ends a run or causes a wait; None, "" and 0 for a run up to the warp's end. A warp of which
    some lanes can still run does not wait.
    """

    warp: int
    start: int
    end: int
    kind: Literal["run", "wait"]
    barrier: int | None
    source: str
    source_line: int
    kernel_source: str
    kernel_line: int


@dataclass(frozen=True, slots=True)
class Recording:
    """One block of a launch: ``block`` (x, y, z), its ``warps``, their requests in the order in which the machine ran
    them, and the spans of each warp in the order of time. ``truncated``: there were more than are kept.
    """

    block: tuple[int, int, int]
    warps: int
    requests: tuple[WarpRequest, ...] = field(repr=False)
    spans: tuple[WarpSpan, ...] = field(repr=False)
    truncated: bool = False


def unpack(
    kernel: Kernel, block: tuple[int, int, int], warps: int, result: dict[str, Any], buffers: Sequence[Buffer]
) -> Recording:
    """The recording in the core's ``result``; ``buffers`` are those of the launch, sorted by address."""
    lines: dict[int, tuple] = {}

    def place(pc: int) -> tuple:
        """(PTX line, text, source, line, source and line in the kernel's own file) of an instruction."""
        if pc not in lines:
            statement = kernel.decoded.code[pc].statement if pc >= 0 else None
            written = (statement.line, statement.text) if statement else (0, "")
            lines[pc] = (*written, *kernel.source_of(pc), *kernel.source_of(pc, in_kernel_file=True))
        return lines[pc]

    starts = [buffer.address for buffer in buffers]

    def owner(address: int) -> str | None:
        at = bisect_right(starts, address) - 1
        return buffers[at].name if at >= 0 and address < starts[at] + buffers[at].size else None

    requests, counts = [], [0] * warps
    for row in np.frombuffer(result["requests"], _REQUEST):
        warp, pc, mask, width, flags, *costs, raw = row.tolist()
        addresses = tuple(address if mask >> lane & 1 else None for lane, address in enumerate(raw.tolist()))
        shared = bool(flags & _SHARED)
        buffer = None if shared else owner(next(address for address in addresses if address is not None))
        requests.append(
            WarpRequest(
                counts[warp], warp, pc, *place(pc), "shared" if shared else "global", bool(flags & _READS),
                bool(flags & _WRITES), width, addresses, buffer, *costs,
            )
        )  # fmt: skip
        counts[warp] += 1
    spans = []
    for row in np.frombuffer(result["spans"], _SPAN):
        warp, pc, barrier, waiting, start, end = row.tolist()
        kind = "wait" if waiting else "run"
        spans.append(WarpSpan(warp, start, end, kind, barrier if pc >= 0 else None, *place(pc)[2:]))
    spans.sort(key=lambda span: (span.warp, span.start))
    return Recording(block, warps, tuple(requests), tuple(spans), result["truncated"])
