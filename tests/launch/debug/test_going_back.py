"""A session that goes back shows, bit for bit, the state of the first time."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import sessions

from workbench.launch.debug import DebugSession

KERNELS: dict[str, Callable[[], DebugSession]] = {
    "softmax": sessions.softmax,
    "triton": sessions.in_triton,
    "tma": lambda: sessions.hopper("doubled"),
    "wgmma": lambda: sessions.hopper("pipeline"),
    "cluster": lambda: sessions.hopper("row_sums"),
    "mbarrier": lambda: sessions.ring("ring"),
    "tcgen05": sessions.in_tensor_memory,
    "atomics": sessions.atomics,
    "calls": sessions.calls,
    "cp.async": lambda: sessions.ring("copies"),
}
POINTS = 20


@pytest.mark.parametrize("name", KERNELS)
def test_a_point_of_the_history_looks_the_same_each_time(name):
    rng = random.Random(name)
    with KERNELS[name]() as session:
        session.to_end()
        end = session.index
        result = sessions.seen(session)
        points = sorted(rng.sample(range(end), min(POINTS, end)))
        session.goto(0)
        first = {}
        for point in points:
            session.goto(point)
            first[point] = sessions.seen(session)
            assert session.index == point
        rng.shuffle(points)
        for point in points:
            session.goto(point)
            assert sessions.seen(session) == first[point], point
        session.to_end()
        assert session.index == end
        assert sessions.seen(session) == result
