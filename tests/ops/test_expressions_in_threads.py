"""Expressions of declarations, parsed by several threads at once, as a tuning run compiles."""

from __future__ import annotations

import gc
import sys
import threading

import pytest

from workbench.ops.expressions import Expression


@pytest.fixture
def eager():
    """Switch threads, and collect garbage, as often as possible."""
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(1)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*thresholds)


class Slow:
    """An object whose end, by the collector, lets another thread run."""

    def __del__(self):
        sum(range(2000))


def test_several_threads_parse_at_once(eager):
    texts = ["cdiv(" * depth + "n" + ", 2)" * depth for depth in range(1, 30, 3)]
    wrong = []

    def parse():
        for text in texts * 100:
            cycle = Slow()
            cycle.itself = cycle
            del cycle
            try:
                assert Expression.of("grid", text).names == ("n",)
            except Exception as error:
                wrong.append(f"{text}: {error!r}")

    threads = [threading.Thread(target=parse) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
