"""Groups of layers over one pool: a random walk against a dense model, and each rule by hand-worked figures."""

import pytest
from group_model import GroupModel, random_steps

from workbench.attention.kvcache import BlockManager, LayerGroup, OutOfBlocksError
from workbench.attention.kvcache.group_blocks import StateBlocks, TokenBlocks
from workbench.attention.kvcache.sequence import FREED
from workbench.attention.ui.cache.block_state import snapshot
from workbench.errors import ArgumentError

FULL, LATENT = LayerGroup("full", 4), LayerGroup("latent", 2, "latent")
WINDOW, CHUNKED = LayerGroup("window", 4, "window", 6), LayerGroup("chunked", 2, "chunked", 8)
STATE = LayerGroup("state", 8, "state")
MODELS = {
    "all five": ((FULL, WINDOW, CHUNKED, LATENT, STATE), 150),
    "two windows": ((FULL, WINDOW, LayerGroup("wide", 3, "window", 13)), 50),
    "latent and state": ((LATENT, STATE), 64),
    "states alone": ((STATE, LayerGroup("often", 2, "state")), 14),
}


def walked(name: str, steps: int, seed: int = 0, **options) -> GroupModel:
    groups, num_blocks = MODELS[name]
    model = GroupModel(
        BlockManager(num_blocks, groups=groups, num_host_blocks=90, **{"prefix_caching": True, **options})
    )
    random_steps(model, seed, steps)
    return model


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("name", "steps", "caching"),
    [
        ("all five", 2000, True), ("two windows", 600, True), ("latent and state", 600, True),
        ("states alone", 600, True), ("all five", 400, False),
    ],
)  # fmt: skip
def test_a_random_walk_agrees_with_a_dense_model(name, steps, caching):
    model = walked(name, steps, prefix_caching=caching)
    seen = model.outcomes
    if steps == 2000:  # the walk went everywhere, or it would prove little
        assert min(seen[what] for what in ("allocate", "append", "fork", "reorder", "swap out", "swap in")) > 20, seen
        assert min(seen["append: out of blocks"], seen["allocate: out of blocks"], seen["copies"]) > 20, seen
        assert model.manager.statistics().evictions > 100
    assert (seen["cached tokens"] > 20) == caching, seen
    for seq in list(model.history):
        model.free(seq)
        model.check()
    counts = model.manager.statistics()
    assert (counts.used_blocks, counts.used_host_blocks, counts.saved_blocks) == (0, 0, 0)
    assert model.manager.num_free_blocks == counts.num_blocks


