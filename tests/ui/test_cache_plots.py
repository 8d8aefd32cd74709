"""Pictures of caches show what they are given."""

from __future__ import annotations

import pytest

pytest.importorskip("matplotlib", reason='no matplotlib: python -m pip install -e ".[lab]"')

import matplotlib

matplotlib.use("Agg")

from collections import Counter

import matplotlib.pyplot as plt

from workbench.attention.ui.cache.cache_plots import (
    RowUse,
    contiguous_rows,
    generation_steps,
    labelled_slots,
    memory_over_time,
    rows_in_memory,
    slots_legend,
)
from workbench.ui.line_plots import LineAxes, marked_lines


def test_a_cache_leaves_one_row_of_scores():
    figure = generation_steps(first=3, last=4)
    without = Counter(patch.get_hatch() for ax in figure.axes[:2] for patch in ax.patches)
    with_cache = Counter(patch.get_hatch() for ax in figure.axes[2:] for patch in ax.patches)
    scores, keys = 3 * 3 + 4 * 4, 3 + 4
    assert sum(without.values()) == scores + keys
    assert sum(with_cache.values()) == keys + 3 + 4
    assert with_cache["//"] == without["//"] == 2 + 3 + 4, "new: a key, and a row of scores"
    assert with_cache[""] == 2 + 3, "read: the keys of earlier tokens"
    assert "xx" not in with_cache, "nothing is computed again"


def test_every_slot_of_a_row_is_drawn_once():
    rows = [RowUse("a", prompt=3, generated=2, to_come=1), RowUse("free")]
    ax = contiguous_rows(rows, max_seqlen=10)
    widths = {bars.get_label(): [bar.get_width() for bar in bars] for bars in ax.containers}
    assert [sum(column) for column in zip(*widths.values(), strict=True)] == [10, 10]
    assert widths["will never be filled"] == [4, 0]
    assert widths["row not in use"] == [0, 10]


def test_a_row_has_a_strip_for_each_head_of_keys_and_of_values():
    rows = {"row 0": ["read", "read", "written", "empty"], "row 1": ["held", "empty", "empty", "empty"]}
    ax = rows_in_memory(rows, num_kv_heads=3)
    assert Counter(patch.get_hatch() for patch in ax.patches) == {"//": 6, "..": 6, "": 6 * (2 + 1 + 3)}
    names = [text.get_text() for text in ax.texts]
    assert names[:7] == [f"{side} of head {head}" for side in "KV" for head in range(3)] + ["row 0"]
    slots_legend(ax.figure)
    assert len(ax.figure.legends[0].get_texts()) == 4
    plt.close(ax.figure)


def test_labelled_slots_show_their_texts_and_what_changed():
    panels = {"before": [["a1", "b2", ""]], "after": [["a1", "c2", ""]]}
    figure = labelled_slots(panels, {"after": [[False, True, False]]})
    before, after = figure.axes
    assert [text.get_text() for text in before.texts] == ["beam 0", "a1", "b2", ""]
    assert [patch.get_hatch() for patch in before.patches] == ["", "", ""]
    assert [patch.get_hatch() for patch in after.patches] == ["", "//", ""]
    assert before.patches[0].get_facecolor() != before.patches[2].get_facecolor(), "an empty slot looks empty"
    plt.close(figure)


def test_areas_are_stacked():
    ax = memory_over_time({"used": [1, 2, 3], "wasted": [4, 3, 2]}, ylabel="GiB")
    assert [area.get_hatch() for area in ax.collections] == ["", ".."]
    assert max(point[1] for point in ax.collections[1].get_paths()[0].vertices) == 5


def test_lines_differ_by_more_than_colour():
    ax = marked_lines([1, 2, 4], {"a": [1, 2, 3], "b": [2, 3, 4]}, LineAxes("n", "y", xscale="log2", yscale="log"))
    first, second = ax.lines
    assert list(first.get_ydata()) == [1, 2, 3]
    assert first.get_marker() != second.get_marker()
    assert first.get_linestyle() != second.get_linestyle()
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
