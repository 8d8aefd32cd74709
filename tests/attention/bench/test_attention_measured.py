"""Measuring a cell, on the CPU with a clock that says what it is told: who is timed, who is not, and why."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from workbench.attention.bench.paged_attention import BenchmarkCell
from workbench.attention.bench.paged_attention.contender import GpuLostError, Ours, Prepared
from workbench.attention.bench.paged_attention.ledger import TIME_IS_UP
from workbench.attention.bench.paged_attention.measured import Measurer
from workbench.attention.bench.paged_attention.peers import FlashInfer, TorchSdpa
from workbench.attention.ops.paged_attention import OP
from workbench.launch import devices
from workbench.tuning.measuring.gpu_timing import LEAST_SAMPLES

CELL = BenchmarkCell(8, 2, num_seqs=3, context=64, head_size=64)
GB = 10**9


class ToldClock:
    """Every sample runs the contender and takes as long as its name says; the wall clock goes on with it."""

    method = "told"

    def __init__(self):
        self.wall, self.seconds, self.order = 0.0, 1e-3, []

    def prepare(self, run):
        return run

    def load(self, prepared):
        pass

    def sample(self, prepared):
        prepared()
        self.order.append(prepared)
        self.wall += self.seconds
        return self.seconds

    def now(self):
        return self.wall


class Odd:
    """SDPA over gathered pages, with something wrong after so many runs."""

    about, is_ours, tunes, form, missing = "odd", False, False, "gathered", ""

    def __init__(self, name, happens, after=0, label=""):
        self.name, self.happens, self.after, self.label = name, happens, after, label

    def ways(self, cell):
        return (self,)

    def refuses(self, cell, arch):
        return ""

    def code(self, cell):
        return cell.context

    def prepare(self, inputs, device):
        right, runs = TorchSdpa(True).prepare(inputs, device), []

        def compute():
            runs.append(1)
            out = right.compute()
            return self.happens(out) if len(runs) > self.after else out

        return Prepared(compute)


class Several:
    """A contender of several `Odd` ways; the clock takes as long as their labels say."""

    about, is_ours, missing = "several", False, ""

    def __init__(self, name, *ways, tunes=False):
        self.name, self._ways, self.tunes = name, ways, tunes

    def ways(self, cell):
        return self._ways


class WayClock(ToldClock):
    """A sample takes as many milliseconds as the label of the way that it runs says."""

    def prepare(self, run):
        label = run.__self__.config["label"]
        return lambda: (run(), label)[1]

    def sample(self, prepared):
        seconds = 1e-3 * float(prepared())
        self.wall += seconds
        return seconds


def way(milliseconds, happens=torch.clone, **options):
    """An `Odd` way that takes so long."""

    class Labelled(Odd):
        def prepare(self, inputs, device):
            return dataclasses.replace(super().prepare(inputs, device), config={"label": self.label})

    return Labelled("way", happens, label=str(milliseconds), **options)


def spoiled(out):
    out = out.clone()
    out[1] = 0
    return out


def raising(out):
    raise RuntimeError("CUDA error: an illegal memory access\nand more")


def measurer(clock=None, **changes):
    clock = clock or ToldClock()
    settings = {"deadline": 1e9, "budget": 1e9, "free_bytes": lambda: 80 * GB}
    return Measurer(devices.get("sim"), "cpu", clock, clock.now, **settings | changes)


def test_everyone_is_checked_and_timed_in_turns():
    clock = ToldClock()
    contenders = [TorchSdpa(True), TorchSdpa(False), Ours(OP.variant("cuda_partitioned"))]
    rows = measurer(clock)(CELL, contenders)
    assert [row.contender for row in rows] == [one.name for one in contenders]
    for row in rows:
        assert (row.outcome, row.seconds, row.samples) == ("measured", 1e-3, LEAST_SAMPLES), row
        assert 0 <= row.max_error <= row.error_bound
        assert row.minimum_bytes == CELL.minimum_bytes
    assert rows[2].is_ours
    assert rows[2].config["PARTITION_SIZE"] == 128
    assert clock.order[:3] != clock.order[3:6], "each round begins with another"


def test_a_wrong_result_has_no_time_whenever_it_shows():
    contenders = [TorchSdpa(True), Odd("at once", spoiled), Odd("now and then", spoiled, after=5)]
    right, at_once, now_and_then = measurer()(CELL, contenders)
    assert right.outcome == "measured"
    for row in (at_once, now_and_then):
        assert (row.outcome, row.seconds) == ("wrong", None)
        assert row.max_error > row.error_bound or "WRONG" in row.note
    assert "repeated runs" in now_and_then.note


def test_what_raises_has_failed_and_the_others_go_on():
    failed, right = measurer()(CELL, [Odd("raises", raising), TorchSdpa(True)])
    assert (failed.outcome, failed.note) == ("failed", "RuntimeError: CUDA error: an illegal memory access")
    assert right.outcome == "measured"


def test_a_lost_device_ends_it_with_the_rows_so_far():
    with pytest.raises(GpuLostError, match="raises") as caught:
        measurer(lost=lambda: True)(CELL, [TorchSdpa(True), Odd("raises", raising)])
    assert [row.outcome for row in caught.value.rows] == ["blank", "failed"]


@pytest.mark.parametrize(
    ("free", "outcomes"),
    [(80, "mmm"), (5, "mmm"), (4.00001, "bbm"), (3.9, "bbb")],
    ids=["plenty", "both", "one", "none"],
)
def test_what_does_not_fit_stays_blank(free, outcomes):
    """4 GiB are kept free; the cell takes 0.1 MB, a gathered copy as much again, shared by those that read it."""
    contenders = [TorchSdpa(True), TorchSdpa(False), Ours(OP.variant("torch"))]
    free_bytes = (4 << 30) + int((free - 4) * GB) + CELL.kv_bytes
    rows = measurer(free_bytes=lambda: free_bytes)(CELL, contenders)
    assert "".join(row.outcome[0] for row in rows) == outcomes
    assert all("GB too few" in row.note for row in rows if row.outcome == "blank")


def test_what_is_not_there_says_so(monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", _not_found)
    (row,) = measurer()(CELL, [FlashInfer()])
    assert (row.outcome, row.note) == ("blank", "flashinfer-python is not installed")


def _not_found(name):
    import importlib.metadata

    raise importlib.metadata.PackageNotFoundError(name)


def test_a_contender_that_compiles_for_long_sits_out_and_the_time_ends_the_cell():
    clock = ToldClock()
    measure = measurer(clock, budget=100.0, deadline=200.0)

    class Slow(Odd):
        def prepare(self, inputs, device):
            clock.wall += 30
            return super().prepare(inputs, device)

    slow = Slow("slow", torch.clone)
    first = measure(CELL, [slow, TorchSdpa(True)])
    assert [row.outcome for row in first] == ["measured", "measured"]
    assert first[0].prepare_seconds == pytest.approx(30)
    assert [row.outcome for row in measure(CELL, [slow])] == ["measured"], "what is compiled is no reason"
    second = measure(dataclasses.replace(CELL, context=128), [slow, TorchSdpa(True)])
    assert [row.outcome for row in second] == ["blank", "measured"]
    assert "compiling" in second[0].note
    clock.wall = 201
    assert [row.note for row in measure(CELL, [TorchSdpa(True)])] == [TIME_IS_UP]


def test_a_noisy_cell_stops_at_its_share_of_the_time():
    class Noisy(ToldClock):
        def sample(self, prepared):
            self.seconds = 0.5 + self.wall % 0.3
            return super().sample(prepared)

    (row,) = measurer(Noisy())(CELL, [TorchSdpa(True)])
    assert row.outcome == "measured"
    assert row.samples == LEAST_SAMPLES
    assert row.spread_seconds > 0


def test_the_fastest_way_that_is_right_counts_and_the_row_says_what_became_of_the_others():
    ways = [way(3), way(1, spoiled), way(2), way(4, raising), way(0.5, spoiled, after=8), way(0.1)]
    ways[-1].refuses = lambda cell, arch: "not on Sundays"
    row, single = measurer(WayClock())(CELL, [Several("x", *ways), Several("y", way(7))])
    assert (row.outcome, row.way, row.config, row.seconds) == ("measured", "2", {"label": "2"}, pytest.approx(2e-3))
    assert row.ways == {"3": pytest.approx(3e-3), "2": pytest.approx(2e-3)}
    first, *rest = row.note.split("; ")
    assert first.startswith("1: wrong, WRONG: error")
    assert rest[0] == "4: failed, RuntimeError: CUDA error: an illegal memory access"
    assert "repeated runs" in rest[1]
    assert rest[2] == "0.1: not on Sundays"
    assert not row.unfinished
    assert (single.way, single.note, single.ways) == ("7", "", {})


@pytest.mark.parametrize(
    ("happens", "outcome", "note"),
    [
        ((raising, spoiled), "wrong", "1: failed, RuntimeError: CUDA error: an illegal memory access; 2: wrong, WRONG"),
        ((raising, raising), "failed", "RuntimeError: CUDA error: an illegal memory access"),
    ],
)
def test_without_a_right_way_the_worst_is_said(happens, outcome, note):
    (row,) = measurer(WayClock())(CELL, [Several("x", way(1, happens[0]), way(2, happens[1]))])
    assert (row.outcome, row.seconds, row.way) == (outcome, None, "")
    assert row.note.startswith(note)


def test_what_is_left_to_a_model_s_weights_is_in_the_checked_result():
    class Scaled(Odd):
        def prepare(self, inputs, device):
            return dataclasses.replace(super().prepare(inputs, device), factor=4.0)

    right, wrong = measurer()(CELL, [Scaled("right", lambda out: out / 4), Scaled("wrong", torch.clone)])
    assert (right.outcome, wrong.outcome) == ("measured", "wrong")


def slow_way(clock, milliseconds, seconds):
    """A way whose code is its own, and takes so long to compile."""
    made = way(milliseconds)
    prepare = made.prepare

    def slowly(inputs, device):
        clock.wall += seconds
        return prepare(inputs, device)

    made.prepare, made.code = slowly, lambda cell: (cell, milliseconds)
    return made


def test_a_contender_that_tunes_goes_on_with_its_best_way_when_compiling_has_taken_long():
    clock = WayClock()
    measure = measurer(clock, budget=100.0)
    one = Several("tunes", slow_way(clock, 3, 1), slow_way(clock, 1, 6), slow_way(clock, 2, 6), tunes=True)
    (first,) = measure(CELL, [one])
    assert (first.way, sorted(first.ways)) == ("1", ["1", "2", "3"])
    (second,) = measure(dataclasses.replace(CELL, context=128), [one])
    assert (second.way, second.ways) == ("1", {"1": pytest.approx(1e-3)})
    assert "3, 2: compiling others has taken 13 s" in second.note
    assert not second.unfinished
    (third,) = measure(dataclasses.replace(CELL, context=192), [one])
    (fourth,) = measure(dataclasses.replace(CELL, context=256), [one])
    assert (third.outcome, fourth.outcome) == ("measured", "blank")
    assert fourth.unfinished, "it has its turn when the run is gone on with"
    assert "compiling it has taken 25 s" in fourth.note


def test_before_anything_was_measured_the_first_way_is_the_best():
    clock = WayClock()
    measure = measurer(clock, budget=100.0)
    one = Several("tunes", slow_way(clock, 1, 12), slow_way(clock, 2, 1), tunes=True)
    measure.preparing["tunes"] = 15.0
    (row,) = measure(CELL, [one])
    assert row.way == "1"
    assert list(row.ways) == ["1"]


def test_a_way_whose_turn_the_time_took_is_the_contender_s_turn_again():
    clock = WayClock()
    (row,) = measurer(clock, deadline=10.0)(CELL, [Several("x", slow_way(clock, 1, 11), way(2))])
    assert (row.outcome, row.note) == ("blank", TIME_IS_UP)


def test_a_lost_device_takes_the_turn_of_nobody_else():
    with pytest.raises(GpuLostError, match=r"x \(2\)") as caught:
        measurer(WayClock(), lost=lambda: True)(CELL, [Several("x", way(1), way(2, raising)), Several("y", way(3))])
    lost, other = caught.value.rows
    assert (lost.outcome, lost.unfinished) == ("failed", False)
    assert (other.outcome, other.unfinished) == ("blank", True)
    assert "before its turn" in other.note


def test_a_fault_that_shows_while_sampling_is_everybody_s():
    late = Odd("late", raising, after=1)
    rows = measurer()(CELL, [late, TorchSdpa(True)])
    assert [row.outcome for row in rows] == ["failed", "failed"]
    with pytest.raises(GpuLostError, match="late or torch_sdpa"):
        measurer(lost=lambda: True)(CELL, [Odd("late", raising, after=1), TorchSdpa(True)])


def test_a_configuration_that_is_not_legal_is_blank():
    (row,) = measurer()(dataclasses.replace(CELL, block_size=1), [Ours(OP.variant("cuda_grouped_mma"))])
    assert row.outcome == "blank"
    assert "BLOCK_SIZE >= 8" in row.note
