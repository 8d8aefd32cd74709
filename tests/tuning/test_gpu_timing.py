"""The sampling logic of GPU timing, on a clock that says what it is told to."""

from __future__ import annotations

import itertools

import pytest

from workbench.tuning.gpu_timing import LEAST_SAMPLES, MOST_SAMPLES, interleave, median_error, take_samples


class ToldClock:
    method = "told"

    def __init__(self, times):
        self.times = itertools.cycle(times)
        self.order = []

    def prepare(self, run):
        return run

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
