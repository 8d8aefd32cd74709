"""Parameters that every run takes, and those that are left to ``-m long``.

``@pytest.mark.sampled(3)`` on a test with many parameters: every run takes each third of them (see conftest.py).
"""

from __future__ import annotations

from collections import Counter

import pytest


def mark_sampled(items: list[pytest.Item]) -> None:
    """Make those long that ``sampled`` leaves out; the first of each test stays."""
    seen = Counter()
    for item in items:
        marker = item.get_closest_marker("sampled")
        if marker is None or item.get_closest_marker("long"):
            continue
        test = item.nodeid.split("[")[0]
        if seen[test] % marker.args[0]:
            item.add_marker(pytest.mark.long)
        seen[test] += 1


def long_if(long, *values, **options):
    """A parameter that only ``-m long`` takes where ``long`` is true."""
    return pytest.param(*values, marks=[pytest.mark.long] if long else [], **options)
