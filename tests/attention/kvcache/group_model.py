"""A block manager with groups of layers beside a dense model: every token of every sequence, in plain lists.

As in kv_model one number stands for a token and everything before it. The pages are rows of numbers: a group that keeps
tokens has them slot by slot, a state group has the number of the last token that went into the state. The model does
what an engine does with a `Placement` (copies at once, then writes), and reads, for every sequence and group, what the
next token would read. What a call may cost, and how long a prefix hit must be, it reckons from the rules alone.
"""

from __future__ import annotations

import random
from collections import Counter
from weakref import WeakKeyDictionary

import numpy as np
from kv_model import VOCABULARY, Histories, check_pool

from workbench.attention.kvcache.sequence import FREED

MOST_TOKENS = 60


class GroupModel(Histories):
    """Does each step on a manager and on lists, then `check` compares them."""

    def __init__(self, manager):
        super().__init__(manager, manager)
        self.groups = manager.groups
        width = max(group.slots_per_block for group in self.groups)
        self.pages = np.zeros((manager.num_blocks, width), np.int64)
        self.host_pages = np.zeros((manager.num_host_blocks, width), np.int64)
        self.named = WeakKeyDictionary()

    def value(self, index: int, number: int) -> int:
        return number * len(self.groups) + index

    # -- steps --------------------------------------------------------------------------------------------------

    def allocate(self, seq: int, tokens, salt) -> None:
        numbers = self.follow(("root", salt), tokens)
        hit = 0 if isinstance(tokens, int) or not self.manager.prefix_caching else self.longest_hit(numbers)
        needed, available = self.cost_to_start(numbers, hit)
        placed = self.attempt("allocate", lambda: self.manager.allocate(seq, tokens, salt=salt))
        assert (placed is None) == (needed > available), f"{needed} needed, {available} available: {placed}"
        if placed is not None:
            assert placed.num_cached_tokens == hit
            self.outcomes["cached tokens"] += hit
            self.root[seq], self.history[seq] = ("root", salt), numbers
            self.write(placed, {seq: hit})

    def append(self, batch: dict) -> None:
        needed, available = self.cost_of(batch)
        starts = {seq: len(self.history[seq]) for seq in batch}
        placed = self.attempt("append", lambda: self.manager.append_batch(batch))
        assert (placed is None) == (needed > available), f"{needed} needed, {available} available: {placed}"
        if placed is not None:
            for seq, tokens in batch.items():
                self.history[seq] = self.history[seq] + self.follow(self.newest(seq), tokens)
            self.write(placed, starts)

    def swap_out(self, seqs: list[int]) -> None:
        pairs = self.attempt("swap out", lambda: self.manager.swap_out(*seqs))
        for source, target in pairs or ():
            self.host_pages[target] = self.pages[source]
        self.swapped.update(seqs if pairs is not None else ())

    def swap_in(self, seqs: list[int]) -> None:
        pairs = self.attempt("swap in", lambda: self.manager.swap_in(*seqs))
        for source, target in pairs or ():
            self.pages[target] = self.host_pages[source]
        self.swapped.difference_update(seqs if pairs is not None else ())

    def write(self, placed, starts: dict[int, int]) -> None:
        """Do the copies, all at once; then what a kernel does: read back from the first new token, write the new."""
        sources = [source for source, _ in placed.copies]
        targets = [target for _, target in placed.copies]
        assert not set(sources) & set(targets)
        assert len(set(targets)) == len(targets)
        self.pages[targets] = self.pages[sources]
        self.outcomes["copies"] += len(targets)
        for index, group in enumerate(self.groups):
            slots, written = list(placed.group_slots[index]), []
            for seq, start in starts.items():
                numbers = self.history[seq]
                new, slots = slots[: len(numbers) - start], slots[len(numbers) - start :]
                assert len(new) == len(numbers) - start
                if group.kind == "state":
                    kept = [(slot, start + place) for place, slot in enumerate(new) if slot != FREED]
                    if start and new:
                        assert self.pages[new[-1], 0] == self.value(index, numbers[start - 1]), "not the state before"
                    assert not new or new[-1] != FREED
                else:
                    kept = list(zip(new, range(start, len(numbers)), strict=True))
                    back = self.manager.slots(seq, group.first_read(start), start, group=group.name)
                    assert self.read(index, back) == [
                        self.value(index, number) for number in numbers[group.first_read(start) : start]
                    ]
                for slot, position in kept:
                    page, offset = divmod(slot, group.slots_per_block)
                    assert self.manager.reference_count(page) == 1, "a shared block is written"
                    self.pages[page, offset] = self.value(index, numbers[position])
                    written.append(slot)
            assert not slots
            assert len(set(written)) == len(written)

    def read(self, index: int, slots: list[int]) -> list[int]:
        assert FREED not in slots, "a token that is read has no slot"
        pages, offsets = np.divmod(np.array(slots, int), self.groups[index].slots_per_block)
        return self.pages[pages, offsets].tolist()

    # -- what must hold -----------------------------------------------------------------------------------------

    def check(self) -> None:
        assert set(self.manager.sequences) == set(self.history)
        for seq, numbers in self.history.items():
            assert self.manager.num_tokens(seq) == len(numbers)
            assert self.manager.is_swapped(seq) == (seq in self.swapped)
            if seq in self.swapped:
                continue
            for index, group in enumerate(self.groups):
                first = group.first_read(len(numbers))
                slots = self.manager.slots(seq, first, group=group.name)
                assert self.read(index, slots) == [self.value(index, number) for number in numbers[first:]]
        check_pool(self.manager._device, self.owners(host=False))
        check_pool(self.manager._host, self.owners(host=True))
        for block, contents in self.manager._device.contents.items():
            index = int(self.pages[block, 0]) % len(self.groups)
            numbers = self.numbers_of(contents)[-self.groups[index].slots_per_block :]
            row = [self.value(index, number) for number in numbers]
            assert self.pages[block, : len(row)].tolist() == row
        counts = self.manager.statistics()
        assert counts.used_blocks == len(self.owners(host=False))
        assert counts.filled_slots <= counts.num_slots

    def numbers_of(self, contents) -> list[int]:
        """The numbers of all tokens up to the end of a cached block."""
        if contents.parent is None:
            return []
        if contents not in self.named:
            root = contents
            while root.parent is not None:
                root = root.parent
            before = self.numbers_of(contents.parent)
            new = self.follow(before[-1] if before else ("root", root.tokens), contents.tokens)
            self.named[contents] = before + new
        return self.named[contents]

    def live(self, seq: int) -> list[tuple[int, int]]:
        """Group and block of everything that a sequence refers to."""
        return [
            (index, block)
            for index, group in enumerate(self.groups)
            for block in self.manager.block_table(seq, group.name)
            if block != FREED
        ]

    def owners(self, *, host: bool) -> Counter:
        seqs = [seq for seq in self.history if (seq in self.swapped) == host]
        return Counter(block for seq in seqs for _, block in self.live(seq))

    # -- plain reckoning ----------------------------------------------------------------------------------------

    def cached(self) -> dict[int, int]:
        """The cached blocks by what the last slot of each must hold."""
        found = {}
        for block, contents in self.manager._device.contents.items():
            index = int(self.pages[block, 0]) % len(self.groups)
            found[self.value(index, self.numbers_of(contents)[-1])] = block
        return found

    def blocks_of_hit(self, numbers: list[int], hit: int, cached: dict[int, int]) -> list[int] | None:
        """The cached blocks with which every group goes on from a prefix of ``hit`` tokens; None if one is missing."""
        found = []
        for index, group in enumerate(self.groups):
            size = group.block_size
            if hit % size:
                return None
            ends = range(group.first_read(hit) // size * size + size, hit + 1, size)
            found += [cached.get(self.value(index, numbers[end - 1])) for end in ends]
        return None if None in found else found

    def longest_hit(self, numbers: list[int]) -> int:
        cached = self.cached()
        lengths = range(len(numbers) - 1, 0, -1)
        return next((hit for hit in lengths if self.blocks_of_hit(numbers, hit, cached) is not None), 0)

    def cost_to_start(self, numbers: list[int], hit: int) -> tuple[int, int]:
        cached, owners, needed = self.cached(), self.owners(host=False), 0
        claimed = self.blocks_of_hit(numbers, hit, cached) if hit else []
        for index, group in enumerate(self.groups):
            if group.kind != "state":
                needed += -(-len(numbers) // group.block_size) - hit // group.block_size
            elif numbers:
                needed += not hit or owners[cached[self.value(index, numbers[hit - 1])]] > 0
        return needed, self.manager.num_blocks - len({*owners, *claimed})

    def cost_of(self, batch: dict) -> tuple[int, int]:
        owners = self.owners(host=False)
        for seq in batch:
            length = len(self.history[seq])
            for group in self.groups:
                gone = group.first_read(length) // group.block_size
                for block in self.manager.block_table(seq, group.name)[:gone]:
                    owners[block] -= block != FREED
        available = self.manager.num_blocks - sum(count > 0 for count in owners.values())
        needed = 0
        for seq, tokens in batch.items():
            length, new = len(self.history[seq]), tokens if isinstance(tokens, int) else len(tokens)
            for group in self.groups:
                table, state = self.manager.block_table(seq, group.name), group.kind == "state"
                if table and (state or length % group.block_size) and owners[table[-1]] > 1:
                    owners[table[-1]] -= 1
                    needed += 1
                needed += not table if state else -(-(length + new) // group.block_size) - len(table)
        return needed, available

    def snapshot(self) -> tuple:
        manager = self.manager
        tables = {seq: (self.live(seq), manager.num_tokens(seq)) for seq in manager.sequences}
        pools = [(list(p.counts), list(p._next), list(p._previous)) for p in (manager._device, manager._host)]
        return tables, pools, manager.statistics(), dict(manager._device.contents)


def random_steps(model: GroupModel, seed: int, steps: int) -> None:
    """Drive a model with seeded random steps, checking after each."""
    rng = random.Random(seed)
    names = iter(range(10**9))
    prompts = [rng.choices(VOCABULARY, k=40) for _ in range(3)]

    def some(seqs: list[int]) -> list[int]:
        return rng.sample(seqs, rng.randint(1, min(3, len(seqs))))

    def tokens(least: int, most: int):
        count = rng.randint(least, most)
        return rng.choices(VOCABULARY, weights=(6, 2, 1, 1), k=count) if rng.random() < 0.95 else count

    def grown(seq: int):
        """New tokens, often those with which the sequence's own prompt goes on: chunks of it."""
        start, known = len(model.history[seq]), rng.choice(prompts)
        return known[start : start + rng.randint(1, 12)] or tokens(1, 6) if rng.random() < 0.5 else tokens(1, 6)

    for _ in range(steps):
        running, swapped = model.running, sorted(model.swapped)
        growing = [seq for seq in running if len(model.history[seq]) < MOST_TOKENS]
        kind = rng.choices(
            ("allocate", "append", "fork", "reorder", "free", "swap out", "swap in"), (5, 14, 2, 1, 5, 2, 3)
        )[0]
        if kind == "allocate" and len(model.history) < 8:
            prompt = [*rng.choice(prompts)[: rng.randint(0, 40)], *rng.choices(VOCABULARY, k=rng.randint(0, 3))]
            prompt = prompt if rng.random() < 0.9 else len(prompt)
            model.allocate(next(names), prompt, rng.choice((None, None, None, "tenant")))
        elif kind == "append" and growing:
            model.append({seq: grown(seq) for seq in some(growing)})
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
