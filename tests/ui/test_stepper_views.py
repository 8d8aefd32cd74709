"""Stepping through the requests of a recording, driven through its traits as notebook code and controls drive it."""

from __future__ import annotations

import pytest

pytest.importorskip("ipywidgets", reason='no widgets: python -m pip install -e ".[lab]"')

from view_kernels import attention, line_of, requests_of, transpose

from workbench import ui
from workbench.errors import ArgumentError
from workbench.ui.bank_picture import BankMap
from workbench.ui.sector_picture import WarpMap


def drawn(maps) -> str:
    """The picture that the browser has."""
    return maps._image.value


@pytest.fixture
def maps():
    return ui.warp_maps(attention("cuda_thread_group"))


def test_it_begins_with_all_requests_in_the_order_in_which_they_ran(maps):
    recording = attention("cuda_thread_group").recording
    wanted = [one for one in recording.requests if one.space == "global"]
    assert maps.requests == wanted
    assert (maps.line, maps.warp, maps.index, maps.count) == (0, -1, 0, len(wanted))
    assert sum(maps.lines.values()) == len(wanted)


def test_line_warp_and_index_choose_the_request(maps):
    trace = attention("cuda_thread_group")
    keys = line_of(trace, "key[j].load")
    maps.line = keys
    maps.warp = 1
    wanted = [one for one in requests_of(trace.recording, "global", keys) if one.warp == 1]
    assert maps.count == len(wanted) > 3
    maps.index = 3
    assert maps.requests[3] == wanted[3]
    assert isinstance(maps.picture, WarpMap)
    assert maps.picture.request == wanted[3]
    assert maps.headline == ui.warp_map(wanted[3]).headline
    assert maps.facts["order"] == wanted[3].order
    assert (maps.facts["line"], maps.facts["warp"], maps.facts["sectors"]) == (keys, 1, wanted[3].sectors)
    assert str(maps).startswith("request 3 of ")
    assert repr(maps).startswith(f"<global requests of block (0, 3, 0): line {keys}, warp 1, request 3 of")


@pytest.mark.long
def test_each_choice_draws_another_picture(maps):
    trace = attention("cuda_thread_group")
    seen = [drawn(maps)]
    for line in (line_of(trace, "key[j].load"), line_of(trace, "value[i].load")):
        maps.line = line
        seen.append(drawn(maps))
    assert len(set(seen)) == 3
    assert all("data:image/svg+xml," in picture for picture in seen)
    assert maps._repr_mimebundle_()[0]["text/html"] == seen[-1]
    maps.line = 0
    assert drawn(maps) == seen[0]


def test_the_controls_set_the_traits_and_follow_them(maps):
    keys = line_of(attention("cuda_thread_group"), "key[j].load")
    maps._line_menu.value = keys
    maps._warp_menu.value = 0
    maps._slider.value = 2
    assert (maps.line, maps.warp, maps.index) == (keys, 0, 2)
    assert maps._slider.max == maps.count - 1
    maps.warp = 1
    maps.index = 1
    assert (maps._warp_menu.value, maps._slider.value) == (1, 1)
    assert f"{keys}: key[j].load" in next(label for label, line in maps._line_menu.options if line == keys)


@pytest.mark.long
def test_a_shorter_list_takes_the_index_back(maps):
    maps.index = maps.count - 1
    maps.line = line_of(attention("cuda_thread_group"), "const int seq_len")
    assert maps.index == maps.count - 1 < 8


def test_a_line_without_requests_empties_the_picture_and_says_where_some_are(maps):
    maps.line = 5
    assert (maps.count, maps.picture, maps.facts, drawn(maps)) == (0, None, {}, "")
    assert maps.headline.startswith("no warp makes a request to global memory at line 5; lines with some: ")
    assert str(maps) == maps.headline
    assert maps._line_menu.value is None
    assert "text/html" not in maps._repr_mimebundle_()[0]
    maps.line = 0
    assert "data:image/svg+xml," in drawn(maps)


def test_a_warp_without_requests_at_a_line_says_who_has_some():
    trace = attention("cuda_thread_group")
    keys = line_of(trace, "key[j].load")
    has = sorted({one.warp for one in requests_of(trace.recording, "global", keys)})
    lacks = next(warp for warp in range(trace.recording.warps) if warp not in has)
    maps = ui.warp_maps(trace, line=keys, warp=lacks)
    expected = f"warp {lacks} does not make a request to global memory at line {keys}; warps that do: "
    assert maps.headline == expected + ", ".join(map(str, has))


@pytest.mark.parametrize(("trait", "value", "allowed"), [
    ("warp", 4, "0 to 3"), ("warp", -2, "-1 for all"), ("line", -1, "0 for all"), ("index", 9999, "0 to "),
])  # fmt: skip
def test_what_is_not_there_cannot_be_chosen(maps, trait, value, allowed):
    before = getattr(maps, trait)
    with pytest.raises(ArgumentError, match=allowed):
        setattr(maps, trait, value)
    assert getattr(maps, trait) == before
    with pytest.raises(ArgumentError, match=allowed):
        ui.warp_maps(attention("cuda_thread_group"), **{trait: value})


def test_banks_of_a_transpose_step_by_step():
    trace = transpose("tiled")
    banks = ui.bank_maps(trace, line=line_of(trace, "// copy"))
    assert isinstance(banks.picture, BankMap)
    assert banks.count == len(requests_of(trace.recording, "shared", banks.line)) == 32
    assert banks.facts["conflicts"] == 31
    banks.line = line_of(trace, "tile[j][threadIdx.x] =")
    assert (banks.facts["wavefronts"], banks.facts["words"], banks.facts["conflicts"]) == (1, 32, 0)


def test_a_source_view_leads_the_maps_from_its_next_selection_on():
    trace = attention("cuda_thread_group")
    keys, values = line_of(trace, "key[j].load"), line_of(trace, "value[i].load")
    view, maps = ui.source_view(trace), ui.warp_maps(trace, line=keys, warp=0)
    maps.follow(view)
    assert (maps.line, maps.facts["line"], maps.facts["bytes_per_lane"]) == (keys, keys, 8)
    view.selected_line = values
    assert (maps.line, maps.facts["bytes_per_lane"]) == (values, 16)
    view.selected_line = 0
    assert maps.line == values


def test_something_must_have_been_recorded():
    trace = transpose("naive")
    assert ui.warp_maps(trace.recording).requests == ui.warp_maps(trace.report).requests == ui.warp_maps(trace).requests
    for nothing in (None, "text", object()):
        with pytest.raises(ArgumentError, match="record_block"):
            ui.warp_maps(nothing)


def test_a_kernel_without_shared_memory_has_no_banks_to_show():
    banks = ui.bank_maps(transpose("naive"))
    assert (banks.count, banks.headline) == (0, "no warp makes a request to shared memory")
