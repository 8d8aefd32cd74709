"""The pipeline picture: its text, its boxes and its sentence, of a block whose times are known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from recorded_pipelines import TWICE, recorded
from view_kernels import transpose

from workbench import ui
from workbench.errors import ArgumentError


def test_the_headline_and_what_it_rests_on() -> None:
    view = ui.pipeline_view(TWICE, copy_cycles=100)
    assert view.headline == "2 fills of 1 stage in 219 cycles: producer waits 48 %, consumer waits 93 %"
    assert "an instruction 1 cycle, a copy 100" in view.caption
    assert "product" not in view.caption
    assert repr(view) == f"<pipeline of block (0, 0, 0): {view.headline}>"
    assert view.waits() == {("consumer", "full"): 203, ("producer", "empty"): 105}


def test_the_strips() -> None:
    rows = str(ui.pipeline_view(TWICE, copy_cycles=100)).splitlines()[2:]
    names = [row[: len("warp 0 producer")].strip() for row in rows[:3]]
    assert names == ["warp 0 producer", "warp 1 consumer", "stage of full"]
    producer, consumer, stage = (row[len("warp 0 producer ") :] for row in rows[:3])
    assert producer == "===" + "." * 35 + "="
    assert consumer == "=" + "." * 34 + "===" + "." * 34 + "="
    assert (stage.count("~"), stage.count("R")) == (67, 4)
    assert rows[-2:] == [
        "consumer warp 1: 203 cycles of waiting for full",
        "producer warp 0: 105 cycles of waiting for empty",
    ]


def test_the_boxes() -> None:
    axes = ui.pipeline_view(TWICE, copy_cycles=100).draw()
    boxes = {(box.get_x(), box.get_width()) for box in axes.patches if box.get_hatch()}
    assert boxes == {(8, 105), (3, 103), (115, 100)}
    texts = [text.get_text() for text in axes.texts]
    assert [texts.count(name) for name in ("full", "empty", "0", "1")] == [2, 1, 2, 2]
    assert [line.get_xdata()[0] for line in axes.lines] == [6, 115]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "warp 0 producer", "warp 1 consumer", "stage of full",
    ]  # fmt: skip


def test_many_warps_are_rows_of_four() -> None:
    rows = [(warp, "product", warp // 4, 0, 5, {"count": 64, "to": 1024}) for warp in range(8)]
    rows += [(warp, "end", 0, 0, 6) for warp in range(8)]
    view = ui.pipeline_view(recorded((8, "copy", 0, 0, 3), (8, "end", 0, 0, 4), *rows, warps=9))
    names = [label.get_text() for label in view.draw().get_yticklabels()]
    assert names == ["warp 8 producer", "warps 0–3 consumers", "warps 4–7 consumers", "tensor cores", "stage of full"]
    assert "tensor cores work" in view.headline


def test_what_cannot_be_drawn_and_what_was_cut() -> None:
    with pytest.raises(ArgumentError, match="record_block"):
        ui.pipeline_view(None)
    with pytest.raises(ArgumentError, match="warp_timeline"):
        ui.pipeline_view(transpose("tiled"))
    assert "only the first events" in ui.pipeline_view(replace(TWICE, truncated=True)).caption
