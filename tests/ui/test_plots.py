"""Plots are drawn from the figures they are given."""

from __future__ import annotations

import pytest

pytest.importorskip("matplotlib", reason='no matplotlib: python -m pip install -e ".[lab]"')

import matplotlib

matplotlib.use("Agg")

import workbench as wb
from workbench.analysis.device_models import device_model
from workbench.errors import ArgumentError
from workbench.ui.plots import grouped_bars, key_page_map


def test_key_page_map_covers_the_page_once():
    ax = key_page_map(thread_group_size=4, vec_size=8, block_size=16, head_size=64)
    cells = [patch for patch in ax.patches if patch.get_height() == 1]
    assert len(cells) == 16 * 64 // 8
    assert {text.get_text() for text in ax.texts} == {"0", "1", "2", "3"}
    (frame,) = [patch for patch in ax.patches if not patch.get_fill()]
    assert (frame.get_width(), frame.get_height()) == (32, 8), "a warp's request: 8 groups of 4 x 8 elements"


def test_grouped_bars_show_each_value():
    ax = grouped_bars(["1", "2"], {"cuda": [3, 4], "triton": [5, 6]}, ylabel="requests")
    assert [bar.get_height() for bar in ax.patches] == [3, 4, 5, 6]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["cuda", "triton"]


def test_numbers_of_bars_have_no_exponent():
    ax = grouped_bars(["1", "2", "4"], {"cuda": [254_123, 90_000, 0.0025]}, ylabel="requests")
    assert [text.get_text() for text in ax.texts] == ["254,123", "90,000", "0.0025"]
    ax.figure.canvas.draw()
    assert all("e" not in label.get_text() for label in ax.get_yticklabels())
    assert ax.yaxis.get_offset_text().get_text() == ""


def test_a_roofline_has_every_variant_twice_under_the_ceilings():
    comparison = wb.compare("copy_blocks", "small", device="sim")
    ax = comparison.roofline()
    drawn = [trial for trial in comparison.trials if trial.counts]
    markers = [line for line in ax.lines if line.get_linestyle() == "None"]
    assert len(markers) == 2 * len(drawn)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [trial.variant for trial in drawn]
    model = device_model(None)
    issue = model.multiprocessors * model.issue_slots * model.clock_hz / 1e9
    for trial, full, empty in zip(drawn, markers[::2], markers[1::2], strict=True):
        ((dram,), (rate,)) = full.get_data()
        ((l2,), _) = empty.get_data()
        assert rate == pytest.approx(trial.counts["warp_instructions"] / trial.seconds / 1e9)
        assert rate < min(issue, dram * model.dram_bytes_per_second / 32e9)
        assert dram >= l2, "every distinct sector was requested"
    assert "predicted" in ax.get_title()


def test_a_roofline_needs_counts():
    with pytest.raises(ArgumentError, match="time and counts"):
        wb.compare("copy_blocks", "small", "torch", device="sim").roofline()
