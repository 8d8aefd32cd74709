"""The time of blocks whose warps wait for each other: units that warps share, loops, launches; by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from recorded_pipelines import TWICE, recorded

from workbench.analysis.device_models import device_model
from workbench.analysis.prediction.block_time import CodeRates, launch_clocks, pipeline_counts
from workbench.analysis.prediction.machine_counts import Ran
from workbench.toolchain.sass_flow import Block, Instruction

MODEL = device_model("h100-sxm")


def code(*rows: tuple[int, str]) -> list[Block]:
    """One block of instructions (PTX line, name), each a clock before the next."""
    return [Block([Instruction(line, name, name, False, False, 1, 7, 0) for line, name in rows])]


def rates(*rows: tuple[int, str], ptx: str = "", times: float = 1.0) -> CodeRates:
    lines = {line: Ran("add", times) for line, _ in rows}
    return CodeRates(code(*rows), lines, ptx, MODEL)


def test_a_warp_waits_for_the_unit_that_its_own_instructions_keep_busy() -> None:
    """Of 16 lanes for special functions a scheduler has 4: a warp keeps them busy for 8 clocks, FMAs for one."""
    special, fma = rates((1, "MUFU"), (2, "MUFU"), (3, "MUFU")), rates((1, "FFMA"), (2, "FFMA"), (3, "FFMA"))
    assert special.stretch(0, 3, 3) == (17.0, [3.0, 0.0, 0.0, 0.0, 0.0, 24.0, 0.0])
    assert fma.stretch(0, 3, 3) == (3.0, [3.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0])


def test_the_lines_between_two_events() -> None:
    """Behind the first up to the second; around a loop its end and its beginning; nothing that ran is a cycle each."""
    made = rates((1, "FFMA"), (2, "MUFU"), (3, "FFMA"), (5, "FFMA"), ptx="\nagain:\n\n\n bra again;\n")
    assert made.stretch(1, 3, 2)[1][5] == 8.0
    assert made.stretch(2, 5, 2)[1][5] == 0.0
    assert made.stretch(3, 2, 2)[1][5] == 8.0  # line 5, then line 2 behind the label
    assert made.stretch(3, 4, 7) == (7.0, ())
    assert rates((1, "FFMA"), times=4.0).stretch(0, 1, 2) == (2.0, [2.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0])


class Busy:
    """Each instruction takes two cycles, of which the one unit of a scheduler is busy for ``share``; 32 bytes come in a
    cycle."""

    copy_bytes, schedulers = 32, 2

    def __init__(self, share: float):
        self.share = share

    def stretch(self, before: int, line: int, instructions: int) -> tuple[float, list[float]]:
        return 2.0 * instructions, [2.0 * instructions * self.share]


@pytest.mark.parametrize(
    ("share", "ends"),
    [
        (0.5, [20, 40, 20]),  # half each
        (1.0, [20, 40, 40]),  # one after the other
        (0.75, [20, 40, 34]),  # a third of its speed for 20 cycles
    ],
)
def test_warps_share_the_unit_of_their_scheduler(share, ends) -> None:
    """Warps 0 and 2 are of scheduler 0, warp 1 has its own; the second to come takes what the first leaves."""
    rows = [(0, "arrive", 0, 0, 10), (1, "arrive", 0, 1, 20), (2, "arrive", 8, 0, 10)]
    pipeline = recorded(*rows, *[(warp, "end", 0, 0, tick) for warp, _, _, _, tick in rows], warps=3).pipeline(
        0, Busy(share)
    )
    found = {span.warp: span.end for span in pipeline.spans}
    assert [found[warp] for warp in range(3)] == pytest.approx(ends, abs=1)


def test_instructions_that_the_assembler_left_out_take_no_time() -> None:
    class Nothing(Busy):
        def stretch(self, before: int, line: int, instructions: int) -> tuple[float, list[float]]:
            return 0.0, [0.0]

    assert recorded((0, "arrive", 0, 0, 10), (0, "end", 0, 0, 20), warps=1).pipeline(0, Nothing(0)).end == 0


def test_copies_come_one_after_the_other() -> None:
    rows = [
        (0, "arrive", 0, 0, 1, {"bytes": 640}),
        (0, "copy", 0, 0, 2, {"bytes": 320}),
        (0, "copy", 0, 0, 3, {"bytes": 320}),
    ]
    pipeline = recorded(*rows, (0, "end", 0, 0, 3), (1, "pass", 0, 0, 1), (1, "end", 0, 0, 2)).pipeline(100, Busy(0))
    assert [(copy.issued, copy.landed) for copy in pipeline.copies] == [(4, 114), (6, 124)]
    assert pipeline.end == 126


def test_a_launch_is_its_blocks_as_places_become_free() -> None:
    pipeline = {"clocks": [10, 30], "cut": [2, 1, 1], "grid": [4, 2, 1]}  # 10 10 30 30, twice
    assert launch_clocks(pipeline, 100) == 30
    assert launch_clocks(pipeline, 1) == 160
    assert launch_clocks(pipeline, 2) == 80
    assert launch_clocks({"clocks": [5, 7], "cut": [1, 2, 1], "grid": [3, 2, 1]}, 1) == 36


def test_what_is_kept_of_recorded_blocks() -> None:
    made, parts = rates((1, "FFMA")), SimpleNamespace(cut=(1, 1, 1), recordings=[TWICE], instructions=[28])
    alone = TWICE.pipeline(479, made).end
    for resident, grid in ((1, (132, 3, 1)), (2, (132, 1, 1))):  # no more than there are
        found = pipeline_counts(parts, grid, 28.0, made, MODEL, resident)
        assert found == {"clocks": [alone], "cut": [1, 1, 1], "grid": list(grid)}
    more = pipeline_counts(parts, (1, 1, 1), 42.0, made, MODEL, 1)  # the other blocks have half as much again to do
    assert more["clocks"] == [round(1.5 * alone)]


def test_a_block_that_has_nothing_to_do_has_a_time() -> None:
    assert recorded((0, "end", 0, 0, 7), warps=1).pipeline(479, Busy(0)).end == 14


def test_blocks_of_one_multiprocessor_share_it() -> None:
    """Two of a warp that keeps a unit busy half of the time go on as before, three take turns."""
    block = recorded((0, "arrive", 0, 0, 10), (0, "end", 0, 0, 10), warps=1)
    parts, clocks = SimpleNamespace(cut=(1, 1, 1), recordings=[block], instructions=[10]), []
    for resident in (1, 2, 3):
        clocks += pipeline_counts(parts, (1000, 1, 1), 10.0, Busy(0.5), MODEL, resident)["clocks"]
    assert clocks == [20, 20, 40]
