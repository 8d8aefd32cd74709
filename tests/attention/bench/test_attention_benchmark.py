"""The run on a GPU, on CPU tensors with the simulator: the ceiling after each cell, what is kept, what is reported."""

from __future__ import annotations

import builtins
import functools
import json
import re
import threading
from types import SimpleNamespace

import flashinfer_double
import pytest
import torch

from workbench.attention.bench.paged_attention import BenchmarkCell, benchmark, report, run
from workbench.attention.bench.paged_attention.benchmark import (
    AttentionBenchmark,
    _on_gpu,
    _stopped_by_signals,
    measuring,
)
from workbench.attention.bench.paged_attention.contender import Ours
from workbench.attention.bench.paged_attention.ledger import Ledger, LedgerRow
from workbench.attention.bench.paged_attention.measured import Measurer
from workbench.attention.bench.paged_attention.peers import FlashInfer, TorchSdpa
from workbench.attention.ops.paged_attention import OP
from workbench.errors import ArgumentError
from workbench.launch import devices

CELL = BenchmarkCell(8, 2, num_seqs=3, context=64, head_size=64)
CELLS = (CELL, BenchmarkCell(8, 2, 3, 128, head_size=64), BenchmarkCell(8, 2, 3, 64, "int8", 64))
FACTS = {"gpu": "NVIDIA H200", "arch": "sm_90", "multiprocessors": 2}
HEAD = {"what": "told", "started": "now", "contenders": {}}
CONTENDERS = (Ours(OP.variant("cuda_partitioned")), TorchSdpa(True))
SPACE = {"UNROLL": (4,), "NUM_THREADS": (256,), "BLOCKS_PER_MULTIPROCESSOR": (2, 4)}


class SlowingClock:
    """Every sample takes a microsecond longer than the one before; what is timed runs."""

    method, probe = "told", None

    def __init__(self):
        self.samples = 0

    def prepare(self, run):
        return run

    def load(self, prepared):
        pass

    def sample(self, prepared):
        prepared()
        self.samples += 1
        return 1e-3 + 1e-6 * self.samples


@pytest.fixture
def clock(monkeypatch):
    ceiling = benchmark.measure_ceiling
    monkeypatch.setattr(benchmark, "measure_ceiling", functools.partial(ceiling, space=SPACE))
    monkeypatch.setattr(benchmark, "STREAMED_BYTES", 1 << 20)
    monkeypatch.setattr(benchmark, "_STREAMED_STEP", 1 << 16)
    monkeypatch.setattr(benchmark, "gpu_state", lambda: {"throttled_by": ["power cap"]})
    return SlowingClock()


def opened(clock, path):
    measurer = Measurer(devices.get("sim"), "cpu", clock, lambda: 0.0, 1.0, 1e9, lambda: 80 << 30)
    return measuring(HEAD, path, FACTS, measurer, "sim")


def fill(ledger, measure, cells=CELLS, contenders=CONTENDERS):
    lines = []
    ended = benchmark.fill(ledger, cells, contenders, measure, lambda: 0.0, 1.0, lines.append)
    assert ended == ("complete", 0)
    return lines


def test_the_ceiling_is_measured_again_after_each_cell_and_a_share_is_of_its_own(tmp_path, clock):
    path = tmp_path / "bench.json"
    ledger, measure = opened(clock, path)
    first = ledger.head["ceiling"]
    assert first["bytes_read"] == 1 << 20
    fill(ledger, measure, CELLS[:2])
    rows = ledger.rows
    assert [row.ceiling for row in rows[::2]] == [row.ceiling for row in rows[1::2]], "one for a cell"
    assert first["bytes_per_second"] > rows[0].ceiling > rows[2].ceiling, "the clock slows down"
    for row in rows:
        assert report.share(row, ledger.head) == pytest.approx(row.bytes_per_second / row.ceiling)
    assert rows[0].bytes_in_flight > 0
    assert rows[1].bytes_in_flight is None
    assert [state["cell"] for state in ledger.head["states"]] == [cell.label for cell in CELLS[:2]]

    again, measure = opened(clock, path)
    assert again.head["ceiling"] == first, "searched once"
    assert again.rows == rows
    (line,) = fill(again, measure)
    assert "int8" in line
    assert len(again.rows) == 6
    text = report.text(again)
    low, high = (f"{speed / 1e9:,.0f}" for speed in sorted((again.rows[4].ceiling, rows[0].ceiling)))
    assert f"again after each cell, {low} to {high}" in re.sub(r"\s+", " ", text)
    assert "busy takes 25 to 40" in re.sub(r"\s+", " ", text)
    assert re.search(r"cuda_partitioned +\d+ +\d+ +\d of 3", text)


def test_a_cell_that_nobody_computes_costs_no_ceiling(tmp_path, clock):
    ledger, measure = opened(clock, tmp_path / "bench.json")
    before = clock.samples
    fill(ledger, measure, CELLS[2:], (TorchSdpa(True),))
    assert (clock.samples, ledger.rows[0].ceiling, ledger.head["states"]) == (before, None, [])


