"""Reader of the core's records of one block, which makes a `Recording`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from workbench.ptx.decode import readable
from workbench.ptx.machine import core
from workbench.ptx.pipeline_parts import PipelineEvent
from workbench.ptx.recording import Recording, WarpRequest, WarpSpan

if TYPE_CHECKING:
    from workbench.ptx.buffers import Buffer
    from workbench.ptx.core_result import CoreResult
    from workbench.ptx.kernel import DecodedKernel

MAX_REQUESTS = 50_000  # limit of one recording, also for its spans: about 100 MB of Python objects

_KINDS = {int(kind): kind.name for kind in core.Event}
_AT_MBARRIERS = ("arrive", "arrive_late", "arrive_committed", "copy", "pass")


def unpack(
    kernel: DecodedKernel, block: tuple[int, int, int], warps: int, result: CoreResult, buffers: Sequence[Buffer]
) -> Recording:
    """Return the recording in the core's ``result``; ``buffers`` are those of the launch, sorted by address."""
    lines: dict[int, tuple[int, str, str, int, str, int]] = {}

    def place(pc: int) -> tuple[int, str, str, int, str, int]:
        """Return (PTX line, text, source, line, source and line in the kernel's own file) of an instruction."""
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
    for row in _records(result.requests, core.REQUEST):
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
    for row in _records(result.spans, core.SPAN):
        span: Literal["run", "wait"] = "wait" if row["waiting"] else "run"
        barrier = row["barrier"] if row["pc"] >= 0 else None
        spans.append(WarpSpan(row["warp"], row["start"], row["end"], span, barrier, *place(row["pc"])[2:]))
    spans.sort(key=lambda span: (span.warp, span.start))
    events = []
    for row in _records(result.events, core.EVENT):
        kind, moved, operand = _KINDS[row["kind"]], row["bytes"], None
        if kind in ("product", "multiply"):
            operand, moved = None if moved == core.IN_REGISTERS else moved, 0
        line, _, source, source_line, kernel_source, kernel_line = place(row["pc"])
        events.append(
            PipelineEvent(
                row["warp"], kind, row["at"], row["phase"], row["count"], moved, row["to"], operand, row["tick"],
                source, source_line, kernel_source, kernel_line, line,
            )
        )  # fmt: skip
    used = {event.at for event in events if event.kind in _AT_MBARRIERS}
    variables = {at: readable(name).rsplit("::", 1)[-1] for at, name in kernel.decoded.shared_variables.items()}
    names = mbarrier_names(used, variables)
    return Recording(block, warps, tuple(requests), tuple(spans), result.truncated, tuple(events), names)


def _records(raw: bytes, layout: Any) -> Iterator[dict[str, Any]]:
    """Yield the core's records of that layout, each as a dict of its fields."""
    for values in np.frombuffer(raw, np.dtype(layout)):
        yield dict(zip(layout["names"], values.tolist(), strict=True))


def mbarrier_names(offsets: Iterable[int], variables: Mapping[int, str]) -> dict[int, str]:
    """Return the source's names of the mbarriers at offsets of shared memory: ``full[1]``, else ``+1,024``.

    ``variables`` are the names of shared variables by offset. A variable that begins with an mbarrier counts as an
    array of mbarriers as far as they lie side by side.
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
