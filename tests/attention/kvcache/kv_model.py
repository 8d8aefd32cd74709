"""A paged cache beside a model of it in plain dictionaries, and what must hold between the two after every step.

The model knows nothing of blocks: for each sequence it keeps one number per token, which stands for everything up to
that token (salt, tokens), as real keys and values do. That number is what is written to the cache, so that a block
which is shared, recycled, evicted, moved or copied wrongly shows as a wrong number.
"""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import torch

from workbench.attention.cache_formats.layouts import canonical_keys, canonical_values
from workbench.attention.kvcache.errors import OutOfBlocksError
from workbench.attention.kvcache.sequence import FREED

VOCABULARY = (0, 1, -1, -2)
"""Few tokens, so that prefixes repeat; the hashes of -1 and -2 are equal in Python, so that they also collide."""
NUM_LAYERS, HEAD_SIZE, MOST_TOKENS = 2, 4, 40


def make_cache(kind, *, num_blocks=28, block_size=4, num_host_blocks=12, layout="nhd", prefix_caching, sliding_window):
    """A small `PagedKVCache` (or a mutant of the class, ``kind``)."""
    return kind(
        num_layers=NUM_LAYERS,
        num_blocks=num_blocks,
        block_size=block_size,
        num_kv_heads=1,
        head_size=HEAD_SIZE,
        dtype=torch.float32,
        layout=layout,
        num_host_blocks=num_host_blocks,
        prefix_caching=prefix_caching,
        sliding_window=sliding_window,
    )


class Histories:
    """The sequences of a cache, or of its block manager, in plain dictionaries, and the steps that only rename them."""

    def __init__(self, stepped, manager):
        self.stepped, self.manager = stepped, manager
        self.history: dict[int, list[int]] = {}
        """What each token of each sequence must read as."""
        self.swapped: set[int] = set()
        self.root: dict[int, object] = {}
        self.meaning: dict[tuple, int] = {}
        """(what came before, token) -> its number."""
        self.fresh = 0
        self.outcomes: Counter[str] = Counter()

    @property
    def running(self) -> list[int]:
        return [seq for seq in self.history if seq not in self.swapped]

    def number(self, before, token) -> int:
        """The number that stands for ``token`` after ``before``; a token of None is unlike any other."""
        if token is None:
            self.fresh += 1
            token = ("unknown", self.fresh)
        return self.meaning.setdefault((before, token), len(self.meaning) + 1)

    def follow(self, before: object, tokens) -> list[int]:
        """The numbers of new tokens; tokens given as their number alone are unlike all others."""
        numbers = []
        for token in [None] * tokens if isinstance(tokens, int) else tokens:
            before = self.number(before, token)
            numbers.append(before)
        return numbers

    def newest(self, seq: int) -> object:
        """Return the number after which the next token of a sequence comes."""
        return self.history[seq][-1] if self.history.get(seq) else self.root[seq]

    def fork(self, parent: int, child: int) -> None:
        self.stepped.fork(parent, child)
        self.history[child], self.root[child] = self.history[parent], self.root[parent]
        self.outcomes["fork"] += 1

    def reorder(self, parents: dict[int, int]) -> None:
        self.stepped.reorder(parents)
        self.history.update({child: self.history[parent] for child, parent in parents.items()})
        self.root.update({child: self.root[parent] for child, parent in parents.items()})
        self.outcomes["reorder"] += 1

    def free(self, seq: int) -> None:
        self.stepped.free(seq)
        del self.history[seq]
        self.swapped.discard(seq)
        self.outcomes["free"] += 1

    def attempt(self, what: str, step):
        """The step's result, or None if there were too few blocks, in which case nothing may have changed."""
        before = self.snapshot()
        try:
            result = step()
        except OutOfBlocksError as caught:
            refusal = caught
        else:
            self.outcomes[what] += 1
            return result
        assert self.snapshot() == before
        assert refusal.needed > refusal.free + refusal.evictable
        assert set(refusal.preemptible) <= set(self.running)
        self.outcomes[f"{what}: out of blocks"] += 1
        return None


