"""The prefix cache of BlockManager: what is found again, what is told apart, what is evicted first."""

import pytest

from workbench.attention.kvcache import BlockManager


def prompt(*blocks):
    """Blocks of four equal tokens."""
    return [token for token in blocks for _ in range(4)]


def test_a_freed_prompt_is_found_again():
    manager = BlockManager(8, 4, prefix_caching=True)
    first = manager.allocate("a", [*prompt(1, 2), 3])
    table = manager.block_table("a")
    assert first.num_cached_tokens == 0
    assert [manager.is_cached(block) for block in table] == [True, True, False]
    manager.free("a")
    counts = manager.statistics()
    assert (counts.used_blocks, counts.evictable_blocks, counts.free_blocks) == (0, 2, 6)

    again = manager.allocate("b", [*prompt(1, 2), 4])
    assert again.num_cached_tokens == 8
    assert manager.block_table("b")[:2] == table[:2]
    assert again.slots == [manager.block_table("b")[2] * 4]
    counts = manager.statistics()
    assert (counts.queried_tokens, counts.hit_tokens, counts.prefix_hit_rate) == (18, 8, 8 / 18)


def test_the_last_token_is_never_cached():
    manager = BlockManager(8, 4, prefix_caching=True)
    manager.allocate("a", prompt(1, 2))
    again = manager.allocate("b", prompt(1, 2))
    assert again.num_cached_tokens == 4
    assert len(again.slots) == 4


def test_generated_blocks_are_cached_too():
    manager = BlockManager(8, 4, prefix_caching=True)
    manager.allocate("a", [1, 1, 1])
    for token in (1, 2, 2, 2, 2):
        manager.append("a", [token])
    assert manager.allocate("b", prompt(1, 2, 3)).num_cached_tokens == 8


def test_a_live_sequence_is_shared_by_equal_prompts():
    manager = BlockManager(8, 4, prefix_caching=True)
    manager.allocate("a", prompt(1, 2))
    manager.allocate("b", prompt(1, 3))
    assert manager.reference_count(manager.block_table("a")[0]) == 2
    assert manager.statistics().saved_blocks == 1


@pytest.mark.parametrize("salts", [("x", "y"), (None, "x"), (1, 2)])
def test_salts_do_not_share(salts):
    manager = BlockManager(8, 4, prefix_caching=True)
    manager.allocate("a", prompt(1, 2), salt=salts[0])
    assert manager.allocate("b", prompt(1, 2), salt=salts[1]).num_cached_tokens == 0
    assert manager.allocate("c", prompt(1, 2), salt=salts[0]).num_cached_tokens == 4


def test_colliding_hashes_do_not_alias():
    ones, twos = [-1] * 4, [-2] * 4
    assert hash(tuple(ones)) == hash(tuple(twos))  # a property of CPython that makes the collision real
    manager = BlockManager(16, 4, prefix_caching=True)
    manager.allocate("a", ones + prompt(7, 8))
    manager.allocate("b", twos + prompt(7, 8))
    prefixes = [manager._sequences[seq].tables[0].prefix for seq in "ab"]
    assert prefixes[0].hash == prefixes[1].hash
    assert not set(manager.block_table("a")) & set(manager.block_table("b"))
    assert manager.allocate("c", twos + prompt(7, 9)).num_cached_tokens == 8
    assert manager.block_table("c")[:2] == manager.block_table("b")[:2]


def test_equal_blocks_after_different_beginnings_are_different():
    manager = BlockManager(8, 4, prefix_caching=True)
    manager.allocate("a", prompt(1, 2, 3))
    assert manager.allocate("b", prompt(2, 2, 3)).num_cached_tokens == 0


def test_eviction_is_least_recently_used_and_ends_before_beginnings():
    manager = BlockManager(4, 4, prefix_caching=True)
    for seq, token in (("a", 1), ("b", 2)):
        manager.allocate(seq, prompt(token, token))
    manager.free("a")
    manager.free("b")
    # The end of a is taken for the new block, and its beginning is used again.
    assert manager.allocate("c", prompt(1, 9)).num_cached_tokens == 4
    manager.free("c")
    manager.allocate("d", 4 * 2)  # in the place of the end of b, then of its beginning
    assert manager.statistics().evictions == 3
    assert manager.allocate("f", prompt(1, 7)[:5]).num_cached_tokens == 4
    manager.free("f")
    assert manager.allocate("g", prompt(2, 7)[:5]).num_cached_tokens == 0


def test_cached_blocks_are_taken_last():
    manager = BlockManager(3, 4, prefix_caching=True)
    manager.allocate("a", prompt(1))
    manager.free("a")
    manager.allocate("b", 8)
    assert manager.statistics().evictions == 0
    manager.append("b")
    assert manager.statistics().evictions == 1


def test_counted_tokens_are_not_cached():
    manager = BlockManager(8, 4, prefix_caching=True)
    manager.allocate("a", 8)
    manager.allocate("b", prompt(1))
    manager.append("b")  # from here on unknown
    manager.append("b", prompt(2))
    assert sum(manager.is_cached(block) for seq in "ab" for block in manager.block_table(seq)) == 1
    assert manager.statistics().queried_tokens == 4


def test_without_prefix_caching_nothing_is_kept():
    manager = BlockManager(8, 4)
    manager.allocate("a", prompt(1, 2))
    manager.free("a")
    assert manager.allocate("b", prompt(1, 2)).num_cached_tokens == 0
    assert manager.statistics().evictable_blocks == 0


def test_names_of_prefixes_vanish_with_what_they_name():
    manager = BlockManager(64, 1, prefix_caching=True)
    for seq in range(200):
        manager.allocate(seq, [seq, *range(50)])
        manager.free(seq)
    assert len(manager._groups.parts[0].prefixes) <= 2 * (64 + 1)


def test_a_very_long_chain_can_be_dropped():
    manager = BlockManager(50_000, 1, prefix_caching=True)
    manager.allocate("a", list(range(50_000)))
    manager.free("a")
    manager.allocate("b", list(range(50_000, 100_000)))  # takes every block of it
    assert manager.statistics().evictions == 50_000
    manager.free("b")
    assert len(manager._groups.parts[0].prefixes) <= 50_001


def test_arrays_are_token_ids():
    numpy = pytest.importorskip("numpy")
    manager = BlockManager(8, 4, prefix_caching=True)
    manager.allocate("a", numpy.array(prompt(1, 2)))
    assert manager.allocate("b", prompt(1, 2)).num_cached_tokens == 4
    assert manager.allocate("c", numpy.int64(3)).num_cached_tokens == 0
