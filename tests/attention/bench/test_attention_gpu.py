"""The benchmark on a GPU, on cells that take seconds: everyone is right, and nobody reads faster than a stream."""

from __future__ import annotations

import os

import pytest

from workbench.attention.bench.paged_attention import BenchmarkCell, run
from workbench.attention.bench.paged_attention.peers import TorchSdpa

pytestmark = pytest.mark.gpu
SIMULATED = bool(os.environ.get("WORKBENCH_SIMULATED_GPU"))
CACHES = ("fp8",) if SIMULATED else ("bf16", "fp8", "int8")
SIZES = {"num_seqs": 1, "context": 32} if SIMULATED else {"num_seqs": 4, "context": 2048}
CELLS = [BenchmarkCell(8, 2, cache=cache, **SIZES) for cache in CACHES]


@pytest.mark.long  # `.ci/gpu` runs it on a GPU, and its small run has a cell of the same benchmark
def test_a_few_cells(tmp_path, monkeypatch):
    monkeypatch.setattr("workbench.attention.bench.paged_attention.peers.PEERS", (TorchSdpa(True), TorchSdpa(False)))
    result = run(device="cuda", peers=True, minutes=2, cells=CELLS, out=tmp_path / "bench.json")
    assert (result.ended, result.cells_left) == ("complete", 0), str(result)
    assert result.all_correct, str(result)
    ceiling = result.ledger.head["ceiling"]["bytes_per_second"]
    measured = [row for row in result.ledger.rows if row.outcome == "measured"]
    assert {row.cell for row in measured} == set(CELLS)
    for row in measured:
        assert row.bytes_per_second > 0, row
        assert row.bytes_per_second < 1.05 * ceiling or SIMULATED, row  # whose times say nothing of so little
