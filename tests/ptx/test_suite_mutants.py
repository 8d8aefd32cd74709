"""Each thing that keeps the suite's kernels right, taken away: the checks must notice, and name lines of the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
from suite_mutants import EXPECTED, RACES, SPINS, Mutant, build, lines_of, mutants, stopped, untouched
from suite_sample import Sample, run
from test_suite import SAMPLES

from workbench import ptx
from workbench.errors import KernelFault, KernelTimeout

MUTANTS = mutants(SAMPLES)
UNTOUCHED = untouched(SAMPLES)
EXITED = "the lanes that the mask names too many have exited, and it waits for those that have not (PTX ISA, shfl.sync)"
BEYOND = "one more step, over distances at which no element has another"
ZEROS = "one more tile, of which no element is inside"
ARRIVALS = "it ends with an arrival that nobody waits for: no rule forbids it, and the checks report it as a note"
# Mutants that are as right as the kernel, by name, and why.
REDUNDANT = {
    "reduce_shuffle: mask too wide: 0xf -> 0x1f": EXITED,
    "reduce_shuffle: mask too wide: 0xf -> 0x1f (2)": EXITED,
    "append_even: mask too wide: kept -> 0xffffffff": EXITED,
    "opportunistic_append: mask too wide: here -> 0xffffffff": EXITED,
    "scan_hillis_steele: loop off by one: s < BLOCK -> s <= BLOCK": BEYOND,
    "scan_segmented: loop off by one: s < BLOCK -> s <= BLOCK": BEYOND,
    "nbody: loop off by one: start < n -> start <= n": ZEROS,
    "matmul_tiled: loop off by one: start < k -> start <= k": ZEROS,
    "matmul_register_blocked: loop off by one: start < k -> start <= k": ZEROS,
    "matmul_double_buffered: loop off by one: start < k -> start <= k": ZEROS,
    "matmul_mma: loop off by one: start < k -> start <= k": ZEROS,
    "matmul_wmma: loop off by one: start < k -> start <= k": ZEROS,
    "compact: loop off by one: start < n -> start <= n": ZEROS,
    "transposition_sort: loop off by one: round < n -> round <= n": "one more round, of which nothing is out of order",
    "transpose_naive: loop off by one: y < blockIdx.y * 32 + 32 -> y <= blockIdx.y * 32 + 32": "a row, twice",
    "top_k: lanes off by one: other_at < at -> other_at <= at": "lanes that hold the same place agree already",
    "specialised_warps: lanes off by one: run - taken >= 2 -> run - taken >= 2 - 1": "it only waits longer",
    "named_barriers: no bound: run + 2 < runs -> true": ARRIVALS,
    "named_barriers: bound off by one: run + 2 < runs -> run + 2 <= runs": ARRIVALS,
}
LANES = "the clocks are those of whole warps: a flag publishes what the lanes beside its writer have stored, too"
# Mutants, or whole classes of them, that are wrong and that the checks cannot see yet. Once they do, an entry fails.
MISSED = {
    "specialised_warps: no warp barrier": LANES,
    "specialised_warps: no warp barrier (2)": LANES,
}


@pytest.fixture(scope="module")
def programs(request: pytest.FixtureRequest) -> dict[str, ptx.Program]:
    """The kernels that this run asks for, by file."""
    files: dict[str, list[Mutant]] = {}
    for item in request.session.items:
        if item.path == request.path and hasattr(item, "callspec"):
            mutant = item.callspec.params["mutant"]
            files.setdefault(mutant.sample.file, []).append(mutant)
    return {file: build(group) for file, group in files.items()}


def is_in_kernel(sample: Sample, source: str, line: int | None) -> bool:
    """Whether a finding's place is a line of the kernel, or of a header that it includes.

    The compiler leaves no line where it moved a load out of a loop.
    """
    return line is None or line in lines_of(sample) if Path(source) == sample.path else source.endswith(".hpp")


def outcome(program: ptx.Program, mutant: Mutant, size: int) -> tuple[set[str], str]:
    """The kinds of what the checks said, and what is wrong with the values. Every line named is one of the kernel's.

    Where the usual order of the warps shows nothing, the opposite one may.
    """
    kinds, wrong = _outcome(program, mutant, size)
    return (kinds, wrong) if kinds or wrong else _outcome(program, mutant, size, last_warp_first=True)


def _outcome(program: ptx.Program, mutant: Mutant, size: int, **order: bool) -> tuple[set[str], str]:
    case = mutant.sample.case(size)
    try:
        done = run(program, mutant.entry, case, checks=True, instruction_limit=SPINS, **order)
    except (KernelFault, KernelTimeout) as error:
        return {stopped(error)}, "it does not end"
    for finding in done.report.findings:
        assert is_in_kernel(mutant.sample, finding.source, finding.line), finding
        assert not finding.other_line or is_in_kernel(mutant.sample, finding.other_source, finding.other_line), finding
    races = [finding for finding in done.report.findings if finding.kind in RACES]
    assert not races or any(race.line and race.other_line for race in races), races
    return {finding.kind for finding in done.report.findings}, done.wrong()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
@pytest.mark.sampled(6)
def test_mutant(programs: dict[str, ptx.Program], mutant: Mutant) -> None:
    sizes, expected = mutant.sample.mutant_sizes, EXPECTED[mutant.kind]
    outcomes = [outcome(programs[mutant.sample.file], mutant, size) for size in sizes]
    kinds, wrong = set().union(*(kinds for kinds, _ in outcomes)), " ".join(wrong for _, wrong in outcomes).strip()
    if mutant.name in REDUNDANT:
        assert (kinds, wrong) == (set(), "")
    elif mutant.name in MISSED or mutant.kind in MISSED:
        assert not kinds
    else:
        assert (kinds or {"wrong value" if wrong else "nothing"}) & expected, f"{mutant.text}: {kinds}; {wrong}"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("mutant", UNTOUCHED, ids=lambda mutant: mutant.sample.kernel)
def test_untouched(programs: dict[str, ptx.Program], mutant: Mutant) -> None:
    for size in mutant.sample.mutant_sizes:
        assert outcome(programs[mutant.sample.file], mutant, size) == (set(), "")


def test_tables_name_mutants() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names)
    assert {*REDUNDANT, *MISSED} <= {*names, *EXPECTED}
    assert {mutant.kind for mutant in MUTANTS} == set(EXPECTED)
