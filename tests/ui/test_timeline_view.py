"""Warps against logical time: joints and waits worked out by hand, and the picture and the text of them."""

from __future__ import annotations

import pytest
from view_kernels import attention, spans, transpose

from workbench import ui
from workbench.errors import ArgumentError

# Warp 1 is late at the barrier of line 12, warp 0 at that of line 20.
UNEVEN = spans(
    (0, 0, 30, "run", 0, 12), (0, 30, 80, "wait", 0, 12), (0, 80, 160, "run", 0, 20), (0, 160, 170, "run", None, 0),
    (1, 0, 80, "run", 0, 12), (1, 80, 120, "run", 0, 20), (1, 120, 160, "wait", 0, 20), (1, 160, 170, "run", None, 0),
)  # fmt: skip


def test_joints_say_who_waits_for_whom():
    first, second = ui.warp_timeline(UNEVEN).joints
    assert (first.clock, first.place, first.warps, first.waits, first.last) == (80, "line 12", (0, 1), {0: 50}, (1,))
    assert (second.clock, second.place, second.waits, second.last) == (160, "line 20", {1: 40}, (0,))
    assert ui.warp_timeline(UNEVEN).longest == first


def test_headline_and_totals():
    timeline = ui.warp_timeline(UNEVEN)
    assert (timeline.end, timeline.waited) == (170, 90)
    assert timeline.headline == "2 warps, 170 instructions long, 2 barriers: warps wait 26 % of the time"
    assert repr(timeline) == f"<warp timeline of block (0, 0, 0): {timeline.headline}>"


def test_the_strip_has_a_column_for_so_many_instructions():
    text = str(ui.warp_timeline(UNEVEN)).splitlines()
    assert "a column is 3 instructions" in text[4]
    zero, one = text[2].removeprefix("warp  0 "), text[3].removeprefix("warp  1 ")
    assert len(zero) == len(one) == 57
    assert zero[:10] == "=" * 10
    assert zero[10:26] == "." * 16
    assert [at for at, mark in enumerate(zero) if mark == "|"] == [26, 53]
    assert [at for at, mark in enumerate(one) if mark == "|"] == [26, 53]
    assert one[40:53] == "." * 13
    assert text[5].strip() == "80 line 12: 50 instructions of waiting, all for warp 1"
    assert text[6].strip() == "160 line 20: 40 instructions of waiting, all for warp 0"


def test_the_picture_has_a_joint_per_barrier_and_a_label_per_wait():
    axes = ui.warp_timeline(UNEVEN).draw()
    assert [tuple(line.get_xdata()) for line in axes.lines] == [(80, 80), (160, 160)]
    assert all(abs(line.get_ydata()[1] - line.get_ydata()[0]) > 1.9 for line in axes.lines), "across both warps"
    texts = {text.get_text() for text in axes.texts}
    assert {"line 12", "line 20", "waits 50", "waits 40"} <= texts
    waiting = [patch for patch in axes.patches if patch.get_hatch()]
    assert sorted((patch.get_x(), patch.get_width()) for patch in waiting) == [(30, 50), (120, 40)]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["warp 0", "warp 1"]


def test_a_warp_that_ended_is_waited_for_too():
    recording = spans(
        (0, 0, 5, "run", 0, 3), (0, 5, 8, "wait", 0, 3), (0, 8, 9, "run", None, 0), (1, 0, 8, "run", None, 0)
    )
    (joint,) = ui.warp_timeline(recording).joints
    assert (joint.clock, joint.warps, joint.last) == (8, (0,), ())
    assert "3 instructions of waiting, all for a warp that ended" in str(ui.warp_timeline(recording))


def test_barriers_of_some_warps_join_only_those():
    rows = [(warp, 0, 7 + warp // 2, "run", 2 + warp // 2, 4) for warp in range(4)]
    first, second = ui.warp_timeline(spans(*rows)).joints
    assert (first.barrier, first.warps) == (2, (0, 1))
    assert (second.barrier, second.warps) == (3, (2, 3))
    heights = [tuple(line.get_ydata()) for line in ui.warp_timeline(spans(*rows)).draw().lines]
    assert max(heights[0]) < 2 < min(heights[1])


def test_nobody_waits_in_a_transpose():
    timeline = ui.warp_timeline(transpose("tiled"))
    (joint,) = timeline.joints
    assert joint.text == "__syncthreads();"
    assert joint.warps == tuple(range(8))
    assert (timeline.waited, timeline.longest) == (0, None)
    assert f"{joint.place}: all arrive together" in str(timeline)
    labels = [text.get_text() for text in timeline.draw().get_legend().get_texts()]
    assert labels == ["runs", "a barrier lets its warps go"]


def test_attention_waits_at_its_barriers():
    trace = attention("cuda_thread_group")
    timeline = ui.warp_timeline(trace)
    assert [joint.text for joint in timeline.joints] == ["__syncthreads();"] * 4
    assert sum(joint.waited for joint in timeline.joints) == timeline.waited > 0
    assert timeline.longest.clock <= timeline.end
    bundle = timeline._repr_mimebundle_()
    assert bundle["text/plain"] == str(timeline)
    assert "data:image/svg+xml," in bundle["text/html"]


def test_something_must_have_been_recorded():
    with pytest.raises(ArgumentError, match="record_block"):
        ui.warp_timeline(None)


def test_a_cut_recording_says_so():
    from dataclasses import replace

    assert "only the first spans were kept" in str(ui.warp_timeline(replace(UNEVEN, truncated=True)))
    assert "only the first" not in str(ui.warp_timeline(UNEVEN))
