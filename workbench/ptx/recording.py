"""What one block of a launch asked of memory, request by request, when its warps ran and waited, and for whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from workbench.ptx.pipeline import COPY_CYCLES, Pipeline, Rates, pipeline_of


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
class PipelineEvent:
    """What one warp did that another may wait for, or the end of a wait; ``warp`` is -1 for one of another
    block.

    ``kind`` and what the numbers are then, None where they mean nothing:

    * "arrive" at the mbarrier at offset ``at``, in its phase ``phase`` (from 0): ``count`` arrivals, which expect
      ``bytes`` more; "arrive_late" likewise, once the warp's cp.async have landed
    * "copy" of ``bytes`` to offset ``to``, which that phase counts
    * "pass": the warp found that phase complete; -1 is the one before the first; its lanes are the bits of ``count``
    * "product" number ``phase`` of warp group ``at``: ``count`` columns, B at offset ``to``, A at ``operand`` (None: in
      registers); "wait_products": those before number ``phase`` are over
    * "meet" at barrier ``at``, for its ``phase``-th time, and wait there; "come": without waiting
    * "end" of the warp; "complete", with ``warp`` -1: that phase of the mbarrier is over

    ``tick`` are the instructions that the warp had issued, those between a poll that found nothing and its success not
    counted; ``ptx_line`` is the event's own (0: the warp's end).
    """

    warp: int
    kind: str
    at: int
    phase: int
    count: int
    bytes: int
    to: int
    operand: int | None
    tick: int
    source: str
    source_line: int
    kernel_source: str
    kernel_line: int
    ptx_line: int = 0


@dataclass(frozen=True, slots=True)
class Recording:
    """One block of a launch: ``block`` (x, y, z), its ``warps``, their requests in the order in which the machine ran
    them, the spans of each warp in the order of time, and the events that a pipeline is made of, in the machine's
    order. ``mbarriers`` are the names of mbarriers by offset. ``truncated``: there were more than are kept.
    """

    block: tuple[int, int, int]
    warps: int
    requests: tuple[WarpRequest, ...] = field(repr=False)
    spans: tuple[WarpSpan, ...] = field(repr=False)
    truncated: bool = False
    events: tuple[PipelineEvent, ...] = field(default=(), repr=False)
    mbarriers: dict[int, str] = field(default_factory=dict, repr=False)

    def pipeline(self, copy_cycles: int = COPY_CYCLES, rates: Rates | None = None) -> Pipeline:
        """The block as a pipeline, by the model of `pipeline_of`, which says what it raises."""
        return pipeline_of(self, copy_cycles, rates)


@dataclass(frozen=True, slots=True)
class RecordedParts:
    """Recordings of the blocks in the middles of the equal parts of a grid, of which there are ``cut`` along x, y and
    z (:mod:`workbench.ptx.sample`), and the warp instructions of each; x goes fastest."""

    cut: tuple[int, int, int]
    recordings: tuple[Recording, ...] = field(repr=False)
    instructions: tuple[int, ...]
