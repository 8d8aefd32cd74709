"""The sampling logic of GPU timing, on a clock that says what it is told to."""

from __future__ import annotations

import itertools

import pytest

from workbench.base.trials.trial import median_error
from workbench.tuning.measuring.gpu_state import GpuState
from workbench.tuning.measuring.gpu_timing import (
    LEAST_SAMPLES,
    LOAD_SECONDS,
    LOOK_SECONDS,
    MOST_SAMPLES,
    interleave,
    load,
    take_samples,
    under_load,
)


class ToldClock:
    method = "told"

    def __init__(self, times):
        self.times = itertools.cycle(times)
        self.order = []

    def prepare(self, run):
        return run

    def load(self, prepared):
        pass

    def sample(self, prepared):
        self.order.append(prepared)
        return next(self.times)


def test_a_quiet_clock_is_asked_the_least_and_a_noisy_one_the_most():
    assert take_samples(ToldClock([1.0]), None) == (1.0,) * LEAST_SAMPLES
    assert len(take_samples(ToldClock([1.0, 2.0, 3.0, 7.0]), None)) == MOST_SAMPLES


def test_the_median_s_error_falls_with_the_samples():
    few, many = [1.0, 1.1, 0.9] * 4, [1.0, 1.1, 0.9] * 16
    assert median_error(many) == pytest.approx(median_error(few) / 2)
    assert median_error([1.0] * 5) == 0


def test_leaders_take_turns_and_each_is_first_in_turn():
    clock = ToldClock([1.0])
    samples = interleave(clock, ["a", "b", "c"], rounds=3)
    assert [len(taken) for taken in samples] == [3, 3, 3]
    assert clock.order == list("abcbcacab")


@pytest.mark.parametrize("piece", [1e-4, 7e-3, 1.0])
def test_a_gpu_is_looked_at_while_it_works(piece):
    """Its clock is up after the load only, and down again when nothing is queued."""
    now, until = [0.0], [0.0]

    def sample():
        now[0] = until[0] = now[0] + piece

    def queue():
        until[0] += piece

    def look():
        assert until[0] >= now[0] + min(LOOK_SECONDS, piece)
        return GpuState(1980 if now[0] >= LOAD_SECONDS else 345)

    assert under_load(sample, queue, look, now=lambda: now[0]) == GpuState(1980)
    assert until[0] - now[0] <= max(LOOK_SECONDS, piece) + piece + 1e-9


@pytest.mark.parametrize("earlier", [0.0, 2.0])
def test_a_phase_in_which_the_gpu_is_slow_is_over_before_the_first_sample(earlier):
    """The GPU does the work of ``earlier`` seconds that is still queued, and is then slower for 12 ms."""

    class SlowedClock(ToldClock):
        now = 0.0

        def load(self, prepared):
            load(lambda: self.sample(prepared[0]), now=lambda: self.now)

        def sample(self, prepared):
            self.now = max(self.now, earlier)
            taken = 1.25e-3 if self.now < earlier + 0.012 else 1.1e-3
            self.now += taken
            return taken

    assert interleave(SlowedClock([]), ["a", "b"], rounds=3) == [(1.1e-3,) * 3] * 2
