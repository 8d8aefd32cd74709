"""Parts of a pipeline: stretches of warps, phases of mbarriers, copies, products, columns and stages, in cycles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Waited = Literal["mbarrier", "barrier", "products"]
Held = Literal["empty", "filling", "full", "read"]


@dataclass(frozen=True, slots=True)
class PipelineEvent:
    """An event of one warp for which another may wait, or the end of a wait; ``warp`` is -1 for one of another block.

    The meaning of the numbers depends on ``kind``; a number without a meaning is None:

    * "arrive" at the mbarrier at offset ``at``, in its phase ``phase`` (from 0): ``count`` arrivals, which expect
      ``bytes`` more; "arrive_late" is such an arrival once the warp's cp.async have landed
    * "copy" of ``bytes`` to offset ``to``, which that phase counts
    * "pass": the warp found that phase complete; -1 is the one before the first; its lanes are the bits of ``count``
    * "product" number ``phase`` of warp group ``at``: ``count`` columns, B at offset ``to``, A at ``operand`` (None: in
      registers); "wait_products": those before number ``phase`` are over
    * "multiply": a product in tensor memory of ``count`` columns, B at offset ``to``, A at ``operand`` (None: in tensor
      memory); "arrive_committed" is an arrival once those that the warp issued before are over
    * "hold", "give_back": ``count`` columns of tensor memory from column ``at`` on are allocated, or free again
    * "meet" at barrier ``at``, for its ``phase``-th time, and wait there; "come" is an arrival without waiting
    * "end" of the warp; "complete", with ``warp`` -1: that phase of the mbarrier is over

    ``tick`` is the number of instructions that the warp had issued, without those from a failed poll to its success.
    ``ptx_line`` is the event's line in the PTX (0: the warp's end).
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
class PipelineSpan:
    """A stretch of a warp's time in cycles, from ``start`` to before ``end``. ``kind`` is "run" or "wait".

    For a wait, ``on`` is "mbarrier", "barrier" or "products", ``name`` the name of the barrier ("" for products),
    ``phase`` that of the mbarrier, ``kernel_line`` the line in the kernel's own file. For a run they are None, "", -1
    and 0.
    """

    warp: int
    start: int
    end: int
    kind: Literal["run", "wait"]
    on: Waited | None = None
    name: str = ""
    phase: int = -1
    kernel_line: int = 0


@dataclass(frozen=True, slots=True)
class Phase:
    """Phase ``number`` (from 0) of the mbarrier at offset ``mbarrier``: when it began and was complete, in cycles.

    ``completed`` is None for a phase that the block left unfinished. ``arrivals`` is the number of arrivals,
    ``expected_bytes`` the bytes that they announced, ``bytes`` those that copies brought.
    """

    mbarrier: int
    name: str
    number: int
    began: int
    completed: int | None
    arrivals: int
    expected_bytes: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Copy:
    """A bulk copy of ``bytes`` bytes to offset ``to`` of shared memory, counted by phase ``phase`` of ``mbarrier``."""

    warp: int
    issued: int
    landed: int
    bytes: int
    to: int
    mbarrier: int
    phase: int
    kernel_line: int


@dataclass(frozen=True, slots=True)
class Product:
    """One wgmma, or tcgen05.mma, that warp group ``group`` issued.

    ``columns`` is its N, ``operands`` are the offsets of A (if in shared memory) and B.
    """

    group: int
    number: int
    issued: int
    start: int
    end: int
    columns: int
    operands: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HeldColumns:
    """A stretch of time in which the block holds so many columns of tensor memory, in cycles."""

    start: int
    end: int
    columns: int


@dataclass(frozen=True, slots=True)
class StageState:
    """State of a stage from ``start`` to before ``end``, in cycles.

    ``fill`` is the number of the fill that it holds, counted over all stages in the order of issue, from 0; -1 if the
    stage is empty.
    """

    state: Held
    start: int
    end: int
    fill: int


@dataclass(frozen=True, slots=True)
class PipelineStage:
    """Shared memory that copies fill again and again, identified by the mbarrier that counts their bytes.

    It is "filling" from the issue of the first copy until the last one lands, and "full" until a warp has seen that. It
    is "read" until the mbarrier is complete for which its producer waits before the next fill (without one: until the
    last product that reads it ends), and otherwise "empty".
    """

    mbarrier: int
    name: str
    states: tuple[StageState, ...] = field(repr=False)
