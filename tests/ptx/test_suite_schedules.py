"""Orders from seeds on the suite's kernels: what a missing barrier or atomic does to values, and right kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from suite_mutants import EXPECTED, RACES, Mutant, build, mutants, untouched
from suite_sample import run
from test_suite import SAMPLES
from test_suite_mutants import REDUNDANT

from workbench import ptx
from workbench.errors import KernelFault, KernelTimeout
from workbench.ptx.aims import Aim, aimed, aims_of
from workbench.ptx.late_stores import late_stores

PAGE = Path(ptx.__file__).with_name("CHECKS.md")
RACY = [one for one in mutants(SAMPLES) if EXPECTED[one.kind] & RACES and one.name not in REDUNDANT]
ROWS = {kind: [one for one in RACY if one.kind == kind] for kind in dict.fromkeys(one.kind for one in RACY)}
TWO_ORDERS = [{"threads": 1, "last_warp_first": other, "copies_early": other} for other in (False, True)]
SPINS = 3_000_000
SEEDS = 64
ACCESS = re.compile(r"(ld|st|atom|red)\.(volatile\.|relaxed\.)?\w*\.?(global|shared)")


def built(group: list[Mutant]) -> Iterator[tuple[ptx.Program, Mutant]]:
    files = dict.fromkeys(one.sample.file for one in group)
    for file in files:
        of_file = [one for one in group if one.sample.file == file]
        program = build(of_file)
        yield from ((program, one) for one in of_file)


def is_wrong(program: ptx.Program, mutant: Mutant, size: int, **order: object) -> bool:
    """Return True if a size gives a wrong value, a fault or no end in an order."""
    try:
        return bool(run(program, mutant.entry, mutant.sample.case(size), instruction_limit=SPINS, **order).wrong())
    except (KernelFault, KernelTimeout):
        return True


def aims_at(program: ptx.Program, mutant: Mutant, size: int) -> list[Aim]:
    """Return what `schedules` aims at: the races of a checked run in the usual order."""
    try:
        done = run(program, mutant.entry, mutant.sample.case(size), instruction_limit=SPINS, checks=True)
    except (KernelFault, KernelTimeout):
        return []
    return aims_of(program[mutant.entry], done.report.findings)


def is_shown(program: ptx.Program, mutant: Mutant, *, aiming: bool) -> bool:
    late = late_stores(program[mutant.entry].decoded.code)
    for size in mutant.sample.mutant_sizes:
        aims = aims_at(program, mutant, size) if aiming else []
        for seed in range(SEEDS):
            if is_wrong(program, mutant, size, schedule=seed, aims=aimed(seed, aims), late_stores=late):
                return True
    return False


@pytest.mark.long
@pytest.mark.parametrize("kind", ROWS)
def test_the_page_has_the_counts_of_mutants_that_an_order_shows(kind: str):
    two = many = aimed_at = 0
    for program, mutant in built(ROWS[kind]):
        sizes = mutant.sample.mutant_sizes
        two += any(is_wrong(program, mutant, size, **order) for size in sizes for order in TWO_ORDERS)
        many += is_shown(program, mutant, aiming=False)
        aimed_at += is_shown(program, mutant, aiming=True)
    assert f"| {kind} | {len(ROWS[kind])} | {two} | {many} | {aimed_at} |" in PAGE.read_text()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("mutant", untouched(SAMPLES), ids=lambda mutant: mutant.sample.kernel)
def test_right_kernels_are_right_in_every_order(mutant: Mutant):
    """At random, with stores that other blocks see late, and with lanes, warps and blocks that wait before accesses."""
    program = build([mutant])
    code = program[mutant.entry].decoded.code
    late = late_stores(code)
    accesses = [pc for pc, step in enumerate(code) if step.statement and ACCESS.match(step.statement.opcode)]
    for size in mutant.sample.mutant_sizes:
        for seed in range(8):
            assert not is_wrong(program, mutant, size, schedule=seed, late_stores=late), seed
        for seed in range(24):
            aim = accesses[seed // 3 * len(accesses) // 8], seed % 3
            assert not is_wrong(program, mutant, size, schedule=seed, aims=[aim], late_stores=late), (seed, aim)
