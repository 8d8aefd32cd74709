"""The planted faults of exact comparison: slips in PTX that count as faults are told from the right kernel."""

from __future__ import annotations

import itertools
import random

import pytest

from benchmarks import exact_faults
from benchmarks.exact_faults import Program, outcome


@pytest.mark.parametrize("name", ["rms_norm", "softmax_online"])
def test_slips_in_ptx_are_told(name: str) -> None:
    subject = Program(name)
    assert subject.answer().same
    slips = list(itertools.islice(exact_faults.slips(subject, random.Random(0)), 3))
    assert len(slips) == 3
    assert [outcome(*one)[0] for _, *one in slips] == ["told"] * 3
