"""Pictures of caches show what they are given."""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")

from collections import Counter

from workbench.ui.cache_plots import RowUse, contiguous_rows, generation_steps, memory_over_time
from workbench.ui.line_plots import marked_lines


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


def test_areas_are_stacked():
    ax = memory_over_time({"used": [1, 2, 3], "wasted": [4, 3, 2]}, ylabel="GiB")
    assert [area.get_hatch() for area in ax.collections] == ["", ".."]
    assert max(point[1] for point in ax.collections[1].get_paths()[0].vertices) == 5


def test_lines_differ_by_more_than_colour():
    ax = marked_lines([1, 2, 4], {"a": [1, 2, 3], "b": [2, 3, 4]}, xlabel="n", ylabel="y", xscale="log2", yscale="log")
    first, second = ax.lines
    assert list(first.get_ydata()) == [1, 2, 3]
    assert first.get_marker() != second.get_marker()
    assert first.get_linestyle() != second.get_linestyle()
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
