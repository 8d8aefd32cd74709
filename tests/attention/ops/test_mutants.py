"""Wrong kernels of every variant are caught by the judge that passes the right ones.

Each mutant is one slip in the PTX of a kernel (ptx_operators.py), at a place drawn at random. Some are as right as the
kernel (a bound that is never met, a sum that begins at zero, rows that only pad), so what is held is a rate.
"""

from __future__ import annotations

import random

import pytest
from mutants.attention_settings import SETTINGS
from mutants.ptx import OF_A_KIND, OVERALL_OF_MANY, Mutants, outcomes, shortcomings
from mutants.ptx_operators import OPERATORS
from sampling import long_if

from workbench import ops
from workbench.ops.registry import offered

FIRST = {one.variant: one for one in reversed(SETTINGS)}
"""The first setting of each variant, which every run takes."""


@pytest.mark.parametrize(
    ("setting", "seed"),
    [long_if(one is not FIRST[one.variant], one, 0, id=f"{one}-seed 0") for one in SETTINGS],
)
def test_a_few_mutants(setting, seed):
    found = outcomes(setting, seed, count=1)
    assert not shortcomings(found), "\n".join(shortcomings(found))


@pytest.mark.long
@pytest.mark.parametrize(("setting", "seed"), [pytest.param(one, 1, id=f"{one}-seed 1") for one in SETTINGS])
def test_many_mutants(setting, seed):
    found = outcomes(setting, seed, count=16)
    words = shortcomings(found, OVERALL_OF_MANY, OF_A_KIND)
    assert not words, "\n".join(words)


def test_half_a_judge_is_not_enough():
    """The bars are no empty ones: one that sees no values misses them, one that sees no findings a missing barrier."""
    setting = FIRST["paged_attention/triton_online_softmax"]
    without_values = [
        (mutant, "survived" if outcome == "values" else outcome) for mutant, outcome in outcomes(setting, 0, count=1)
    ]
    assert shortcomings(without_values)
    mutants = Mutants(setting)
    barriers = mutants.drawn("synchronisation", random.Random(0))
    assert any(mutants.outcome(mutant) == "findings" for mutant in barriers)


@pytest.mark.long
def test_every_operator_has_a_place():
    """None is of instructions that no kernel has any more."""
    unused = set(OPERATORS)
    for setting in SETTINGS:
        mutants = Mutants(setting)
        unused = {operator for operator in unused if not mutants.of(operator)}
    assert not unused, [operator.name for operator in unused]


def test_every_variant_has_mutants():
    variants = [variant for op in offered() for variant in ops.get(op).variants]
    assert set(FIRST) == {str(variant) for variant in variants if variant.compiles}
