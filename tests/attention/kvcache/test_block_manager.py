"""BlockManager: each behaviour by itself, with the figures worked out by hand."""

import pathlib
import subprocess
import sys

import pytest

from workbench.attention.kvcache import BlockManager, OutOfBlocksError, SequenceStateError, UnknownSequenceError
from workbench.attention.kvcache.sequence import FREED
from workbench.errors import ArgumentError, WorkbenchError

SIZES = (1, 2, 3, 16)


def prompt(*blocks):
    """Blocks of four equal tokens."""
    return [token for token in blocks for _ in range(4)]


def test_importing_it_imports_no_torch():
    code = (
        "import sys; from workbench.attention.kvcache import BlockManager\n"
        "BlockManager(4, 2); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=pathlib.Path(__file__).parents[3])


@pytest.mark.parametrize("size", SIZES)
def test_blocks_come_on_demand_and_go_back(size):
    manager = BlockManager(8, size)
    for num_tokens in (0, 1, size - 1, size, size + 1, 3 * size):
        placement = manager.allocate("a", num_tokens)
        table = manager.block_table("a")
        assert len(table) == -(-num_tokens // size)
        assert placement.slots == [table[i // size] * size + i % size for i in range(num_tokens)]
        assert manager.slots("a") == placement.slots
        assert manager.num_free_blocks == 8 - len(table)
        manager.free("a")
        assert manager.num_free_blocks == 8
        assert "a" not in manager


@pytest.mark.parametrize("size", SIZES)
def test_append_takes_a_block_only_when_the_last_is_full(size):
    manager = BlockManager(8, size)
    manager.allocate("a", 1)
    for length in range(2, 3 * size + 2):
        placement = manager.append("a")
        assert manager.num_tokens("a") == length
        assert len(manager.block_table("a")) == -(-length // size)
        assert placement.slots == [manager.slots("a")[-1]]
        assert placement.copies == []


def test_freed_blocks_are_used_again():
    manager = BlockManager(3, 4)
    for seq in range(20):
        manager.allocate(seq, 12)
        assert sorted(manager.block_table(seq)) == [0, 1, 2]
        manager.free(seq)


def test_fork_shares_and_the_last_sharer_writes_in_place():
    manager = BlockManager(8, 4)
    manager.allocate("a", 6)
    full, partial = manager.block_table("a")
    manager.fork("a", "b")
    manager.fork("b", "c")
    assert manager.num_free_blocks == 6
    assert [manager.reference_count(block) for block in (full, partial)] == [3, 3]

    placement = manager.append_batch({"a": 1, "b": 1, "c": 1})
    assert [source for source, _ in placement.copies] == [partial, partial]
    copies = [target for _, target in placement.copies]
    assert placement.slots == [4 * copies[0] + 2, 4 * copies[1] + 2, 4 * partial + 2]
    assert [manager.block_table(seq) for seq in "abc"] == [[full, copies[0]], [full, copies[1]], [full, partial]]
    assert [manager.reference_count(block) for block in (full, partial, *copies)] == [3, 1, 1, 1]
    assert manager.append("a").copies == []


def test_fork_at_a_block_boundary_copies_nothing():
    manager = BlockManager(8, 4)
    manager.allocate("a", 8)
    manager.fork("a", "b")
    assert manager.append_batch({"a": 1, "b": 1}).copies == []
    assert manager.statistics().shared_blocks == 2


def test_statistics_of_sharing():
    manager = BlockManager(10, 4)
    manager.allocate("a", 9)  # 3 blocks, 3 slots free
    manager.fork("a", "b")
    manager.fork("a", "c")
    manager.append("c")  # its own copy of the last block: 2 slots free in it
    counts = manager.statistics()
    assert (counts.used_blocks, counts.shared_blocks, counts.saved_blocks) == (4, 3, 5)
    assert (counts.num_slots, counts.filled_slots, counts.wasted_slots) == (16, 11, 5)
    assert counts.sharing_saved == 5 / 9
    assert counts.prefix_hit_rate == 0.0


def test_reorder_is_simultaneous():
    manager = BlockManager(8, 4)
    for seq in "abc":
        manager.allocate(seq, 5)
    tables = {seq: manager.block_table(seq) for seq in "abc"}
    manager.reorder({"a": "b", "b": "a", "c": "b", "d": "c"})
    assert manager.block_table("a") == tables["b"]
    assert manager.block_table("b") == tables["a"]
    assert manager.block_table("c") == tables["b"]
    assert manager.block_table("d") == tables["c"]
    manager.reorder(dict.fromkeys("abcd", "a"))
    assert manager.num_free_blocks == 6
    assert manager.reference_count(tables["b"][0]) == 4


# -- sliding window and swapping --------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [1, 3, 4, 5, 9])
@pytest.mark.parametrize("size", [1, 4])
def test_window_frees_what_no_later_token_sees(window, size):
    manager = BlockManager(64, size, sliding_window=window)
    manager.allocate("a", 6)
    assert FREED not in manager.block_table("a")  # the first tokens of the prompt look back to its beginning
    for _ in range(30):
        manager.append("a")
        newest = manager.num_tokens("a") - 1
        seen = [position // size for position in range(max(0, newest - window + 1), newest + 1)]
        table = manager.block_table("a")
        assert [table[i] == FREED for i in range(len(table))] == [i < seen[0] for i in range(len(table))]
    assert manager.statistics().used_blocks <= -(-window // size) + 1
    assert manager.slots("a")[0] == FREED
    assert FREED not in manager.slots("a", newest - window + 1)


def test_a_block_that_leaves_the_window_serves_the_same_step():
    manager = BlockManager(2, 4, sliding_window=4)
    manager.allocate("a", 8)
    used = set()
    for _ in range(40):
        manager.append("a")
        used.add(manager.statistics().used_blocks)
    assert used == {1, 2}


def test_swap_keeps_sharing_and_comes_back():
    manager = BlockManager(8, 4, num_host_blocks=4)
    manager.allocate("a", 6)
    manager.fork("a", "b")
    manager.append("b")
    tables = {seq: manager.block_table(seq) for seq in "ab"}
    moved = dict(manager.swap_out("a", "b"))
    assert sorted(moved) == sorted({*tables["a"], *tables["b"]})
    assert manager.num_free_blocks == 8
    assert manager.is_swapped("a")
    assert manager.block_table("a") == [moved[block] for block in tables["a"]]
    assert manager.statistics().used_host_blocks == 3

    back = dict(manager.swap_in("a"))
    assert manager.block_table("a") == [back[moved[block]] for block in tables["a"]]
    assert manager.statistics().used_host_blocks == 2
    manager.free("b")
    assert manager.statistics().used_host_blocks == 0
    assert manager.num_tokens("a") == 6


def test_swap_in_moves_only_what_is_no_longer_cached():
    manager = BlockManager(4, 4, num_host_blocks=4, prefix_caching=True)
    manager.allocate("a", [*prompt(1, 2), 3])
    assert len(manager.swap_out("a")) == 3
    manager.allocate("b", 8)  # two free blocks: nothing is evicted
    manager.free("b")
    assert len(manager.swap_in("a")) == 1
    manager.swap_out("a")
    manager.allocate("b", 16)  # everything is
    manager.free("b")
    assert len(manager.swap_in("a")) == 3
    assert manager.allocate("c", prompt(1, 7)[:5]).num_cached_tokens == 4


# -- refusals: each leaves everything as it was -----------------------------------------------------------------------


def state(manager):
    return manager.statistics(), {seq: manager.block_table(seq) for seq in manager.sequences}, manager.sequences


def test_running_out_says_what_would_help():
    manager = BlockManager(6, 4, prefix_caching=True)
    manager.allocate("old", prompt(1))
    manager.free("old")  # one evictable block
    manager.allocate("a", 8)
    manager.allocate("b", 6)
    before = state(manager)
    with pytest.raises(OutOfBlocksError, match=r"3 device blocks needed; available: 1 free \+ 1 evictable") as caught:
        manager.allocate("c", 12)
    error = caught.value
    assert isinstance(error, WorkbenchError)
    assert (error.pool, error.needed, error.free, error.evictable) == ("device", 3, 1, 1)
    assert error.preemptible == ("b", "a")
    assert "'b', 'a' (newest first)" in str(error)
    with pytest.raises(OutOfBlocksError) as caught:
        manager.append_batch({"a": 8, "b": 3})
    assert (caught.value.needed, caught.value.preemptible) == (3, ())
    assert "No other sequence is running" in str(caught.value)
    assert state(manager) == before


def test_many_preemptible_sequences_are_not_all_named():
    manager = BlockManager(20, 1)
    for seq in range(20):
        manager.allocate(seq, 1)
    with pytest.raises(OutOfBlocksError, match="and 12 more") as caught:
        manager.allocate("c", 1)
    assert len(caught.value.preemptible) == 20


def test_a_cached_block_that_is_claimed_is_not_available():
    manager = BlockManager(3, 4, prefix_caching=True)
    manager.allocate("a", prompt(1, 2, 3))
    manager.free("a")
    with pytest.raises(OutOfBlocksError) as caught:
        manager.allocate("b", prompt(1, 2, 9, 9))
    assert (caught.value.needed, caught.value.free, caught.value.evictable) == (2, 0, 1)
    assert manager.statistics().evictable_blocks == 3


def test_swapping_without_room():
    manager = BlockManager(4, 4, num_host_blocks=1)
    manager.allocate("a", 5)
    before = state(manager)
    with pytest.raises(OutOfBlocksError, match="2 host blocks needed") as caught:
        manager.swap_out("a")
    assert (caught.value.pool, caught.value.free) == ("host", 1)
    assert state(manager) == before


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda m: m.free("gone"), UnknownSequenceError, "already freed"),
        (lambda m: m.free("never"), UnknownSequenceError, "never allocated"),
        (lambda m: m.fork("gone", "x"), UnknownSequenceError, "already freed"),
        (lambda m: m.append("gone"), UnknownSequenceError, "already freed"),
        (lambda m: m.append_batch({"a": 1, "never": 1}), UnknownSequenceError, "never allocated"),
        (lambda m: m.reorder({"a": "never"}), UnknownSequenceError, "never allocated"),
        (lambda m: m.swap_out("a", "never"), UnknownSequenceError, "never allocated"),
        (lambda m: m.block_table("never"), UnknownSequenceError, "never allocated"),
        (lambda m: m.fork("a", "b"), SequenceStateError, "child"),
        (lambda m: m.fork("a", "a"), SequenceStateError, "child"),
        (lambda m: m.allocate("a", 1), SequenceStateError, "not in use"),
        (lambda m: m.allocate("swapped", 1), SequenceStateError, "not in use"),
        (lambda m: m.append("swapped"), SequenceStateError, "swap_in first"),
        (lambda m: m.fork("swapped", "x"), SequenceStateError, "swap_in first"),
        (lambda m: m.reorder({"swapped": "a"}), SequenceStateError, "swap_in first"),
        (lambda m: m.swap_out("swapped"), SequenceStateError, "swap_in first"),
        (lambda m: m.slots("swapped"), SequenceStateError, "swap_in first"),
        (lambda m: m.swap_in("a"), SequenceStateError, "on the device already"),
        (lambda m: m.allocate("x", -1), ArgumentError, "tokens"),
        (lambda m: m.append("a", 0), ArgumentError, "at least 1"),
        (lambda m: m.append("a", []), ArgumentError, "at least 1"),
        (lambda m: m.append("a", 1.5), ArgumentError, "whole number"),
        (lambda m: m.append("a", [[1, 2]]), ArgumentError, "ids with a hash"),
        (lambda m: m.append_batch({"a": 1, "b": -1}), ArgumentError, "at least 1"),
        (lambda m: m.reference_count(99), ArgumentError, "0 to 15"),
    ],
)
def test_refusals_change_nothing(call, error, text):
    manager = BlockManager(16, 4, num_host_blocks=4)
    for seq in ("a", "b", "gone", "swapped"):
        manager.allocate(seq, 6)
    manager.free("gone")
    manager.swap_out("swapped")
    before = state(manager)
    with pytest.raises(error, match=text):
        call(manager)
    assert state(manager) == before


@pytest.mark.parametrize(
    "sizes",
    [
        {"num_blocks": 0},
        {"block_size": 0},
        {"block_size": -16},
        {"block_size": 16.0},
        {"block_size": True},
        {"block_size": "16"},
        {"num_host_blocks": -1},
        {"sliding_window": 0},
    ],
)
def test_impossible_sizes(sizes):
    with pytest.raises(ArgumentError, match=next(iter(sizes))):
        BlockManager(**{"num_blocks": 8, "block_size": 4, **sizes})
