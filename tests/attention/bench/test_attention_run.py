"""The run: rows are kept whatever ends it, the time is kept, a file is gone on with, the report says what it says."""

from __future__ import annotations

import json
import os
import signal

import pytest

from workbench.attention.bench.paged_attention import Cell, grid, report
from workbench.attention.bench.paged_attention.benchmark import _stopped_by_signals, fill
from workbench.attention.bench.paged_attention.contender import DeviceLostError
from workbench.attention.bench.paged_attention.ledger import TIME_IS_UP, Ledger, Row
from workbench.attention.bench.paged_attention.peers import TorchSdpa
from workbench.errors import ArgumentError

HEAD = {
    "basis": "measured",
    "machine": {"gpu": "told"},
    "versions": {"torch": "1"},
    "ceiling": {"bytes_per_second": 4e12, "bytes_read": 4 << 30, "config": {"UNROLL": 8}, "spread": 0.001},
}
CELLS = grid(16)[:6]
CONTENDERS = (TorchSdpa(True), TorchSdpa(False))


def told(cell, contenders):
    """Rows at half and a quarter of the ceiling."""
    return [
        Row(cell, one.name, False, "measured", seconds=(1 + at) * 2 * cell.minimum_bytes / 4e12,
            minimum_bytes=cell.minimum_bytes, samples=10, spread_seconds=1e-9)
        for at, one in enumerate(contenders)
    ]  # fmt: skip


class Told:
    """A measurer that takes ``seconds`` of its own clock per cell, and meets something at the cell ``at``."""

    def __init__(self, seconds=10.0, at=None, meets=None):
        self.seconds, self.at, self.meets = seconds, at, meets
        self.now, self.cells = 0.0, []

    def __call__(self, cell, contenders):
        if len(self.cells) == self.at:
            self.meets()
        self.cells.append(cell)
        self.now += self.seconds
        return told(cell, contenders)


def go(ledger, measure, budget=1e9, cells=CELLS):
    return fill(ledger, cells, CONTENDERS, measure, lambda: measure.now, budget, lambda line: None)


def on_disk(path):
    return json.loads(path.read_text())


def interrupt():
    raise KeyboardInterrupt


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("how", [interrupt, terminate])
def test_what_was_found_before_it_was_stopped_is_in_the_file_and_is_gone_on_with(tmp_path, how):
    path = tmp_path / "bench.json"
    with _stopped_by_signals():
        ended = go(Ledger.open(HEAD, path), Told(at=2, meets=how))
    assert ended == ("stopped", 4)
    assert len(on_disk(path)["rows"]) == 4
    assert list(tmp_path.iterdir()) == [path], "nothing half-written is left"

    again = Told()
    assert go(Ledger.open(HEAD, path), again) == ("complete", 0)
    assert again.cells == list(CELLS[2:])
    rows = on_disk(path)["rows"]
    assert len(rows) == 2 * len(CELLS)
    assert rows[0]["bytes_per_second"] == pytest.approx(2e12)
    assert Ledger.open(HEAD, path).rows == [row for cell in CELLS for row in told(cell, CONTENDERS)]


def test_the_file_is_whole_at_every_moment(tmp_path):
    path = tmp_path / "bench.json"
    seen = []

    class Looking(Told):
        def __call__(self, cell, contenders):
            if path.exists():
                seen.append(len(on_disk(path)["rows"]))
            return super().__call__(cell, contenders)

    go(Ledger.open(HEAD, path), Looking())
    assert seen == [2, 4, 6, 8, 10]


def test_the_time_is_kept():
    measure = Told(seconds=10)
    assert go(Ledger.open(HEAD, None), measure, budget=25) == ("time", 3)
    assert len(measure.cells) == 3


def test_a_contender_whose_turn_the_time_took_has_it_the_next_time(tmp_path):
    path = tmp_path / "bench.json"

    def cut_short(cell, contenders):
        first, last = told(cell, contenders)
        return [first, Row(cell, last.contender, False, "blank", TIME_IS_UP)]

    ledger = Ledger.open(HEAD, path)
    assert fill(ledger, CELLS, CONTENDERS, cut_short, lambda: 0, 1, lambda line: None) == ("time", len(CELLS))
    asked = []

    def measure(cell, contenders):
        asked.append((cell, [one.name for one in contenders]))
        return told(cell, contenders)

    fill(Ledger.open(HEAD, path), CELLS[:1], CONTENDERS, measure, lambda: 0, 1, lambda line: None)
    assert asked == [(CELLS[0], ["torch_sdpa_gathered_before"])]


def test_a_lost_gpu_ends_the_run_and_its_rows_are_kept(tmp_path):
    path = tmp_path / "bench.json"
    failed = Row(CELLS[0], "torch_sdpa", False, "failed", "RuntimeError: CUDA error")

    def lose():
        raise DeviceLostError("torch_sdpa", (failed,))

    with pytest.raises(DeviceLostError, match="--out"):
        go(Ledger.open(HEAD, path), Told(at=0, meets=lose))
    assert Ledger.open(HEAD, path).rows == [failed]


@pytest.mark.parametrize(
    "other", [{"machine": {"gpu": "another"}}, {"versions": {"torch": "2"}}, {"basis": "predicted"}]
)
def test_a_file_of_another_machine_is_refused(tmp_path, other):
    path = tmp_path / "bench.json"
    go(Ledger.open(HEAD, path), Told())
    with pytest.raises(ArgumentError, match=next(iter(other))):
        Ledger.open(HEAD | other, path)


def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "notes.json"
    path.write_text('{"mine": 1}')
    with pytest.raises(ArgumentError, match="out"):
        Ledger.open(HEAD, path)
    assert path.read_text() == '{"mine": 1}'


def test_the_table_has_every_cell_the_ceiling_and_why_places_are_blank():
    ledger = Ledger.open(HEAD, None)
    go(ledger, Told())
    ledger.add([Row(Cell(5, 5, cache="int8"), "torch_sdpa", False, "blank", "takes no int8"),
                Row(Cell(5, 5, cache="fp8"), "torch_sdpa", False, "wrong", "WRONG: error 1")])  # fmt: skip
    ledger.head["states"] = [{"throttled_by": ["power cap"]}, {"throttled_by": []}, {}]
    text = report.text(ledger)
    assert "measured on told" in text
    assert "throttled by power cap after 1 of 3 cells" in text
    assert "4,000 GB/s" in text
    for cell in CELLS:
        assert cell.label in text
    assert "2,000  50%*" in text
    assert "1,000  25%" in text
    assert "torch_sdpa: blank in 1 of 8 cells: takes no int8" in text
    assert "WRONG" in text


def test_the_plot_has_a_panel_per_geometry_and_cache_and_a_line_per_contender(tmp_path):
    pytest.importorskip("matplotlib").use("agg")
    ledger = Ledger.open(HEAD, None)
    go(
        ledger,
        Told(),
        cells=[cell for cell in grid() if cell.cache != "int8" and cell.num_kv_heads == 8 and cell.num_seqs < 64],
    )
    path = tmp_path / "plot.png"
    figure = report.plot(ledger, path)
    shown = [ax for ax in figure.axes if ax.get_visible()]
    assert len(shown) == 2 * 2
    for ax in shown:
        assert {round(line.get_ydata()[0]) for line in ax.lines} == {50, 25, 100}
    assert path.read_bytes()[:4] == b"\x89PNG"
    import matplotlib.pyplot as plt

    plt.close(figure)