def _frees_early(self, table, num_tokens):
    return max(table.first_live, (self.group.first_read(num_tokens) + 1) // self.size)


def _takes_first_group(self, chain, length, right=TokenBlocks.longest_hit):
    return right(self, chain, length) if self.group.kind != "state" else length


def _whole_window_unchecked(self, chain, length):
    return min(length // self.size, len(chain)) * self.size


def _moves_always(self, table, changes):
    return table.blocks[-1] if table.blocks else self.pool.take()


def _copies_nothing(self, table, changes, right=StateBlocks._running_page):
    page = right(self, table, changes)
    changes.copies.clear()
    return page


@pytest.mark.parametrize(
    ("kind", "method", "wrong"),
    [
        (TokenBlocks, "_first_needed", _frees_early),
        (TokenBlocks, "longest_hit", _takes_first_group),
        (TokenBlocks, "longest_hit", _whole_window_unchecked),
        (StateBlocks, "_running_page", _moves_always),
        (StateBlocks, "_running_page", _copies_nothing),
        (StateBlocks, "_writes_shared", lambda self, table, num_tokens: False),
        (TokenBlocks, "leave", lambda self, table, num_tokens: None),
    ],
)
def test_the_walk_catches_wrong_groups(monkeypatch, kind, method, wrong):
    monkeypatch.setattr(kind, method, wrong)
    with pytest.raises((AssertionError, IndexError, KeyError, TypeError)):
        _ = [walked(name, 200) for name in ("all five", "states alone")]


# -- by hand ----------------------------------------------------------------------------------------------------------


def table(manager, group, seq="a"):
    return [block == FREED for block in manager.block_table(seq, group)]


def test_each_group_keeps_what_its_next_token_reads():
    manager = BlockManager(40, groups=(FULL, WINDOW, CHUNKED, LATENT, STATE))
    manager.allocate("a", 10)
    for _ in range(10):
        manager.append("a")
    # The 20th token was appended when there were 19: a window of 6 begins at token 14, a chunk of 8 at token 16.
    assert table(manager, "full") == [False] * 5
    assert table(manager, "latent") == [False] * 10
    assert table(manager, "window") == [True] * 3 + [False] * 2
    assert table(manager, "chunked") == [True] * 8 + [False] * 2
    assert table(manager, "state") == [True, True, False]
    assert manager.statistics().used_blocks == 5 + 10 + 2 + 2 + 1
    counts = manager.statistics()
    assert (counts.num_slots, counts.filled_slots) == (20 + 20 + 8 + 4 + 1, 20 + 20 + 8 + 4 + 1)


def test_a_state_moves_with_its_page_and_is_copied_only_to_save_it():
    plain = BlockManager(4, groups=(STATE,))
    (page,) = plain.allocate("a", 1).slots
    assert all(plain.append("a").slots == [page] for _ in range(40))
    manager = BlockManager(4, groups=(STATE,), prefix_caching=True)
    manager.allocate("a", [0] * 7)
    copies = [manager.append("a", [0]).copies for _ in range(20)]
    assert [index for index, pairs in enumerate(copies) if pairs] == [1, 9, 17]  # after tokens 8, 16 and 24
    assert manager.statistics().used_blocks == 1
    assert manager.allocate("b", [0] * 25).num_cached_tokens == 24


def test_saving_a_state_takes_no_page_that_a_sequence_needs():
    manager = BlockManager(1, groups=(STATE,), prefix_caching=True)
    manager.allocate("a", [0] * 8)
    placed = manager.append("a", [0])
    assert (placed.copies, placed.slots) == ([], [0])
    assert manager.statistics().evictions == 1


def test_a_long_prompt_saves_its_last_whole_block():
    manager = BlockManager(8, groups=(STATE,), prefix_caching=True)
    placed = manager.allocate("a", [0] * 19)
    assert [place for place, slot in enumerate(placed.slots) if slot != FREED] == [15, 18]
    manager.free("a")
    again = manager.allocate("b", [0] * 18)
    assert again.num_cached_tokens == 16
    assert again.copies == [(placed.slots[15], again.slots[-1])]


def test_a_hit_is_as_long_as_every_group_can_continue():
    manager = BlockManager(40, groups=(FULL, WINDOW, STATE), prefix_caching=True)
    tokens = list(range(30))
    manager.allocate("a", tokens[:13])  # full blocks end at 12, the state was saved at 8
    assert manager.allocate("b", tokens[:15]).num_cached_tokens == 8
    manager.append("a", tokens[13:16])  # and now at 16
    assert manager.allocate("c", tokens).num_cached_tokens == 16
    # A window of 6 reads tokens 11 to 15 before token 16: its first two blocks are not missed.
    assert manager.block_table("c", "window")[:4] == [FREED, FREED, *manager.block_table("a", "window")[2:]]
    for seq in "abc":
        manager.free(seq)
    assert manager.allocate("d", tokens).num_cached_tokens == 24


def test_fork_shares_every_group_and_the_writer_copies_tails_and_states():
    manager = BlockManager(20, groups=(FULL, LATENT, STATE))
    manager.allocate("a", 6)  # 2 + 3 + 1 blocks; the last latent block is full
    manager.fork("a", "b")
    assert manager.statistics().used_blocks == 6
    placed = manager.append("b")
    sources = [manager.block_table("a", group)[-1] for group in ("full", "state")]
    assert [source for source, _ in placed.copies] == sources
    assert manager.append("a").copies == []


def test_swapping_moves_every_group():
    manager = BlockManager(20, groups=(FULL, WINDOW, STATE), num_host_blocks=8)
    manager.allocate("a", 11)
    manager.append("a")
    held = {group: manager.block_table("a", group) for group in ("full", "window", "state")}
    assert len(manager.swap_out("a")) == 3 + 2 + 1
    assert manager.num_free_blocks == 20
    manager.swap_in("a")
    assert {group: table(manager, group) for group in held} == {
        group: [block == FREED for block in blocks] for group, blocks in held.items()
    }


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: LayerGroup("a", 0), "block_size: got 0"),
        (lambda: LayerGroup("a", 4, "windows"), "Did you mean window?"),
        (lambda: LayerGroup("a", 4, "window"), "reach: missing"),
        (lambda: LayerGroup("a", 4, "chunked", 0), "reach: got 0"),
        (lambda: LayerGroup("a", 4, "state", 8), "None for state layers"),
        (lambda: BlockManager(8, groups=()), "one or more groups"),
        (lambda: BlockManager(8, groups=(FULL, LayerGroup("full", 8))), "names of their own"),
        (lambda: BlockManager(8, 16, groups=(FULL,)), "one or the other"),
        (lambda: BlockManager(8), "block_size: missing"),
        (lambda: BlockManager(8, groups=(FULL, STATE)).slots("a", group="full"), "never allocated"),
        (lambda: snapshot(BlockManager(8, groups=(FULL, STATE))), "manager with one group of layers"),
    ],
)
def test_refusals_name_the_remedy(call, text):
    with pytest.raises(ArgumentError, match=text.replace("?", r"\?")):
        call()


def test_an_unknown_group_is_named_with_the_known_ones():
    manager = BlockManager(8, groups=(FULL, WINDOW))
    manager.allocate("a", 3)
    with pytest.raises(ArgumentError, match=r"got 'windw'; allowed: full, window. Did you mean window\?"):
        manager.block_table("a", "windw")


def test_running_out_counts_the_blocks_of_all_groups():
    manager = BlockManager(6, groups=(FULL, LATENT, STATE))
    with pytest.raises(OutOfBlocksError, match="9 device blocks needed; available: 6 free") as caught:
        manager.allocate("a", 9)
    assert caught.value.preemptible == ()
