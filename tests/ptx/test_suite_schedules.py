"""Orders from seeds on the suite's kernels: what a missing barrier or atomic does to values, and right kernels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from suite_mutants import EXPECTED, RACES, Mutant, build, mutants, untouched
from suite_sample import run
from test_suite import SAMPLES
from test_suite_mutants import REDUNDANT

from workbench import ptx
from workbench.errors import KernelFault, KernelTimeout

PAGE = Path(ptx.__file__).with_name("CHECKS.md")
RACY = [one for one in mutants(SAMPLES) if EXPECTED[one.kind] & RACES and one.name not in REDUNDANT]
ROWS = {kind: [one for one in RACY if one.kind == kind] for kind in dict.fromkeys(one.kind for one in RACY)}
TWO_ORDERS = [{"threads": 1, "last_warp_first": other, "copies_early": other} for other in (False, True)]
SPINS = 3_000_000
SEEDS = 64


def built(group: list[Mutant]) -> Iterator[tuple[ptx.Program, Mutant]]:
    files = dict.fromkeys(one.sample.file for one in group)
    for file in files:
        of_file = [one for one in group if one.sample.file == file]
        program = build(of_file)
        yield from ((program, one) for one in of_file)


def is_wrong(program: ptx.Program, mutant: Mutant, **order: object) -> bool:
    """Whether some size gives a wrong value, a fault or no end in an order."""
    try:
        return any(
            run(program, mutant.entry, mutant.sample.case(size), instruction_limit=SPINS, **order).wrong()
            for size in mutant.sample.mutant_sizes
        )
    except (KernelFault, KernelTimeout):
        return True


@pytest.mark.long
@pytest.mark.parametrize("kind", ROWS)
def test_the_page_has_the_counts_of_mutants_that_an_order_shows(kind: str):
    two = many = 0
    for program, mutant in built(ROWS[kind]):
        two += any(is_wrong(program, mutant, **order) for order in TWO_ORDERS)
        many += any(is_wrong(program, mutant, schedule=seed) for seed in range(SEEDS))
    assert f"| {kind} | {len(ROWS[kind])} | {two} | {many} |" in PAGE.read_text()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("mutant", untouched(SAMPLES), ids=lambda mutant: mutant.sample.kernel)
def test_right_kernels_are_right_in_every_order(mutant: Mutant):
    program = build([mutant])
    assert not [seed for seed in range(8) if is_wrong(program, mutant, schedule=seed)]
