"""Plots are drawn from the figures they are given."""

from __future__ import annotations

import pytest

pytest.importorskip("matplotlib", reason='no matplotlib: python -m pip install -e ".[lab]"')

import matplotlib

matplotlib.use("Agg")

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