class Model(Histories):
    """Does each step on a `PagedKVCache` and on plain dictionaries, then `check` compares them."""

    def __init__(self, cache):
        super().__init__(cache, cache.manager)
        self.cache = cache

    # -- steps --------------------------------------------------------------------------------------------------

    def allocate(self, seq: int, tokens, salt) -> None:
        num_tokens = tokens if isinstance(tokens, int) else len(tokens)
        step = self.attempt("allocate", lambda: self.cache.allocate(seq, tokens, salt=salt))
        if step is None:
            assert self.blocks_of(num_tokens) > self.available()
            return
        self.root[seq] = ("root", salt)
        self.history[seq] = []
        numbers = self.history[seq] = self.follow(self.newest(seq), tokens)
        self.outcomes["cached tokens"] += step.num_cached_tokens
        assert step.num_cached_tokens < max(num_tokens, 1)
        self.write(step.slot_mapping, numbers[step.num_cached_tokens :])

    def append(self, batch: dict) -> None:
        needed, available = self.cost_of(batch)
        alone = next(iter(batch.items())) if len(batch) == 1 else None
        step = self.attempt("append", lambda: self.cache.append(*alone) if alone else self.cache.append_batch(batch))
        assert (step is None) == (needed > available), f"{needed} needed, {available} available: {step}"
        if step is None:
            return
        numbers = []
        for seq, tokens in batch.items():
            new = self.follow(self.newest(seq), tokens)
            numbers += new
            self.history[seq] = self.history[seq] + new
        self.write(step.slot_mapping, numbers)

    def swap_out(self, seqs: list[int]) -> None:
        distinct = {block for seq in seqs for block in self.live(seq)}
        moved = self.attempt("swap out", lambda: self.cache.swap_out(*seqs))
        free = self.manager.num_host_blocks - len(self.owners(host=True))
        if moved is None:
            assert len(distinct) > free
        else:
            assert moved == len(distinct)
            self.swapped.update(seqs)

    def swap_in(self, seqs: list[int]) -> None:
        distinct = {block for seq in seqs for block in self.live(seq)}
        available = self.available()
        moved = self.attempt("swap in", lambda: self.cache.swap_in(*seqs))
        if moved is None:
            assert len(distinct) > available
        else:
            assert moved <= len(distinct)
            self.outcomes["blocks not moved back"] += len(distinct) - moved
            self.swapped.difference_update(seqs)

    def write(self, slots: torch.Tensor, numbers: list[int]) -> None:
        assert len(set(slots.tolist())) == len(slots) == len(numbers)
        for slot in slots.tolist():
            assert self.manager.reference_count(slot // self.cache.block_size) == 1, "a shared block is written"
        for layer in range(NUM_LAYERS if numbers else 0):
            key, value = (torch.tensor(self.expected(numbers, layer, which))[:, None] for which in (0, 1))
            self.cache.write(layer, key, value, slots)

    # -- what must hold -----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Every invariant; an AssertionError says which is broken."""
        manager, size = self.manager, self.cache.block_size
        assert set(manager.sequences) == set(self.history)
        fill: dict[int, int] = {}
        for seq, numbers in self.history.items():
            assert manager.num_tokens(seq) == len(numbers)
            assert manager.is_swapped(seq) == (seq in self.swapped)
            table = manager.block_table(seq)
            assert len(table) == self.blocks_of(len(numbers))
            gone = table.count(FREED)
            assert table[:gone] == [FREED] * gone
            window = manager.sliding_window
            assert gone * size <= (0 if window is None else max(0, len(numbers) - window))
            if seq not in self.swapped:
                for logical, block in enumerate(table[gone:], gone):
                    filled = min(size, len(numbers) - logical * size)
                    assert fill.setdefault(block, filled) == filled
        check_pool(manager._device, self.owners(host=False))
        check_pool(manager._host, self.owners(host=True))
        self.check_statistics(fill)
        self.check_contents()

    def check_statistics(self, fill: dict[int, int]) -> None:
        counts, owners = self.manager.statistics(), self.owners(host=False)
        assert counts.used_blocks == len(owners)
        assert counts.used_blocks + counts.free_blocks + counts.evictable_blocks == counts.num_blocks
        assert counts.shared_blocks == sum(count > 1 for count in owners.values())
        assert counts.saved_blocks == sum(owners.values()) - len(owners)
        assert counts.used_host_blocks == len(self.owners(host=True))
        assert counts.filled_slots == sum(fill.values())
        assert counts.wasted_slots == len(fill) * self.cache.block_size - sum(fill.values())

    def check_contents(self) -> None:
        """Every sequence, and every cached block that nobody uses, reads as what was written."""
        for host in (False, True):
            slots, numbers = [], []
            for seq, history in self.history.items():
                if (seq in self.swapped) == host:
                    for position, (block, number) in enumerate(self.by_token(seq, history)):
                        if block != FREED:
                            slots.append(block * self.cache.block_size + position % self.cache.block_size)
                            numbers.append(number)
            if not host:
                for block, contents in self.manager._device.contents.items():
                    slots += range(block * self.cache.block_size, (block + 1) * self.cache.block_size)
                    numbers += self.numbers_of(contents)
            layers = self.cache._host_layers if host else self.cache.layers
            for layer, (key_cache, value_cache) in enumerate(layers):
                keys = canonical_keys(key_cache, self.cache.layout).reshape(-1, HEAD_SIZE)
                values = canonical_values(value_cache, self.cache.layout).reshape(-1, HEAD_SIZE)
                for which, cache in enumerate((keys, values)):
                    assert np.array_equal(cache.numpy()[slots], self.expected(numbers, layer, which))

    def by_token(self, seq: int, history: list[int]):
        table = self.manager.block_table(seq)
        return [(table[position // self.cache.block_size], number) for position, number in enumerate(history)]

    def numbers_of(self, contents) -> list[int]:
        """The numbers of the tokens of a cached block, from the names of all the blocks before it."""
        chain = []
        while contents.parent is not None:
            chain.insert(0, contents.tokens)
            contents = contents.parent
        before, numbers = ("root", contents.tokens), []
        for tokens in chain:
            numbers = []
            for token in tokens:
                before = self.number(before, token)
                numbers.append(before)
        return numbers

    # -- plain reckoning ----------------------------------------------------------------------------------------

    @staticmethod
    def expected(numbers: list[int], layer: int, which: int) -> np.ndarray:
        """``[num_tokens, HEAD_SIZE] float32``: exact below 2^24."""
        first = np.array(numbers, dtype=np.float32).reshape(-1, 1) * 16 + layer * 8 + which * 4
        return first + np.arange(HEAD_SIZE, dtype=np.float32)

    def blocks_of(self, num_tokens: int) -> int:
        return -(-num_tokens // self.cache.block_size)

    def live(self, seq: int) -> list[int]:
        return [block for block in self.manager.block_table(seq) if block != FREED]

    def owners(self, *, host: bool) -> Counter:
        return Counter(block for seq in self.history if (seq in self.swapped) == host for block in self.live(seq))

    def available(self) -> int:
        return self.manager.num_blocks - len(self.owners(host=False))

    def cost_of(self, batch: dict) -> tuple[int, int]:
        """Blocks that an append must take, and how many there are, by following the rules token by token."""
        owners, size = self.owners(host=False), self.cache.block_size
        for seq in batch:
            if self.manager.sliding_window is not None:
                for logical, block in enumerate(self.manager.block_table(seq)):
                    if block != FREED and (logical + 1) * size <= len(self.history[seq]) + 1 - (
                        self.manager.sliding_window
                    ):
                        owners[block] -= 1
        available = self.manager.num_blocks - sum(count > 0 for count in owners.values())
        needed = 0
        for seq, tokens in batch.items():
            length = len(self.history[seq])
            if length % size and owners[self.manager.block_table(seq)[-1]] > 1:
                owners[self.manager.block_table(seq)[-1]] -= 1
                needed += 1
            new = tokens if isinstance(tokens, int) else len(tokens)
            needed += self.blocks_of(length + new) - self.blocks_of(length)
        return needed, available

    def snapshot(self) -> tuple:
        manager = self.manager
        tables = {seq: (manager.block_table(seq), manager.num_tokens(seq)) for seq in manager.sequences}
        pools = [(list(p.counts), list(p._next), list(p._previous)) for p in (manager._device, manager._host)]
        return tables, pools, manager.statistics(), dict(manager._device.contents)


def check_pool(pool, owners: Counter) -> None:
    """No leak, no double ownership: a block is free, or has as many references as tables name it."""
    assert [pool.counts[block] for block in range(pool.num_blocks)] == [owners[b] for b in range(pool.num_blocks)]
    free, block = [], pool.front
    while block != pool.num_blocks:
        assert pool._next[pool._previous[block]] == block
        free.append(block)
        block = pool._next[block]
        assert len(free) <= pool.num_blocks
    assert sorted(free) == [block for block in range(pool.num_blocks) if not owners[block]]
    assert pool.num_free == len(free)
    if hasattr(pool, "contents"):
        assert pool.num_evictable == sum(block in pool.contents for block in free)
        assert all(contents.block == block for block, contents in pool.contents.items())
        cached = [block in pool.contents for block in free]
        assert cached == sorted(cached), "cached blocks are evicted while others are free"


def random_steps(model: Model, seed: int, steps: int) -> None:
    """Drive a model with seeded random steps, checking after each."""
    rng = random.Random(seed)
    names = iter(range(10**9))

    prompts = [rng.choices(VOCABULARY, k=16) for _ in range(3)]

    def tokens(most: int, least: int):
        count = rng.randint(least, most)
        return rng.choices(VOCABULARY, weights=(6, 2, 1, 1), k=count) if rng.random() < 0.9 else count

    def prompt():
        known = rng.choice(prompts)[: rng.randint(0, 16)]
        return known + rng.choices(VOCABULARY, k=rng.randint(0, 4)) if rng.random() < 0.9 else len(known)

    def some(seqs: list[int]) -> list[int]:
        return rng.sample(seqs, rng.randint(1, min(3, len(seqs))))

    for _ in range(steps):
        running, swapped = model.running, sorted(model.swapped)
        growing = [seq for seq in running if len(model.history[seq]) < MOST_TOKENS]
        kind = rng.choices(
            ("allocate", "append", "fork", "reorder", "free", "swap out", "swap in"), (5, 12, 3, 1, 5, 2, 2)
        )[0]
        if kind == "allocate" and len(model.history) < 8:
            model.allocate(next(names), prompt(), rng.choice((None, None, "tenant")))
        elif kind == "append" and growing:
            model.append({seq: tokens(4, 1) for seq in some(growing)})
        elif kind == "fork" and running and len(model.history) < 8:
            model.fork(rng.choice(running), next(names))
        elif kind == "reorder" and running:
            model.reorder({seq: rng.choice(running) for seq in some(running)})
        elif kind == "free" and model.history:
            model.free(rng.choice(list(model.history)))
        elif kind == "swap out" and running:
            model.swap_out(some(running))
        elif kind == "swap in" and swapped:
            model.swap_in(some(swapped))
        else:
            continue
        model.check()
