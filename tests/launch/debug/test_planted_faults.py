"""Twelve kernels with a planted fault: at most four commands lead from a wrong element to the guilty line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import sessions
import torch

import workbench as wb
from workbench.launch.debug import DebugPlace, DebugSession

LINES = {
    int(line.rsplit("FAULT ", 1)[1]): number
    for number, line in enumerate((sessions.HERE / "faults.cu").read_text().splitlines(), 1)
    if "// FAULT " in line
}


def launched(name: str, grid: int, block: int, args: Sequence[Any], **options: Any) -> DebugSession:
    kernel = getattr(sessions.module("faults.cu"), name)
    return wb.debug(kernel, grid=grid, block=block, args=args, **options)


def wrong_element(session: DebugSession, name: str, wanted: torch.Tensor) -> str:
    """The first element of a result that differs from the reference, after a run to the end."""
    assert session.to_end().status == "ended"
    differs = ~torch.isclose(session.tensor(name).float(), wanted.float(), atol=1e-5, equal_nan=True)
    return f"{name}{differs.nonzero()[0].tolist()}"


def wrong_index() -> tuple[DebugSession, DebugPlace]:
    x, y = torch.randn(4, 6), torch.zeros(6, 4)
    session = launched("wrong_index", 4, 32, (y, x, 4, 6))
    return session, session.last_write(wrong_element(session, "y", x.T))


def stale_tile() -> tuple[DebugSession, DebugPlace]:
    session = launched("stale_tile", 1, 64, (torch.zeros(64), torch.randn(256), 4), checks=True)
    place = session.go("finding")
    assert place.finding is not None
    assert place.finding.other_kernel_line == place.line + 3  # the loop that reads
    return session, place


def missing_mask() -> tuple[DebugSession, DebugPlace]:
    session = launched("missing_mask", 3, 32, (torch.zeros(3), torch.randn(4, 40), 40))
    return session, session.go(f"{LINES[3]} if c >= 40")


def wrong_head() -> tuple[DebugSession, DebugPlace]:
    keys, y = torch.randn(2, 32), torch.zeros(8, 32)
    session = launched("wrong_head", 8, 32, (y, keys, 2, 8))
    session.last_write(wrong_element(session, "y", 2 * keys.repeat_interleave(4, 0)))
    return session, session.last_write("from")


def overflowed_offset() -> tuple[DebugSession, DebugPlace]:
    session = launched("overflowed_offset", 1, 32, (torch.zeros(32), torch.zeros(8), 200_000_000))
    place = session.to_end()
    assert place.status == "fault"
    assert place.finding.kind == "out-of-bounds"
    place = session.last_write("offset", lane=11)
    assert session.evaluate("%r1 * %r2")[11] > 2**31
    return session, place


def lost_rescale() -> tuple[DebugSession, DebugPlace]:
    scores, y = torch.randn(32, 5), torch.zeros(32)
    session = launched("lost_rescale", 1, 32, (y, scores, 5))
    wanted = (scores - scores.amax(1, keepdim=True)).exp().sum(1)
    session.last_write(wrong_element(session, "y", wanted))
    return session, session.last_write("sum")


def wrong_phase() -> tuple[DebugSession, DebugPlace]:
    session = launched("wrong_phase", 1, 64, (torch.zeros(32), torch.zeros(32)))
    place = session.to_end()
    assert place.finding.kind == "deadlock"
    (wait,) = session.waits()
    assert "warp 1, lanes 0-31, waits: full lacks 32 of 32 arrivals" in wait
    return session, place


def aliased() -> tuple[DebugSession, DebugPlace]:
    x = torch.arange(64.0) ** 2
    wanted = x - torch.cat((torch.zeros(1), x[:-1]))
    session = launched("aliased", 1, 32, (x, x, 64))
    assert session.last_write(wrong_element(session, "y", wanted)).why.endswith("y[32]")
    return session, session.go_back("read x[31]")  # which has been overwritten by then


def zero_times_infinity() -> tuple[DebugSession, DebugPlace]:
    values = torch.ones(3, 32)
    values[2] = float("inf")
    session = launched("zero_times_infinity", 1, 32, (torch.zeros(32), torch.tensor([0.5, 0.5, 0]), values, 3))
    place = session.go("nan")
    assert {float(one.values[0]) for one in session.operands().values() if one.type == "f32"} == {0, 1, float("inf")}
    return session, place


def half_overflow() -> tuple[DebugSession, DebugPlace]:
    session = launched("half_overflow", 1, 32, (torch.zeros(32), torch.arange(32.0), 60_000.0))
    place = session.go("inf")
    assert place.lanes == tuple(range(32))
    assert session.evaluate("scaled")[1:3].tolist() == [60_000, 120_000]
    return session, place


def bfloat_sum() -> tuple[DebugSession, DebugPlace]:
    x = torch.full((600, 32), 0.5)
    session = launched("bfloat_sum", 1, 32, (torch.zeros(32), x, 600))
    session.last_write(wrong_element(session, "y", x.sum(0)))
    return session, session.last_write("total")


def wrong_scale() -> tuple[DebugSession, DebugPlace]:
    codes, scales, y = torch.randint(1, 100, (4, 32), dtype=torch.int8), torch.rand(4), torch.zeros(4, 32)
    session = launched("wrong_scale", 4, 32, (y, codes, scales, 32))
    session.last_write(wrong_element(session, "y", codes * scales[:, None]))
    return session, session.last_write("scale")


FAULTS: tuple[Callable[[], tuple[DebugSession, DebugPlace]], ...] = (
    wrong_index, stale_tile, missing_mask, wrong_head, overflowed_offset, lost_rescale,
    wrong_phase, aliased, zero_times_infinity, half_overflow, bfloat_sum, wrong_scale,
)  # fmt: skip


@pytest.mark.parametrize("number", range(1, len(FAULTS) + 1), ids=lambda number: FAULTS[number - 1].__name__)
def test_a_session_finds_the_guilty_line(number):
    torch.manual_seed(0)
    session, place = FAULTS[number - 1]()
    with session:
        assert place.line == LINES[number], place
