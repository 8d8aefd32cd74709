"""Wrong managers are caught by the very walk that passes the right one.

A mutant is one change to the text of a module of the cache, as a slip of the hand would make it; the modules are loaded
anew with it, and the seeded walk of kv_model must fail within a few thousand steps.
"""

import importlib.util
import sys
from dataclasses import dataclass
from types import ModuleType
from unittest import mock

import pytest
from kv_model import Model, make_cache, random_steps
from sampling import named

MODULES = ("prefixes", "block_pool", "sequence", "block_manager", "paged")
"""Modules of workbench.attention.kvcache, in the order in which they import each other."""

WALKS = (
    {"prefix_caching": True, "sliding_window": None},
    {"prefix_caching": True, "sliding_window": 6},
    {"prefix_caching": False, "sliding_window": 5, "layout": "x", "block_size": 3},
)


@dataclass(frozen=True)
class Mutant:
    """In ``module``, replace the only occurrence of ``old`` by ``new``."""

    name: str
    module: str
    old: str
    new: str


MUTANTS = (
    Mutant("no copy-on-write", "block_manager", "self._device.counts[record.table[-1]] > 1", "False"),
    Mutant(
        "copy-on-write of full blocks only", "block_manager", "self.block_size != 0 and", "self.block_size == 0 and"
    ),
    Mutant("copies not counted", "block_manager", "sharers - (sharers == counts[block])", "0"),
    Mutant("one copy too many counted", "block_manager", "sharers - (sharers == counts[block])", "sharers"),
    Mutant("source keeps its reference", "block_manager", "self._device.release(source)", "pass"),
    Mutant("copies not passed on", "block_manager", "copies.append((source, record.table[-1]))", "pass"),
    Mutant(
        "copies reversed", "block_manager", "append((source, record.table[-1]))", "append((record.table[-1], source))"
    ),
    Mutant("copies not performed", "paged", "if placement.copies:", "if False:"),
    Mutant(
        "values not copied",
        "paged",
        "[value for _, value in self.layers], pairs",
        "[key for key, _ in self.layers], pairs",
    ),
    Mutant(
        "fork forgets the references",
        "block_manager",
        "        for block in record.live:\n            self._device.share(block)\n        self._sequences[child]",
        "        self._sequences[child]",
    ),
    Mutant("fork shares the table", "sequence", "SequenceRecord(self.table.copy(),", "SequenceRecord(self.table,"),
    Mutant("fork shares the tail", "sequence", "self.prefix, self.tail.copy())", "self.prefix, [])"),
    Mutant(
        "reorder keeps the references of what it drops",
        "block_manager",
        "            self._release_all(record)\n        self._sequences.update",
        "            pass\n        self._sequences.update",
    ),
    Mutant(
        "free forgets the first block", "block_manager", "in reversed(record.live):", "in reversed(record.live[1:]):"
    ),
    Mutant("free leaves the sequence", "block_manager", "        del self._sequences[seq]\n", ""),
    Mutant(
        "evicted contents are still found",
        "block_pool",
        "            contents.block = None\n            self.num_evictable",
        "            self.num_evictable",
    ),
    Mutant(
        "an idle hit stays in the queue",
        "block_pool",
        "            self.take_from_queue(block)\n            self.num",
        "            self.counts[block] = 1\n            self.num",
    ),
    Mutant(
        "a hit takes no reference",
        "block_pool",
        "        if self.counts[block]:\n            self.share(block)",
        "        if self.counts[block]:\n            pass",
    ),
    Mutant("idle hits count as free", "block_manager", "num_free - idle + gained:", "num_free + gained:"),
    Mutant(
        "blocks gained from the window not counted", "block_manager", "num_free - idle + gained:", "num_free - idle:"
    ),
    Mutant(
        "contents listed under the next block",
        "block_pool",
        "self.contents[block] = contents",
        "self.contents[block + 1] = contents",
    ),
    Mutant("duplicates take the name over", "block_pool", "if contents.block is None:", "if True:"),
    Mutant(
        "cached blocks are reused first", "block_pool", "self.drop(block, keep=keep)", "self.drop(block, keep=not keep)"
    ),
    Mutant("salt ignored", "prefixes", "return self.extend(None, salt)", "return self.extend(None, None)"),
    Mutant("parent ignored", "prefixes", "key = (parent, tokens)  #", "key = (parent and None, tokens)  #"),
    Mutant("only hashes compared", "prefixes", "__eq__ = object.__eq__", "__eq__ = lambda a, b: hash(a) == hash(b)"),
    Mutant(
        "the last block of a prompt is shared too",
        "prefixes",
        "(len(tokens) - 1) // block_size",
        "len(tokens) // block_size",
    ),
    Mutant(
        "unknown tokens do not end the known ones", "block_manager", "record.prefix, record.tail = None, []\n", "pass\n"
    ),
    Mutant("the tail is forgotten", "block_manager", "record.tail = tokens[full:]", "record.tail = []"),
    Mutant("window one token too short", "sequence", "+ 1 - sliding_window", "+ 2 - sliding_window"),
    Mutant("window frees but keeps the entry", "block_manager", "record.table[logical] = FREED\n", "pass\n"),
    Mutant("window never frees", "sequence", "if sliding_window is None:", "if True:"),
    Mutant("swap loses sharing on the host", "block_manager", "self._host.share(moved[block])", "pass"),
    Mutant("swap loses sharing on the device", "block_manager", "self._device.share(moved[block])", "pass"),
    Mutant("resident contents claimed too late", "block_manager", "self._device.claim(resident[block])", "pass"),
    Mutant(
        "swap out keeps the device blocks",
        "block_manager",
        "            self._release_all(record)\n            record.table",
        "            record.table",
    ),
    Mutant(
        "swap in keeps the host blocks",
        "block_manager",
        "                self._release_host(block)\n            record.table",
        "                pass\n            record.table",
    ),
    Mutant("host blocks keep old contents", "block_manager", "self._host_contents.pop(block, None)", "pass"),
    Mutant("swapped blocks not moved", "paged", "swap_blocks(source_caches, target_caches, mapping)", "pass"),
    Mutant("slots off by one", "block_manager", "- logical) * size", "- logical) * size + 1"),
    Mutant(
        "queue loses its back link",
        "block_pool",
        "self._next[before], self._previous[after] = after, before",
        "self._next[before] = after",
    ),
)


def load(mutant: Mutant | None) -> type:
    """`PagedKVCache` over freshly loaded modules, one of them changed."""
    names = {f"workbench.attention.kvcache.{module}": module for module in MODULES}
    with mock.patch.dict(sys.modules):
        for name in names:
            sys.modules.pop(name, None)
        for name, module in names.items():
            text = importlib.util.find_spec(name).loader.get_source(name)
            if mutant is not None and mutant.module == module:
                assert text.count(mutant.old) == 1, f"{mutant.old!r} occurs {text.count(mutant.old)} times"
                text = text.replace(mutant.old, mutant.new)
            sys.modules[name] = loaded = ModuleType(name)
            exec(compile(text, f"<{mutant and mutant.name}: {module}>", "exec"), loaded.__dict__)
        return loaded.PagedKVCache


def walk(kind: type) -> None:
    for seed in range(2):
        for configuration in WALKS:
            random_steps(Model(make_cache(kind, **configuration)), seed, steps=600)


@pytest.mark.long
def test_the_unchanged_text_passes():
    walk(load(None))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("mutant", named(MUTANTS))
def test_mutant_is_caught(mutant):
    kind = load(mutant)
    with pytest.raises(Exception):  # noqa: B017, PT011 - an assertion of the walk, or a crash on the way
        walk(kind)
