"""Which of a long list of parameters every run takes; the others are left to ``-m long``."""

from __future__ import annotations

import pytest


def some(mutants, every=4):
    """Each ``every``-th mutant in every run; the others are long."""
    return [long_if(index % every, mutant, id=mutant.name) for index, mutant in enumerate(mutants)]


def some_of(variants, every=4):
    """Of (variant, its mutants), each ``every``-th mutant in every run; the others are long."""
    return [
        long_if(index % every, variant, mutant, id=f"{variant.name}-{mutant.name}")
        for variant, mutants in variants
        for index, mutant in enumerate(mutants)
    ]


def long_if(long, *values, **options):
    """A parameter that only ``-m long`` takes where ``long`` is true."""
    return pytest.param(*values, marks=[pytest.mark.long] if long else [], **options)
