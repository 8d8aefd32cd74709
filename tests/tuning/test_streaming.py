"""The streaming kernel: reads everything once, 16 bytes a lane, and its ceiling is that of the fastest shape."""

from __future__ import annotations

import pytest
import torch

from workbench.errors import ArgumentError, WrongResultError
from workbench.launch.sim import Simulator
from workbench.tuning.bench import streaming

CONFIG = {"UNROLL": 4, "NUM_THREADS": 64, "BLOCKS_PER_MULTIPROCESSOR": 2}
SPACE = {"UNROLL": (4,), "NUM_THREADS": (64,), "BLOCKS_PER_MULTIPROCESSOR": (1, 2)}


def words(chunks):
    return torch.randint(-(2**31), 2**31, (chunks * 4 * 4 * 64,), dtype=torch.int32)


def test_every_byte_is_read_once_in_whole_sectors(monkeypatch):
    reports = []
    launch = Simulator.launch

    def counting(self, *args, **options):
        reports.append(launch(self, *args, **options | {"statistics": True}))
        return reports[-1]

    monkeypatch.setattr(Simulator, "launch", counting)
    data = words(chunks=7)  # three turns of two blocks, and one block more
    read, total = streaming.reader(data, CONFIG, 1, "sim")
    read()
    assert int(total) % 2**32 == int(data.sum(dtype=torch.int64)) % 2**32
    (report,) = reports
    size = data.numel() * 4
    assert report.global_load_sectors * 32 == size
    assert report.unique_bytes_read == size + 32, "and the sum that it adds to"
    assert report.global_load_requests * 512 == size, "16 bytes a lane"


def test_what_would_not_be_read_is_refused():
    with pytest.raises(ArgumentError, match="data"):
        streaming.reader(words(1)[:-4], CONFIG, 1, "sim")


class ToldClock:
    method = "told"

    def __init__(self):
        self.runs = []

    def prepare(self, run):
        self.runs.append(run)
        return run

    def load(self, prepared):
        pass

    def sample(self, prepared):
        return (3e-6, 2e-6)[self.runs.index(prepared)]


def test_the_ceiling_is_that_of_the_fastest_shape():
    data = words(chunks=2)
    found = streaming.measure_ceiling(ToldClock(), data, 1, device="sim", space=SPACE)
    assert found.config["BLOCKS_PER_MULTIPROCESSOR"] == 2
    assert found.bytes_per_second == pytest.approx(data.numel() * 4 / 2e-6)
    assert found.bytes_read == data.numel() * 4


def test_a_stream_that_reads_something_else_gives_no_ceiling(monkeypatch):
    reader = streaming.reader
    monkeypatch.setattr(streaming, "reader", lambda data, *rest: reader(data.roll(1) | 1, *rest))
    with pytest.raises(WrongResultError, match="sum"):
        streaming.measure_ceiling(ToldClock(), words(1), 1, device="sim", space=SPACE)


def test_the_stream_is_measured_again_in_its_best_shape_alone():
    clock, data = ToldClock(), words(chunks=2)
    clock.runs.append(None)  # what is prepared now is the second
    speed = streaming.measure_again(clock, data, 1, CONFIG, device="sim")
    assert speed == pytest.approx(data.numel() * 4 / 2e-6)
    assert len(clock.runs) == 2


def test_a_stream_that_fails_later_gives_no_ceiling():
    class Spoiling(ToldClock):
        def sample(self, prepared):
            data[0] += 1
            return 1e-6

    data = words(1)
    with pytest.raises(WrongResultError, match="sum"):
        streaming.measure_again(Spoiling(), data, 1, CONFIG, device="sim")
