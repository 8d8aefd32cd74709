"""Allocating, appending and freeing cost the same at 10^3 and at 10^6 blocks: steps are counted, not seconds.

Counted are the bytecodes that run and the array entries that are touched, both exactly repeatable. What neither sees is
one slow call into C over a whole list; the manager holds nothing as long as the pool but those arrays, which the last
test checks.
"""

import gc
import random
import sys
from array import array

import pytest

from workbench.attention.kvcache import BlockManager

SMALL, LARGE = 10**3, 10**6


class Counted:
    """An array that counts how often an entry is read or written."""

    def __init__(self, entries: array):
        self.entries, self.touched = entries, 0

    def __getitem__(self, index):
        self.touched += 1
        return self.entries[index]

    def __setitem__(self, index, value):
        self.touched += 1
        self.entries[index] = value


def counted_steps(work) -> int:
    """Bytecodes that run in the cache's modules during ``work()``."""
    steps = 0

    def local(frame, event, argument):
        nonlocal steps
        steps += event == "opcode"
        return local

    def start(frame, event, argument):
        if "kvcache" not in frame.f_code.co_filename or "tests" in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return local

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 counts in no frame unless one had it when the tracing began
    sys.settrace(start)
    try:
        work()
    finally:
        sys.settrace(before)
    return steps


def filled(num_blocks: int, **options) -> BlockManager:
    """A manager with most of its blocks in use and, with a prefix cache, a tenth of them evictable."""
    manager = BlockManager(num_blocks, 1, **options)
    count = num_blocks // 10
    for part in range(7):
        manager.allocate(("filler", part), count)
    manager.allocate("known", list(range(count)))
    manager.free(("filler", 3))
    manager.free("known")
    return manager


def life(manager: BlockManager) -> None:
    """Everything that a few sequences do in a while."""
    rng = random.Random(0)
    for round_ in range(5):
        for seq in range(4):
            manager.allocate(seq, [rng.randrange(3) for _ in range(20)])
        for _ in range(10):
            manager.append_batch({seq: [rng.randrange(3)] for seq in range(4)})
        manager.fork(0, "fork")
        manager.append_batch({0: [round_], "fork": [1]})
        manager.reorder({0: 1, 1: 0})
        for seq in (*range(4), "fork"):
            manager.free(seq)


@pytest.mark.parametrize("options", [{}, {"prefix_caching": True}, {"sliding_window": 8}])
@pytest.mark.sampled(3)
def test_steps_do_not_depend_on_the_number_of_blocks(options):
    steps, touched = {}, {}
    for num_blocks in (SMALL, LARGE):
        manager = filled(num_blocks, **options)
        pool = manager._device
        steps[num_blocks] = counted_steps(lambda manager=manager: life(manager))
        arrays = [Counted(entries) for entries in (pool.counts, pool._next, pool._previous)]
        pool.counts, pool._next, pool._previous = arrays
        life(manager)
        touched[num_blocks] = sum(one.touched for one in arrays)
    assert steps[SMALL] > 1000
    # Not 1 exactly: a pool of 1000 blocks evicts now and then. A walk over the pool would make it 1000.
    assert steps[LARGE] / steps[SMALL] == pytest.approx(1, abs=0.05), steps
    assert touched[LARGE] / touched[SMALL] == pytest.approx(1, abs=0.05), touched


def test_appending_does_not_depend_on_the_length_of_the_sequence():
    counts = []
    for length in (100, 100_000):
        manager = BlockManager(200_000, 1)
        manager.allocate("a", length)
        counts.append(counted_steps(lambda manager=manager: manager.append("a")))
    assert counts[0] == counts[1]


def test_nothing_else_is_as_long_as_the_pool():
    manager = BlockManager(LARGE, 16)
    gc.collect()
    seen, waiting, long = set(), [manager], []
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type):
            continue
        seen.add(id(one))
        if isinstance(one, array | list | dict | set | tuple) and len(one) > LARGE // 2:
            long.append(one)
        waiting += [one for one in gc.get_referents(one) if type(one).__module__.startswith(("workbench", "builtins"))]
        waiting += [value for value in getattr(one, "__dict__", {}).values() if isinstance(value, array)]
    assert {type(one) for one in long} == {array}
    assert len(long) == 3
    assert sum(one.itemsize for one in long) == 12  # bytes for each block
