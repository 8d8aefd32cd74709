"""Recordings of pipelines made by hand."""

from __future__ import annotations

from workbench.ptx.pipeline_parts import PipelineEvent
from workbench.ptx.recording import Recording


def recorded(*rows: tuple, warps: int = 2, mbarriers: dict[int, str] | None = None) -> Recording:
    """Of rows (warp, kind, at, phase, tick) and what else there is. Phases are over that anybody arrived in."""
    events = []
    for warp, kind, at, phase, tick, *more in rows:
        numbers = {"count": 1, "bytes": 0, "to": 0, "operand": None} | dict(*more)
        events.append(PipelineEvent(warp, kind, at, phase, tick=tick, source="", source_line=0, kernel_source="",
                                    kernel_line=7, **numbers))  # fmt: skip
        if kind == "arrive":
            events.append(PipelineEvent(-1, "complete", at, phase, 0, 0, 0, None, 0, "", 0, "", 0))
    return Recording((0, 0, 0), warps, (), (), False, tuple(events), mbarriers or {0: "full", 8: "empty"})


FULL, EMPTY, TILE = 0, 8, 1024
# Warp 0 fills a stage twice, warp 1 reads it, three instructions and more each time.
TWICE = recorded(
    (0, "pass", EMPTY, -1, 4),
    (0, "arrive", FULL, 0, 5, {"bytes": 64}),
    (0, "copy", FULL, 0, 6, {"bytes": 64, "to": TILE}),
    (1, "pass", FULL, 0, 3),
    (1, "arrive", EMPTY, 0, 10),
    (0, "pass", EMPTY, 0, 8),
    (0, "arrive", FULL, 1, 9, {"bytes": 64}),
    (0, "copy", FULL, 1, 10, {"bytes": 64, "to": TILE}),
    (0, "end", 0, 0, 12),
    (1, "pass", FULL, 1, 12),
    (1, "arrive", EMPTY, 1, 15),
    (1, "end", 0, 0, 16),
)
