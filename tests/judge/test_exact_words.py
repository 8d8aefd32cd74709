"""A difference in words: twelve faults that the judge's tolerance lets pass, named in its report."""

from __future__ import annotations

import json

import exact_faults
import pytest

import workbench as wb
from workbench.judge import Judgement

NAMED = {
    "softmax": {
        "last_left_out": "x[rows=0, columns=599] is missing from the sum that divides out[0, 0]",
        "one_twice": "the sum that divides out[0, 0] has x[rows=0, columns=300] twice",
        "eps": "where the inputs are all 1, 1 / out[0, 0] is 1e-06 more than the reference's",
        "short_constant": "the kernel has 1.4426 where the reference has 1.442695",
    },
    "rms_norm": {
        "no_eps": "the kernel lacks the reference's 1e-05",
        "one_too_heavy": "the sum under the root that divides out[0, 0] has x[rows=0, columns=3] times 1.001",
        "n_minus_1": "the sum under the root that divides out[0, 0] has each term of x[rows=0, :] times 1000/999",
        "another_row": "x[rows=1, columns=215] is missing from the sum under the root that divides out[1, 0]",
    },
    "gelu": {
        "short_constant": "the kernel has 0.0447 where the reference has 0.044715",
        "scaled": "every element of out is 0.50024998 / 0.5 times the reference's",
    },
    "linear": {
        "term_too_heavy": "out[0, 0] has a[m=0, k=40] times (1 + 0.001)",
        "bias_scaled": "out[0, 0] has bias[n=0] times 1.001",
    },
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", NAMED)
def test_faults_within_the_tolerance_are_named(name: str) -> None:
    found = wb.check(getattr(exact_faults, name), exact=True, elsewhere=False, seeds=[1])
    assert found.ok  # the tolerance passes all of them
    said = {one.variant: one.exact_difference for one in found}
    assert said.pop("right") == ()
    assert {variant: NAMED[name][variant] for variant in said if NAMED[name][variant] in said[variant]} == NAMED[name]
    assert Judgement.from_dict(json.loads(found.to_json())) == found
    assert all(f"\n        {line}" in str(found) for line in NAMED[name].values())
    assert all(line in found.tables()[0].text() for line in NAMED[name].values())


def test_the_numbers_are_twelve() -> None:
    assert sum(map(len, NAMED.values())) == 12
