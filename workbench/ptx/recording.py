"""What one block of a launch asked of memory, request by request, when its warps ran and waited, and for whom."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from workbench.ptx.buffers import Buffer
from workbench.ptx.decode import readable
from workbench.ptx.machine import core
from workbench.ptx.pipeline import COPY_CYCLES, Pipeline, Rates, pipeline_of

if TYPE_CHECKING:
    from workbench.ptx.launch import Kernel

MAX_REQUESTS = 50_000  # of one recording, and as many spans: about 100 MB of Python objects

_KINDS = {int(kind): kind.name for kind in core.Event}


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


def unpack(
    kernel: Kernel, block: tuple[int, int, int], warps: int, result: dict[str, Any], buffers: Sequence[Buffer]
) -> Recording:
    """The recording in the core's ``result``; ``buffers`` are those of the launch, sorted by address."""
    lines: dict[int, tuple[int, str, str, int, str, int]] = {}

    def place(pc: int) -> tuple[int, str, str, int, str, int]:
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
    for row in _records(result["requests"], core.REQUEST):
        warp, flags = row["warp"], row["flags"]
        addresses = tuple(
            address if row["mask"] >> lane & 1 else None for lane, address in enumerate(row["address"].tolist())
        )
        shared = bool(flags & core.RequestFlags.shared)
        buffer = None if shared else owner(next(address for address in addresses if address is not None))
        requests.append(
            WarpRequest(
                counts[warp], warp, row["pc"], *place(row["pc"]), "shared" if shared else "global",
                bool(flags & core.RequestFlags.reads), bool(flags & core.RequestFlags.writes), row["bytes"], addresses,
                buffer, row["sectors"], row["wavefronts"], row["ideal"],
            )
        )  # fmt: skip
        counts[warp] += 1
    spans = []
    for row in _records(result["spans"], core.SPAN):
        span: Literal["run", "wait"] = "wait" if row["waiting"] else "run"
        barrier = row["barrier"] if row["pc"] >= 0 else None
        spans.append(WarpSpan(row["warp"], row["start"], row["end"], span, barrier, *place(row["pc"])[2:]))
    spans.sort(key=lambda span: (span.warp, span.start))
    events = []
    for row in _records(result["events"], core.EVENT):
        kind, moved, operand = _KINDS[row["kind"]], row["bytes"], None
        if kind == "product":
            operand, moved = None if moved == core.IN_REGISTERS else moved, 0
        line, _, source, source_line, kernel_source, kernel_line = place(row["pc"])
        events.append(
            PipelineEvent(
                row["warp"], kind, row["at"], row["phase"], row["count"], moved, row["to"], operand, row["tick"],
                source, source_line, kernel_source, kernel_line, line,
            )
        )  # fmt: skip
    used = {event.at for event in events if event.kind in ("arrive", "arrive_late", "copy", "pass")}
    variables = {at: readable(name).rsplit("::", 1)[-1] for at, name in kernel.decoded.shared_variables.items()}
    names = mbarrier_names(used, variables)
    return Recording(block, warps, tuple(requests), tuple(spans), result["truncated"], tuple(events), names)


def _records(raw: bytes, layout: Any) -> Iterator[dict[str, Any]]:
    """The core's records of that layout, field by field."""
    for values in np.frombuffer(raw, np.dtype(layout)):
        yield dict(zip(layout["names"], values.tolist(), strict=True))


def mbarrier_names(offsets: Iterable[int], variables: Mapping[int, str]) -> dict[int, str]:
    """What the source calls the mbarriers at these offsets of shared memory: ``full[1]``, else ``+1,024``.

    ``variables`` are the names of shared variables by offset. A variable that begins with an mbarrier is taken for an
    array of them as far as they stand one beside the other.
    """
    starts, names = sorted(variables), {}
    for offset in sorted(offsets):
        at = bisect_right(starts, offset) - 1
        names[offset] = f"+{offset:,}"
        if at < 0:
            continue
        index, begin = (offset - starts[at]) // 8, starts[at]
        if index == 0 or (offset - 8 in names and names[offset - 8].endswith(f"[{index - 1}]")):
            names[offset] = f"{variables[begin]}[{index}]"
        else:
            names[offset] = f"{variables[begin]}+{offset - begin:,}"
    for begin, name in variables.items():  # no array: a single one
        if names.get(begin) == f"{name}[0]" and names.get(begin + 8) != f"{name}[1]":
            names[begin] = name
    return names
