"""Runs that the views are tested on: each kernel is compiled and run once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

import workbench as wb
from workbench import ptx
from workbench.launch import Trace
from workbench.ptx.recording import Recording, WarpRequest

TRANSPOSES = Path(__file__).parents[1] / "ptx" / "suite" / "transposes.cu"
SIZE = 64


@cache
def transpose(name: str) -> Trace:
    """One of the transposes of a 64 x 64 matrix, block (0, 0) recorded."""
    matrix = np.arange(SIZE * SIZE, dtype=np.float32)
    kernel = wb.load_cuda(TRANSPOSES, device="sim")[f"transpose_{name}"]
    arguments = [np.zeros_like(matrix), matrix, SIZE, SIZE]
    return wb.trace_kernel(kernel, grid=(2, 2), block=(32, 8), args=arguments, record_block=0)


@cache
def attention(variant: str) -> Trace:
    """A variant of paged attention on the quick case; block (0, 3) has a long sequence."""
    return wb.trace("paged_attention", variant=variant, record_block=(0, 3, 0))


def line_of(trace: Trace, text: str) -> int:
    """The number of the first line with facts that contains the text."""
    return next(line.line for line in trace.lines if text in line.text)


def requests_of(recording: Recording, space: str, line: int) -> list[WarpRequest]:
    return [one for one in recording.requests if one.space == space and one.kernel_line == line]


def request(addresses, size: int, space: str = "global", *, load: bool = True, **more) -> WarpRequest:
    """A request made by hand; what the machine would count (sectors, wavefronts) is left at 0."""
    lanes = tuple(addresses) + (None,) * (32 - len(addresses))
    place = {"source": "hand.cu", "source_line": 7, "kernel_source": "hand.cu", "kernel_line": 7}
    buffer = None if space == "shared" else "argument 0"
    values = {"order": 0, "warp": 0, "pc": 0, "ptx_line": 20, "text": "ld", **place, "space": space}
    values |= {"is_load": load, "is_store": not load, "bytes_per_lane": size, "addresses": lanes, "buffer": buffer}
    return WarpRequest(**values, **{"sectors": 0, "wavefronts": 0, "ideal_wavefronts": 0} | more)


def spans(*rows: tuple) -> Recording:
    """A recording of (warp, start, end, kind, barrier, line) alone."""
    made = tuple(
        ptx.WarpSpan(warp, start, end, kind, barrier, "hand.cu", line, "hand.cu", line)
        for warp, start, end, kind, barrier, line in rows
    )
    return Recording((0, 0, 0), 1 + max(span.warp for span in made), (), made)
