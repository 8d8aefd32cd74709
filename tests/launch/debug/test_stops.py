"""Stops, steps and what a session shows, on a softmax; and errors that name the remedy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import sessions
import torch

import workbench as wb
from workbench.errors import ArgumentError, KernelFault, UnknownNameError

MOST, SUM, STORE = map(sessions.line_of, ("most = fmaxf(most, row[c])", "sum += expf", "y[blockIdx.x"))
LAST = len((sessions.HERE / "softmax.cu").read_text().splitlines())


@pytest.fixture(scope="module")
def session():
    with sessions.softmax() as made:
        yield made


def test_steps_go_there_and_back(session):
    first = session.goto(0)
    assert (first.line, first.block, first.warp, len(first.lanes)) == (2, (0, 0, 0), 0, 32)
    seen = [session.step() for _ in range(12)]
    assert all(one.index > before.index for before, one in zip([first, *seen], seen, strict=False))
    assert [session.back().index for _ in seen] == [one.index for one in [*reversed(seen[:-1]), session.goto(0)]]


def test_a_step_past_the_end_of_a_warp_goes_to_the_next_one(session):
    session.go(STORE, block=3, warp=0)
    places = []
    while session.where.status == "stopped" and session.where.warp == 0:
        places.append(session.step())
    assert places[-1].warp == 1
    while session.step().status == "stopped":
        pass
    assert session.where.status == "ended"
    assert session.back().line == LAST


def test_instructions_barriers_and_blocks(session):
    session.goto(0)
    assert [session.next_instruction().index, session.next_instruction(3).index] == [1, 4]
    assert session.previous_instruction(2).index == 2
    at_barrier = session.next_barrier()
    assert "bar" in at_barrier.ptx
    assert [(one.warp, one.runs) for one in session.warps()] == [(0, True), (1, False)]
    assert session.next_instruction().warp == 1
    assert session.barriers()[0].waiting == 32
    assert "32 of 64 threads have arrived; the others: warp 1" in session.waits()[0]
    assert session.next_block().block == (1, 0, 0)
    assert session.next_block().block == (2, 0, 0)


def test_lines_conditions_and_the_way_to_the_previous_stop(session):
    session.goto(0)
    stop = session.stop(f"{SUM} if lane == 5 and threadIdx.x < 32 and block == 2")
    place = session.go()
    assert (place.line, place.block, place.warp) == (SUM, (2, 0, 0), 0)
    later = session.go()
    assert later.index > place.index
    assert session.go_back().index == place.index
    assert session.go_back().index == 0
    session.remove(stop)
    assert session.go().status == "ended"


def test_a_condition_sees_registers_and_variables(session):
    session.goto(0)
    x = session.tensor("x")
    totals = (x - x.amax(1, keepdim=True)).exp().sum(1)
    largest = int(totals.argmax())
    place = session.go(f"{STORE} if total >= {totals.max() - 1e-3} and lane == 0", warp=1)
    assert place.block == (largest, 0, 0)
    assert session["total"] == pytest.approx(totals[largest].item())
    assert session.evaluate("total * 2 + lane")[3] == pytest.approx(2 * totals[largest].item() + 3)


def test_memory_by_element(session):
    session.goto(0)
    read = session.go("read x[1, 7]")
    assert (read.line, read.block) == (MOST, (1, 0, 0))
    again = session.go("read x[1, 7]")
    assert again.line == SUM
    written = session.go("write y[1, 7]")
    assert written.line == STORE
    assert float(session.tensor("y")[1, 7]) == 0
    session.next_instruction()
    assert session["y"][1, 7] == pytest.approx(float(session.tensor("x")[1].softmax(0)[7]), rel=1e-5)
    assert session.last_write("y[1, 7]").index == written.index
    part = session.last_write("part")
    assert "part[threadIdx.x / 32] = sum" in part.text
    assert session.shared("float32", (2,), at="part")[0] == session["sum"][0] or part.warp == 1


def test_who_wrote_each_element(session):
    session.goto(0)
    session.go(STORE, block=2)
    writers = session.writers("y")
    assert {at[0] for at in writers} == {0, 1}
    assert (writers[1, 65].place, writers[1, 65].block) == (f"softmax.cu:{STORE}", (1, 0, 0))
    assert writers[1, 65].thread == (1, 0, 0)
    assert session.where.block == (2, 0, 0)


def test_a_listing_shows_the_warps(session):
    session.goto(0)
    session.go(SUM)
    assert f"->{SUM:5}" in session.listing()
    assert "<- warp 0 0-31" in session.listing()


def test_triton_shows_its_lines_and_names():
    with sessions.in_triton() as session:
        lines = Path(sessions.__file__).read_text().splitlines()
        exp = 1 + next(at for at, line in enumerate(lines) if "weights = tl.exp" in line)
        assert session.go(exp).line == exp
        session.to_end()
        assert "tl.store" in session.last_write("y[1, 4]").text


def test_ops_are_debugged_by_case():
    with wb.debug(sessions.softmax_op, "wide", stop=STORE) as session:
        assert session.where.line == STORE
        session.to_end()
        assert session.last_write("y[2, 99]").block == (2, 0, 0)
    with pytest.raises(ArgumentError, match="grid: got 1"):
        wb.debug(sessions.softmax_op, grid=1)


def test_a_finished_session_gives_the_report():
    session = sessions.softmax()
    session.go(SUM)
    report = session.finish()
    with sessions.softmax() as other:
        assert other.to_end().index == report.instructions
    with pytest.raises(ArgumentError, match=r"wb\.debug"):
        session.step()


def test_a_fault_is_raised_where_the_session_finishes():
    y = torch.zeros(32)
    kernel = sessions.module("faults.cu").overflowed_offset
    session = wb.debug(kernel, grid=1, block=32, args=(y, torch.zeros(8), 200_000_000))
    with pytest.raises(KernelFault, match="out-of-bounds"):
        session.finish()


@pytest.mark.parametrize(
    ("stop", "message"),
    [
        (3, r"line: got 3; allowed: lines with code: .*stop at line \d+"),
        ("other.cu:12", r"file: got 'other\.cu'"),
        (f"{SUM} if most >", r"condition: got 'most >'; .*does not parse"),
        (f"{SUM} if undefined > 3", r"'undefined' has no value at softmax\.cu"),
        (f"{SUM} if f(most) > 3", r"there is no f\(\) of 1 values"),
        ("write z[3]", r"place: got 'z\[3\]'; allowed: y, x, part"),
        ("write y[4, 0]", r"index 4 is out of bounds for an axis of 4"),
        ("finding", r"Pass checks=True"),
        ("somewhere", r"stop: got 'somewhere'; allowed: 12, "),
    ],
)
def test_a_stop_that_is_none_names_the_remedy(session, stop, message):
    with pytest.raises(ArgumentError, match=message):
        session.stop(stop)
    assert session.stops == []


def test_other_refusals(session):
    session.goto(0)
    with pytest.raises(UnknownNameError, match="register: got 'total'"):
        session["total"]
    with pytest.raises(ArgumentError, match="nothing has written so far"):
        session.last_write("y[0, 0]")
    with pytest.raises(ArgumentError, match="1 or more"):
        session.step(0)
    with pytest.raises(ArgumentError, match="block: got"):
        session.go(SUM, block=9)
    with pytest.raises(ArgumentError, match="launch: got 2; allowed: 0 to 0"):
        sessions.softmax(launch=2)


def test_a_budget_bounds_the_history():
    with sessions.softmax(budget=2600) as session:  # for fewer places than blocks
        session.to_end()
        assert session.history_bytes <= 2600
        assert session.last_write("y[0, 0]").block == (0, 0, 0)
        assert np.count_nonzero(session["y"]) == 0
    with sessions.softmax(budget=500) as session:
        session.to_end()
        with pytest.raises(ArgumentError, match=r"budget: got 500 bytes; .*larger budget="):
            session.back()
