"""Recording of one block of a launch: its memory requests one by one, and when its warps ran and waited, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from workbench.ptx.pipeline import COPY_CYCLES, Pipeline, Rates, pipeline_of
from workbench.ptx.pipeline_parts import PipelineEvent


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

    The clock counts the warp instructions that the warp issued. When the warp waits at a barrier, its clock moves on to
    that of the last warp that arrives there, or exits instead. ``kind`` is "run" or "wait". ``barrier`` and the source
    lines belong to the barrier that ends a run or causes a wait; None, "" and 0 for a run up to the warp's end. A warp
    with lanes that can still run does not wait.
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
    """Recording of one block of a launch.

    ``block`` is (x, y, z), ``warps`` the number of warps. ``requests`` are in the order in which the machine ran them,
    ``spans`` in the order of time for each warp, ``events``, from which a pipeline is made, in the machine's order.
    ``mbarriers`` are the names of mbarriers by offset. ``truncated`` is True if there was more than is kept.
    """

    block: tuple[int, int, int]
    warps: int
    requests: tuple[WarpRequest, ...] = field(repr=False)
    spans: tuple[WarpSpan, ...] = field(repr=False)
    truncated: bool = False
    events: tuple[PipelineEvent, ...] = field(default=(), repr=False)
    mbarriers: dict[int, str] = field(default_factory=dict, repr=False)

    def pipeline(self, copy_cycles: int = COPY_CYCLES, rates: Rates | None = None) -> Pipeline:
        """Return the block as a pipeline, by the model of `pipeline_of`. Raises as that does."""
        return pipeline_of(self.events, self.warps, self.mbarriers, copy_cycles, rates, self.truncated)


@dataclass(frozen=True, slots=True)
class RecordedParts:
    """Recordings of the blocks in the middles of the equal parts of a grid (:mod:`workbench.ptx.sample`).

    There are ``cut`` parts along x, y and z. ``instructions`` are the warp instructions of each block; x goes fastest.
    """

    cut: tuple[int, int, int]
    recordings: tuple[Recording, ...] = field(repr=False)
    instructions: tuple[int, ...]
