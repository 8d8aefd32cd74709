"""Requests replayed in a contiguous cache: rows, order and bytes as the trace says."""

import pytest

from workbench.attention.cache_studies.replay import RowState, replay
from workbench.attention.cache_studies.traces import ALPACA, Request
from workbench.attention.kvcache import ContiguousKVCache
from workbench.errors import ArgumentError

FREE = RowState()


def make(rows=2, max_seqlen=16):
    return ContiguousKVCache(num_layers=1, max_batch_size=rows, max_seqlen=max_seqlen, num_kv_heads=1, head_size=1)


def test_step_by_step():
    """Two rows, three requests: the third takes the row that the first gives back."""
    cache = make()
    steps = list(replay([Request(3, 2), Request(5, 4), Request(1, 1)], cache))
    assert [step.rows for step in steps] == [
        (RowState(3, 1, 1), RowState(5, 1, 3)),
        (RowState(3, 2, 0), RowState(5, 2, 2)),
        (RowState(1, 1, 0), RowState(5, 3, 1)),
        (FREE, RowState(5, 4, 0)),
    ]
    assert [step.waiting for step in steps] == [1, 1, 0, 0]
    assert [step.tokens for step in steps] == [10, 12, 10, 9]
    assert [step.to_come for step in steps] == [4, 2, 1, 0]
    assert not cache.rows


def test_the_bytes_are_those_of_the_cache():
    trace = ALPACA.trace(40)
    cache = make(rows=4, max_seqlen=1024)
    served = 0
    for step in replay(trace, cache):
        taken = [row for row in step.rows if row != FREE]
        assert step.memory == cache.memory()
        assert step.memory.used_bytes == 4 * step.tokens
        assert step.memory.reserved_bytes == 4 * 1024 * len(taken)
        assert not step.waiting or len(taken) == 4, "a request waits although a row is free"
        served += sum(row.to_come == 0 for row in taken)
    assert served == len(trace)


@pytest.mark.parametrize(
    ("trace", "text"),
    [
        ([Request(3, 2), Request(9, 8)], r"trace\[1\].*max_seqlen = 16"),
        ([Request(3, 0)], r"trace\[0\].*one output token"),
    ],
)
def test_refusals_take_nothing(trace, text):
    cache = make()
    with pytest.raises(ArgumentError, match=text):
        replay(trace, cache)
    assert not cache.rows


def test_a_cache_in_use_is_refused():
    cache = make()
    cache.allocate(1, 3)
    with pytest.raises(ArgumentError, match=r"rows \[1\] in use"):
        replay([Request(3, 2)], cache)
    assert cache.rows == (1,)
