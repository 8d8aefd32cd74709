"""Blocks over multiprocessors: who runs where and when, and what is drawn of it."""

from __future__ import annotations

import pytest

from workbench.errors import ArgumentError
from workbench.ui.kernel.wave_picture import busy_share, schedule, wave_picture


def test_the_next_block_takes_the_place_that_is_free_first():
    spans = schedule([4, 1, 1, 3], places=2)
    assert [(span.place, span.start, span.end) for span in spans] == [(0, 0, 4), (1, 0, 1), (1, 1, 2), (1, 2, 5)]
    assert busy_share(spans, 2) == pytest.approx(9 / 10)


def test_equal_blocks_run_in_waves_and_the_last_wave_leaves_places_idle():
    spans = schedule([1.0] * 160, places=132)
    assert max(span.end for span in spans) == 2
    assert busy_share(spans, 132) == pytest.approx(160 / 264)
    assert busy_share(schedule([1.0] * 8, 132), 132) == pytest.approx(8 / 132)
    assert busy_share((), 4) == 0


def test_without_a_place_nothing_runs():
    with pytest.raises(ArgumentError, match="places"):
        schedule([1.0], 0)


def test_every_block_is_a_bar_in_its_place():
    import matplotlib.pyplot as plt

    ax = wave_picture([4, 1, 1, 3], 2, kinds=["long", "short", "short", "short"], title="uneven")
    boxes = [[path.get_extents().extents for path in kind.get_paths()] for kind in ax.collections]
    bars = [{(x0, x1 - x0, (y0 + y1) / 2) for x0, y0, x1, y1 in kind} for kind in boxes]
    assert bars == [{(0, 4, 0)}, {(0, 1, 1), (1, 1, 1), (2, 3, 1)}]
    assert ax.get_title() == "uneven: 90% busy"
    assert len({tuple(kind.get_facecolor()[0]) for kind in ax.collections}) == 2
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["long", "short"]
    plt.close(ax.figure)
