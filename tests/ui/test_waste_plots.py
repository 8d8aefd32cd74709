"""Plots of waste are drawn from the figures they are given."""

from __future__ import annotations

import pytest

pytest.importorskip("matplotlib", reason='no matplotlib: python -m pip install -e ".[lab]"')

import matplotlib

matplotlib.use("Agg")

from workbench.attention.cache_studies.sharing import PAPER_SHARING, SharingResult
from workbench.attention.cache_studies.waste import PAPER, WasteResult
from workbench.attention.ui.cache.waste_plots import (
    PARTS,
    block_size_lines,
    rows_and_blocks,
    sharing_ranges,
    slot_rows,
    waste_bars,
)

MAX = WasteResult("contiguous max", None, 0.2, 0.1, 0.6, 0.1, 7.0)
PAGED = [WasteResult("paged", size, 0.9, 0.06, 0.01, 0.03, 30.0) for size in (16, 32)]


def test_slot_rows_draw_each_slot_and_block():
    ax = slot_rows({"a": ["token_states", "reserved", "internal"], "b": ["external"]}, block_size=2)
    slots = [patch for patch in ax.patches if patch.get_fill()]
    assert [patch.get_hatch() or "" for patch in slots] == [
        PARTS[part][2] for part in ("token_states", "reserved", "internal", "external")
    ]
    assert [patch.get_width() for patch in ax.patches if not patch.get_fill()] == [2, 1, 1]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]


def test_rows_and_blocks_hold_the_same_tokens():
    figure = rows_and_blocks({"A": 7, "B": 3}, {"A": 9, "B": 12}, longest=16, block_size=4, num_slots=40)
    colours = {part: matplotlib.colors.to_rgba(colour) for part, (_, colour, _) in PARTS.items()}
    counts = []
    for ax in figure.axes:
        faces = [patch.get_facecolor() for patch in ax.patches if patch.get_fill()]
        counts.append({part: faces.count(colour) for part, colour in colours.items()})
    assert counts == [
        {"token_states": 10, "reserved": 11, "internal": 11, "external": 8},
        {"token_states": 10, "reserved": 2, "internal": 0, "external": 28},
    ]


def test_waste_bars_stand_beside_those_of_the_paper():
    ax = waste_bars([MAX, PAGED[0]], PAPER)
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == [
        "contiguous max: here", "Orca (Max): paper", "paged, blocks of 16: here", "vLLM: paper",
    ]  # fmt: skip
    lengths = {}
    for patch in ax.patches:
        place = patch.get_y()
        lengths[place] = lengths.get(place, 0) + patch.get_width()
    assert list(lengths.values()) == pytest.approx([1] * 4, abs=0.002), "every bar is all of the memory"
    assert {"20.0%", "20.4%", "96.3%"} <= {text.get_text() for text in ax.texts}


def test_block_sizes():
    ax = block_size_lines({"one": [MAX, *PAGED], "two": PAGED})
    assert list(ax.lines[0].get_xdata()) == [16, 32]
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["one, paged", "one, contiguous max", "two, paged"]
    assert ax.lines[0].get_marker() != ax.lines[2].get_marker()


def test_sharing():
    mine = [SharingResult("beam search", ways, 16, 0.1 * ways, 0, 0) for ways in (2, 4, 6)]
    (ax,) = sharing_ranges({"Alpaca-like": mine}, PAPER_SHARING).axes
    assert list(ax.lines[0].get_ydata()) == pytest.approx([0.2, 0.4, 0.6])
    assert list(ax.lines[1].get_xdata()) == [2, 4, 6]
    assert list(ax.lines[1].get_ydata()) == [0.3756, 0.5313, 0.5516]
