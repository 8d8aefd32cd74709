"""Pictures of single warp requests: the facts against the machine's own counts and against values worked by hand."""

from __future__ import annotations

import random

import pytest
from view_kernels import attention, line_of, request, requests_of, transpose

from workbench import ui
from workbench.errors import ArgumentError
from workbench.ui.picture import folded, lane_range
from workbench.ui.request_state import sectors_of, wavefronts_of

BASE = 1 << 40


def rows_of(text: str) -> list[str]:
    """The strips of a map as text."""
    return [line for line in text.splitlines() if "|" in line]


# -- agreement with the machine ----------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "trace",
    [lambda: attention("cuda_thread_group"), lambda: attention("triton_online_softmax"), lambda: transpose("naive")],
    ids=["cuda", "triton", "naive"],
)
def test_every_recorded_request_costs_what_the_machine_counted(trace):
    recording = trace().recording
    for one in recording.requests:
        if one.space == "global":
            assert len(sectors_of(one)) == one.sectors, one
        else:
            fronts = wavefronts_of(one)
            assert len(fronts) == one.wavefronts, one
            assert sum(front.again == 0 for front in fronts) == one.ideal_wavefronts, one
    assert {one.space for one in recording.requests} >= {"global"}


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("load", [True, False])
def test_random_requests_are_served_completely_and_never_two_words_at_once(size, load):
    source = random.Random(size + 100 * load)
    for _ in range(100):
        lanes = [size * source.randrange(64) if source.random() < 0.8 else None for _ in range(32)]
        if not any(lane is not None for lane in lanes):
            continue
        one = request(lanes, size, "shared", load=load)
        served = set()
        for front in wavefronts_of(one):
            for bank, (word, takers) in front.banks.items():
                assert word % 32 == bank
                served |= {(lane, word) for lane in takers}
        wanted = {
            (lane, (offset + byte) // 4)
            for lane, offset in enumerate(lanes)
            if offset is not None
            for byte in range(size)
        }
        assert served == wanted
        used = {offset + byte for offset in lanes if offset is not None for byte in range(size)}
        assert sum(sector.used for sector in sectors_of(request(lanes, size))) == len(used)


# -- global memory -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("addresses", "size", "headline"),
    [
        ([BASE + 4 * i for i in range(32)], 4, "4 sectors for 128 bytes used: 100 % of the bytes moved are used"),
        (
            [BASE + 4 + 4 * i for i in range(32)],
            4,
            "5 sectors (4 would do) for 128 bytes used: 80 % of the bytes moved are used",
        ),
        (
            [BASE + 256 * i for i in range(32)],
            4,
            "32 sectors (4 would do) for 128 bytes used: 12.5 % of the bytes moved are used",
        ),
        ([BASE] * 32, 4, "1 sector for 4 bytes used: 12.5 % of the bytes moved are used"),
        ([BASE + 5], 1, "1 sector for 1 byte used: 3.12 % of the bytes moved are used"),
    ],
)
def test_headline_of_a_warp_map(addresses, size, headline):
    assert ui.warp_map(request(addresses, size)).headline == headline


def test_the_strip_of_a_misaligned_load_shows_lanes_and_waste():
    rows = rows_of(str(ui.warp_map(request([BASE + 4 + 4 * i for i in range(32)], 4))))
    assert [row.split("|")[0].strip() for row in rows] == ["+0", "+128"]
    first, second = (row.split("|")[1:-1] for row in rows)
    assert first[0].split() == ["░░", "0", "1", "2", "3", "4", "5", "6"]
    assert second[0].split() == ["31", *["░░"] * 7]
    assert all(not cell.strip() for cell in second[1:])


