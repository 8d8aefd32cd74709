"""The streaming kernel: reads everything once, 16 bytes a lane, and its ceiling is that of the fastest shape."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from workbench.bench import machine, streaming
from workbench.devices.sim import Simulator
from workbench.errors import ArgumentError, WrongResultError
from workbench.tuning.gpu_state import throttle_reasons

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


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [
        (0x1, ()),
        (0x4, ("power cap",)),
        (0x61, ("software thermal", "hardware thermal")),
    ],
)
def test_what_holds_the_clocks_down_is_named(bits, reasons):
    assert throttle_reasons(bits) == reasons


def test_without_nvidia_smi_nothing_is_claimed(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert machine.gpu_state() == {"unknown": "nvidia-smi is not on the PATH"}


@pytest.mark.parametrize(("uuid", "known"), [("12", True), ("34", False)])
def test_the_state_is_that_of_torchs_current_gpu(monkeypatch, tmp_path, uuid, known):
    """Of several GPUs nvidia-smi tells all, the first one first; a power that cannot be read is left out."""
    program = tmp_path / "nvidia-smi"
    program.write_text(
        '#!/bin/sh\n[ "$1" = --id=GPU-12 ] || { echo no such GPU; exit 6; }\n'
        'echo "1410, 1593, 61, [N/A], 0x0000000000000004"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid=uuid))
    state = {"sm_clock_mhz": 1410.0, "memory_clock_mhz": 1593.0, "temperature_c": 61.0, "throttled_by": ["power cap"]}
    assert machine.gpu_state() == (state if known else {"unknown": "nvidia-smi says: no such GPU"})
