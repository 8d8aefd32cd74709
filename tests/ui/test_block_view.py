"""The live view of the block manager, driven through its methods and traits as the browser drives it."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("matplotlib", reason='no matplotlib: python -m pip install -e ".[lab]"')
pytest.importorskip("anywidget", reason='no widgets: python -m pip install -e ".[lab]"')

import matplotlib

matplotlib.use("Agg")

from workbench.attention.kvcache import BlockManager
from workbench.attention.ui.cache.block_picture import block_picture
from workbench.attention.ui.cache.block_state import describe, snapshot
from workbench.attention.ui.cache.block_view import BlockView
from workbench.errors import ArgumentError


@pytest.fixture
def view():
    """A over blocks 0 and 1, two of the four slots of block 1 filled."""
    found = BlockView(BlockManager(6, 4, num_host_blocks=2))
    found.allocate(6)
    return found


def press(view: BlockView, action: str, *arguments) -> None:
    """What the browser sends when a button is clicked."""
    view._handle_custom_msg({"action": action, "arguments": list(arguments)}, [])


def tables(view: BlockView) -> dict[str, list[int]]:
    return {seq["name"]: [block["physical"] for block in seq["blocks"]] for seq in view.state["sequences"]}


def block(view: BlockView, number: int, place: str = "blocks") -> dict:
    return view.state[place][number]


def test_allocate(view):
    press(view, "allocate", 3)
    assert tables(view) == {"A": [0, 1], "B": [2]}
    assert view.manager.num_tokens("B") == 3
    assert view.changed == [2]
    assert (view.message, view.refused) == ("allocate B: 3 slots to write, 8–10", False)


def test_append(view):
    press(view, "append", "A")
    assert view.message == "append to A: write slot 6"
    assert block(view, 1)["filled"] == 3
    assert view.changed == [1]
    view.append("A", 2)
    assert tables(view) == {"A": [0, 1, 2]}
    assert view.state["num_free_blocks"] == 3
    assert view.changed == [1, 2]


def test_fork_shares_and_the_next_append_copies(view):
    press(view, "fork", "A")
    assert tables(view) == {"A": [0, 1], "B": [0, 1]}
    assert [owner["name"] for owner in block(view, 1)["owners"]] == ["A", "B"]
    assert block(view, 1)["references"] == view.manager.reference_count(1) == 2
    assert "nothing is copied" in view.message
    press(view, "append", "B")
    assert tables(view) == {"A": [0, 1], "B": [0, 2]}
    assert "copy block 1 to block 2 (copy-on-write)" in view.message
    assert block(view, 1)["references"] == 1
    press(view, "append", "A")  # the other one owns its block alone now
    assert "copy" not in view.message


def test_free(view):
    view.fork("A")
    press(view, "free", "A")
    assert tables(view) == {"B": [0, 1]}
    assert view.message == "free A: 0 device blocks became free"
    press(view, "free", "B")
    assert view.message == "free B: 2 device blocks became free"
    assert view.state["num_free_blocks"] == 6


def test_swap(view):
    press(view, "swap_out", "A")
    assert view.state["sequences"][0]["swapped"]
    assert view.state["num_free_blocks"] == 6
    assert [block(view, number, "host_blocks")["references"] for number in (0, 1)] == [1, 1]
    assert block(view, 1, "host_blocks")["filled"] == 2
    assert view.message == "swap out A: copy block 0 to host block 0, block 1 to host block 1"
    press(view, "swap_in", "A")
    assert not view.state["sequences"][0]["swapped"]
    assert block(view, 0, "host_blocks")["references"] == 0
    assert view.changed == tables(view)["A"]


@pytest.mark.parametrize(
    ("action", "arguments", "words"),
    [
        ("allocate", (100,), "25 device blocks needed; available: 4 free"),
        ("allocate", (0.5,), "tokens"),
        ("allocate", (None,), "tokens"),
        ("append", ("Z",), "'Z', never allocated"),
        ("append", ("A", 100), "25 device blocks needed"),
        ("fork", ("Z",), "never allocated"),
        ("free", ("Z",), "never allocated"),
        ("swap_out", ("Z",), "never allocated"),
        ("swap_in", ("A",), "This one is on the device already"),
    ],
)
def test_a_refusal_shows_the_managers_own_words_and_changes_nothing(view, action, arguments, words):
    before = view.state
    press(view, action, *arguments)
    assert view.refused
    assert "refused" in view.message
    assert words in view.message
    assert view.state == before == snapshot(view.manager)
    assert view.changed == []
    press(view, "append", "A")
    assert not view.refused


def test_swapping_out_into_too_little_host_memory_is_refused(view):
    view.append("A", 4)
    press(view, "swap_out", "A")
    assert view.refused
    assert "3 host blocks needed" in view.message


def test_only_the_buttons_can_be_called(view):
    before = view.state
    for action in ("refresh", "close", "__init__", "_do", None):
        press(view, action)
    assert view.state == before
    assert view.comm is None or not view.refused


def test_a_name_keeps_its_colour_and_is_not_used_again(view):
    view.fork("A")
    styles = {seq["name"]: seq["style"] for seq in view.state["sequences"]}
    view.free("A")
    view.allocate(1)
    again = {seq["name"]: seq["style"] for seq in view.state["sequences"]}
    assert again == {"B": styles["B"], "C": 2}


def test_refresh_shows_what_other_code_did(view):
    view.manager.append("A", 3)
    assert tables(view) == {"A": [0, 1]}
    view.refresh()
    assert tables(view) == {"A": [0, 1, 2]}


def test_sequences_need_names_that_a_button_can_send():
    manager = BlockManager(4, 4)
    manager.allocate(7, 3)
    with pytest.raises(ArgumentError, match="names that are strings"):
        BlockView(manager)


def test_prefix_cache_and_salt():
    view = BlockView(BlockManager(6, 2, prefix_caching=True))
    view.allocate([1, 2, 3], salt="x")
    view.free("A")
    assert block(view, 0)["cached"]
    assert "cached, owned by nobody: 0" in repr(view)
    view.allocate([1, 2, 3], salt="x")
    assert "2 tokens found in the prefix cache" in view.message
    view.allocate([1, 2, 3], salt="y")
    assert "prefix cache" not in view.message


def test_sliding_window_shows_freed_blocks():
    view = BlockView(BlockManager(6, 2, sliding_window=2))
    view.allocate(6)
    view.append("A")
    assert tables(view)["A"][:2] == [None, None]
    assert "A: 7 tokens in blocks [–, –," in repr(view)
    block_picture(view.manager)


def test_the_text_is_the_same_for_the_same_blocks(view):
    other = BlockView(BlockManager(6, 4, num_host_blocks=2))
    other.allocate(6)
    assert repr(view) == repr(other) == describe(snapshot(other.manager))
    assert repr(view) == "6 blocks of 4 tokens, 4 free\n  A: 6 tokens in blocks [0, 1]"
    view.fork("A")
    assert repr(view).endswith("shared (references): 0 (2), 1 (2)")


def test_without_a_browser_there_is_a_picture_and_text(view):
    data, _ = view._repr_mimebundle_()
    assert set(data) == {"text/plain", "text/html", "application/vnd.jupyter.widget-view+json"}
    assert data["text/plain"] == repr(view)
    assert "data:image/svg+xml," in data["text/html"]


def test_the_picture_shows_owners_in_words_and_slots():
    view = BlockView(BlockManager(6, 4, num_host_blocks=2))
    view.allocate(6)
    view.fork("A")
    view.append("B")
    texts = {text.get_text() for text in block_picture(view.manager, "title").texts}
    assert {"A, B (2 refs)", "A (1 ref)", "B (1 ref)", "free", "1 → 2", "device memory", "host memory"} <= texts
    hatches = {patch.get_hatch() for patch in block_picture(view.manager).patches}
    assert {"///"} < hatches, "the second owner is told from the first without colour"
    frames = [(patch.get_edgecolor(), patch.get_linewidth()) for patch in block_picture(view.manager).patches]
    assert len(set(frames)) > 3, "frames tell how many sequences refer to a block"
    view.swap_out("A")
    assert "1 → host 1" in {text.get_text() for text in block_picture(view.manager).texts}
    empty = block_picture(BlockManager(2, 4))
    assert "no sequences" in {text.get_text() for text in empty.texts}


def test_nothing_is_fetched():
    """Inline code without imports or addresses: the view works on a machine without a network."""
    for text in (BlockView._esm, BlockView._css):
        assert not re.search(r"https?:|\bimport\b|url\(|fetch\(", str(text))