def test_vectors_and_broadcasts_in_the_strip():
    vectors = str(ui.warp_map(request([BASE + 16 * i for i in range(32)], 16)))
    assert rows_of(vectors)[3].split("|")[4].split() == ["30", "──", "──", "──", "31", "──", "──", "──"]
    assert "── the same lane goes on" in vectors
    pairs = str(ui.warp_map(request([BASE + 8 * (i // 2) for i in range(32)], 8)))
    assert rows_of(pairs)[0].split("|")[1].split()[:4] == ["0*", "0*", "2*", "2*"]
    assert "* the first of several lanes" in pairs
    assert "░░" not in pairs


def test_the_caption_says_who_takes_part():
    caption = ui.warp_map(request([BASE + 4 * i if i % 2 == 0 else None for i in range(32)], 4, load=False)).caption
    assert caption == "line 7, warp 0: lanes 0, 2, …, 30 only; each lane stores 4 bytes, argument 0"
    assert "lane 0 only; each lane loads" in ui.warp_map(request([BASE], 4)).caption


def test_a_tall_map_is_folded_in_text_and_picture():
    tall = ui.warp_map(request([BASE + 256 * i for i in range(32)], 4))
    assert "⋮ 23 more lines" in str(tall)
    assert len(rows_of(str(tall))) == 9
    texts = [text.get_text() for text in tall.draw().texts]
    assert "⋮  15 more lines  ⋮" in texts
    assert {"0", "14", "30", "31"} <= set(texts)
    assert "15" not in texts


def test_the_picture_hatches_what_is_moved_for_nothing():
    axes = ui.warp_map(request([BASE + 8 * i for i in range(32)], 4)).draw()
    hatched = [patch for patch in axes.patches if patch.get_hatch()]
    assert sum(patch.get_width() for patch in hatched) == 128
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["bytes used, with the lane", "moved, not used"]
    assert {str(lane) for lane in range(32)} <= {text.get_text() for text in axes.texts}
    whole = ui.warp_map(request([BASE + 4 * i for i in range(32)], 4)).draw()
    assert not [patch for patch in whole.patches if patch.get_hatch()]
    later = [patch.get_facecolor() for patch in whole.patches if patch.get_fill()]
    luminance = [0.2 * red + 0.7 * green + 0.1 * blue for red, green, blue, _ in later]
    assert luminance == sorted(luminance, reverse=True), "the order of lanes is seen without colour"


def test_what_the_x_layout_of_the_keys_is_for():
    trace = attention("cuda_thread_group")
    load = requests_of(trace.recording, "global", line_of(trace, "key[j].load"))[0]
    shown = ui.warp_map(load)
    assert (len(shown.sectors), shown.bytes_used, shown.ideal_sectors) == (8, 256, 8)
    assert shown.caption.endswith("each lane loads 8 bytes, argument 2")


# -- shared memory -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offsets", "size", "load", "headline"),
    [
        ([4 * i for i in range(32)], 4, True, "1 wavefront for 32 words: no bank conflict"),
        ([0] * 32, 4, True, "1 wavefront for 1 word: no bank conflict"),
        ([8 * i for i in range(32)], 4, True, "2 wavefronts for 32 words (1 would do): 1 from bank conflicts"),
        ([128 * i for i in range(32)], 4, True, "32 wavefronts for 32 words (1 would do): 31 from bank conflicts"),
        ([132 * i for i in range(32)], 4, True, "1 wavefront for 32 words: no bank conflict"),
        (
            [16 * i for i in range(32)],
            16,
            True,
            "4 wavefronts for 128 words: 128-bit requests go in 4 parts of the warp, no bank conflict",
        ),
        (
            [0] * 32,
            16,
            True,
            "2 wavefronts for 4 words: 128-bit requests go in 2 parts of the warp, no bank conflict",
        ),
        (
            [0] * 32,
            16,
            False,
            "4 wavefronts for 4 words: 128-bit requests go in 4 parts of the warp, no bank conflict",
        ),
    ],
)
def test_headline_of_a_bank_map(offsets, size, load, headline):
    assert ui.bank_map(request(offsets, size, "shared", load=load)).headline == headline


@pytest.mark.parametrize(("name", "wavefronts", "conflicts"), [("tiled", 32, 31), ("padded", 1, 0)])
def test_what_the_padding_of_a_transpose_is_for(name, wavefronts, conflicts):
    trace = transpose(name)
    column = [one for one in trace.recording.requests if one.space == "shared" and one.is_load]
    shown = [ui.bank_map(one) for one in column]
    assert {(len(one.wavefronts), one.conflicts, one.words) for one in shown} == {(wavefronts, conflicts, 32)}
    assert ("!" in str(shown[0])) == (conflicts > 0)


def test_the_table_of_banks_marks_conflicts_and_broadcasts():
    shown = str(ui.bank_map(request([0, 0, 128, 4], 4, "shared"))).splitlines()
    assert shown[2].split() == ["bank", *map(str, range(32))]
    assert shown[3].split()[:5] == ["wave", "0", "0+", "3", "·"]
    assert shown[4].split()[:4] == ["wave", "1", "2!", "·"]
    assert "+ one word for several lanes" in shown[5]
    assert "! conflict" in shown[5]
    plain = str(ui.bank_map(request([0, 4], 4, "shared")))
    assert "conflict:" not in plain
    assert "several lanes" not in plain


def test_the_picture_of_banks_tells_conflicts_by_hatch_and_broadcasts_by_text():
    axes = ui.bank_map(request([0] * 16 + [128], 4, "shared")).draw()
    texts = [text.get_text() for text in axes.texts]
    assert "×16" in texts
    assert "16" in texts
    assert [patch.get_hatch() for patch in axes.patches if patch.get_hatch()] == ["////"]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["broadcast: a word for several lanes (×n)", "conflict: the bank was busy before"]
    wide = ui.bank_map(request([16 * (i // 16) for i in range(32)], 16, "shared")).draw()
    assert "0–15" in {text.get_text() for text in wide.texts}, "the words of the same lanes are one box, with its lanes"


# -- both ----------------------------------------------------------------------------------------------------------


def test_each_map_refuses_the_other_memory():
    with pytest.raises(ArgumentError, match="See bank_map"):
        ui.warp_map(request([0], 4, "shared"))
    with pytest.raises(ArgumentError, match="See warp_map"):
        ui.bank_map(request([BASE], 4))


@pytest.mark.long
def test_text_and_picture_of_a_cell_and_of_a_page():
    for shown in (ui.warp_map(request([BASE], 4)), ui.bank_map(request([0], 4, "shared"))):
        bundle = shown._repr_mimebundle_()
        assert set(bundle) == {"text/plain", "text/html"}
        assert bundle["text/plain"] == str(shown)
        assert "data:image/svg+xml," in bundle["text/html"]
        page = shown.to_html()
        assert "data:image/svg+xml," in page
        assert shown.headline in page
        assert "https:" not in page
        assert max(map(len, str(shown).splitlines())) <= 112
    assert repr(ui.warp_map(request([BASE], 4))) == (
        "<warp map of line 7, warp 0: lane 0 only; each lane loads 4 bytes, argument 0: "
        "1 sector for 4 bytes used: 12.5 % of the bytes moved are used>"
    )


@pytest.mark.parametrize(
    ("lanes", "text"),
    [
        ([3], "3"), ([1, 2], "1, 2"), ([0, 1, 2, 3], "0–3"), (range(0, 32, 4), "0, 4, …, 28"),
        ([0, 1, 2, 9, 10, 20], "0–2, 9, 10, 20"), ([], ""),
    ],
)  # fmt: skip
def test_lanes_are_said_shortly(lanes, text):
    assert lane_range(lanes) == text


def test_folding_keeps_the_ends():
    assert folded(4, 5) == [0, 1, 2, 3]
    assert folded(9, 6) == [0, 1, 2, None, 7, 8]
