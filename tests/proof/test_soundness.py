"""Proofs hold: the machine finds nothing in proved kernels, and no planted race is ever proved."""

from __future__ import annotations

import pytest

pytest.importorskip("z3", reason='no Z3: python -m pip install -e ".[proof]"')

from random_kernels import contradiction, draw, proved

KERNELS = 20
"""Kernels of one long test."""


def check(first: int, kernels: int = KERNELS) -> int:
    """Return how many kernels from a seed on are proved; fails for one in which the machine finds a fault."""
    count = 0
    for kernel, compiled in draw(range(first, first + kernels)):
        if (proof := proved(kernel, compiled)) is not None:
            found = contradiction(kernel, compiled, proof, runs=6)
            assert not found, f"seed {kernel.seed}: proved, but {found}\n{kernel.source}"
            count += 1
    return count


def test_what_is_proved_of_random_kernels_the_machine_finds_clean():
    assert check(20, 10) >= 3


@pytest.mark.long
@pytest.mark.parametrize("part", range(150))
def test_what_is_proved_of_3000_random_kernels_the_machine_finds_clean(part):
    check(1000 + part * KERNELS)