def test_a_peer_with_several_ways_has_one_row_that_names_the_fastest(tmp_path, clock, monkeypatch):
    flashinfer_double.install(monkeypatch, "0.6.1")
    ledger, measure = opened(clock, tmp_path / "bench.json")
    fill(ledger, measure, CELLS, (FlashInfer(),))
    bf16, _, int8 = ledger.rows
    assert bf16.outcome == "measured"
    assert bf16.seconds == min(bf16.ways.values())
    assert bf16.ways[bf16.way] == bf16.seconds
    assert bf16.config["kernels"] in bf16.way
    assert len(bf16.ways) == 4, "the simulator is an sm_80"
    assert "trtllm_batch_decode HND, trtllm_batch_decode NHD: it has kernels for" in bf16.note
    assert int8.outcome == "blank"
    assert Ledger.open(ledger.head, ledger.path).rows == ledger.rows
    text = report.text(ledger)
    assert f"flashinfer: fastest were {bf16.way}" in text
    assert "flashinfer: measured in 2 of 3 cells: trtllm_batch_decode HND" in text


def test_an_unfinished_row_gives_way_to_the_next_one(tmp_path):
    path = tmp_path / "bench.json"
    ledger = Ledger.open({**HEAD, "basis": "measured"}, path)
    late = LedgerRow(CELL, "flashinfer", False, "blank", "compiling took long", unfinished=True)
    other = LedgerRow(CELL, "torch_sdpa", False, "measured", seconds=1.0)
    ledger.add([late, other])
    assert not ledger.has(CELL, "flashinfer")
    assert ledger.has(CELL, "torch_sdpa")
    again = Ledger.open(ledger.head, path)
    done = LedgerRow(CELL, "flashinfer", False, "measured", seconds=2.0)
    again.add([done])
    assert again.has(CELL, "flashinfer")
    assert Ledger.open(ledger.head, path).rows == [done, other]


def test_a_file_of_an_older_format_is_refused_with_the_remedy(tmp_path):
    path = tmp_path / "bench.json"
    head = {"format": 1, "basis": "measured"}
    path.write_text(json.dumps({"head": head, "rows": [{"cell": {}, "contender": "torch_sdpa"}]}))
    with pytest.raises(ArgumentError, match=r"format 1.*Name another file"):
        Ledger.open({"basis": "measured"}, path)
    assert json.loads(path.read_text())["head"] == head


def test_on_a_gpu_everything_is_torchs(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(benchmark, "gpu_facts", lambda: FACTS)
    monkeypatch.setattr("workbench.tuning.measuring.GpuClock", SlowingClock)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: seen.append("emptied"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (5, 7))
    monkeypatch.setattr(benchmark, "measuring", lambda *args: args)
    head, path, facts, measurer, runs_on = _on_gpu(HEAD, tmp_path / "x.json", "a device", 3.0, 2.0)
    assert (head, path, facts, runs_on) == (HEAD, tmp_path / "x.json", FACTS, "cuda")
    assert (measurer.device, measurer.where, measurer.deadline, measurer.budget) == ("a device", "cuda", 3.0, 2.0)
    assert isinstance(measurer.clock, SlowingClock)
    assert measurer.free_bytes() == 5
    assert seen == ["emptied"]
    *_, path, _, _, _ = _on_gpu(HEAD, None, "a device", 3.0, 2.0)
    assert re.fullmatch(r"attention-measured-nvidia-h200-\d+-\d+\.json", path.name), path


def test_a_run_on_a_gpu_goes_through_the_grid_with_the_peers(monkeypatch, tmp_path):
    asked = []

    def on_gpu(head, out, where, deadline, budget):
        ledger = Ledger({**head, "basis": "measured", "machine": FACTS, "ceiling": {"bytes_per_second": 1e12}})

        def measure(cell, contenders):
            asked.append((cell, [one.name for one in contenders]))
            return [LedgerRow(cell, one.name, one.is_ours, "blank", "told") for one in contenders]

        return ledger, measure

    monkeypatch.setattr(devices, "get", lambda name: SimpleNamespace(name="cuda", counts=False))
    monkeypatch.setattr(benchmark, "_on_gpu", on_gpu)
    result = run(device="cuda", peers=True, cells=CELLS[:1])
    ((cell, names),) = asked
    assert cell == CELL
    assert {"flashinfer", "xformers", "flex_attention", "torch_sdpa", "cuda_grouped_mma"} <= set(names)
    assert (result.ended, result.plot_path) == ("complete", None)
    assert "FlashInfer" not in result.ledger.head["contenders"]
    assert "v_scale" in result.ledger.head["contenders"]["flashinfer"]
    with pytest.raises(ArgumentError, match="minutes"):
        run(device="cuda", minutes=0)


def test_what_is_left_and_why_is_said():
    ledger = Ledger({"basis": "predicted", "machine": {"model": "told"}, "ceiling": {"bytes_per_second": 1e12}})
    for ended, why in (("time", "the time was up"), ("stopped", "the run was stopped")):
        text = str(AttentionBenchmark(ledger, ended, 3))
        assert f"3 cells are left, because {why}." in text
        assert "Kept in" not in text


def test_without_matplotlib_there_is_no_plot(monkeypatch, tmp_path):
    real = builtins.__import__

    def without(name, *args, **options):
        if name == "matplotlib":
            raise ModuleNotFoundError(name)
        return real(name, *args, **options)

    ledger = Ledger({}, [LedgerRow(CELL, "x", True, "measured", seconds=1.0)], tmp_path / "bench.json")
    monkeypatch.setattr(builtins, "__import__", without)
    assert benchmark._draw(ledger) is None


def test_in_another_thread_signals_are_left_alone():
    entered = []

    def work():
        with _stopped_by_signals():
            entered.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert entered == [True]
