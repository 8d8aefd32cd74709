"""What ``checks=True`` finds: planted faults with the lines of both sides, every removed barrier, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from workbench import ptx
from workbench.toolchain import compile_cuda_module

SOURCE = Path(__file__).parent / "cuda_faults.cu"
LINES = SOURCE.read_text().splitlines()


@pytest.fixture(scope="module")
def text() -> str:
    return next(iter(compile_cuda_module(SOURCE, arch="sm_80").kernels.values())).ptx


def line_of(mark: str) -> int:
    return 1 + next(i for i, text in enumerate(LINES) if text.endswith(f"// {mark}"))


def run(text: str, kernel: str, block: int = 128) -> tuple[ptx.LaunchReport, np.ndarray]:
    out = np.zeros(512, np.float32)
    data = np.random.default_rng(0).integers(0, 200, 512).astype(np.int32)
    if kernel not in ("histogram", "absent_lane", "halves"):
        data = (data % 7).astype(np.float32)
    report = ptx.Program.from_text(text)[kernel].launch(2, block, [out, data], checks=True, threads=2)
    return report, out


@pytest.mark.parametrize(
    ("kernel", "kind", "mark"),
    [
        ("past_the_end", "out-of-bounds", "out-of-bounds"),
        ("bad_alignment", "misaligned", "misaligned"),
        ("shared_overrun", "out-of-bounds", "shared overrun"),
        ("uninitialised", "uninitialised shared read", "uninitialised"),
        ("atomic_then_store", "warp race", "lane race"),
        ("divergent_barrier", "divergent barrier", "divergent"),
        ("absent_lane", "absent lane", "absent"),
        ("traps", "trap", "trap"),
    ],
)
def test_planted_fault(text: str, kernel: str, kind: str, mark: str) -> None:
    if kernel == "past_the_end":
        report = ptx.Program.from_text(text)[kernel].launch(
            2, 128, [np.zeros(256, np.float32), np.zeros(256, np.float32)], checks=True
        )
    else:
        report, _ = run(text, kernel)
    found = [finding for finding in report.findings if finding.kind == kind]
    assert found, report
    assert found[0].line == line_of(mark)
    assert Path(found[0].source).name == SOURCE.name
    assert found[0].kernel == kernel
    assert found[0].count >= 1
    assert f"cuda_faults.cu:{line_of(mark)}" in str(report)


def test_race_names_both_sides(text: str) -> None:
    report, _ = run(text, "race")
    races = [finding for finding in report.findings if finding.kind == "shared race"]
    sides = {(race.line, race.other_line) for race in races}
    write, read = line_of("race write"), line_of("race read")
    assert sides <= {(write, read), (read, write)}
    assert sides
    assert sum(race.count for race in races) >= 2 * 96


CORRECT = ("block_sum", "tree_sum", "warp_synchronous", "halves", "histogram", "pipeline")


@pytest.mark.parametrize("kernel", CORRECT)
def test_correct_kernels_have_no_findings(text: str, kernel: str) -> None:
    report, _ = run(text, kernel)
    assert report.findings == []
    assert "findings: none" in str(report)


def mutants(text: str, kernel: str) -> list[tuple[int, str, str]]:
    """The module with one block barrier or copy wait of the kernel taken out, and the line that is gone."""
    lines = text.split("\n")
    start = next(i for i, line in enumerate(lines) if re.search(rf"\.entry {kernel}\b", line))
    end = next(i for i in range(start, len(lines)) if lines[i] == "}")
    found = []
    for i in range(start, end):
        if re.search(r"\b(bar(rier)?\.(cta\.)?sync|cp\.async\.wait_group)\b", lines[i]):
            found.append((i + 1, lines[i].strip(), "\n".join([*lines[:i], "", *lines[i + 1 :]])))
    return found


@pytest.mark.parametrize("kernel", [name for name in CORRECT if name != "warp_synchronous"])
def test_every_removed_barrier_is_found(text: str, kernel: str) -> None:
    removed = mutants(text, kernel)
    assert removed
    for number, line, mutant in removed:
        report, _ = run(mutant, kernel)
        # Unrolled loops repeat a barrier; each copy must be missed on its own.
        assert report.findings or is_redundant(kernel, number, text), f"PTX line {number}: {line}"


def is_redundant(kernel: str, number: int, text: str) -> bool:
    """Barriers that order nothing.

    tree_sum: from the step of 32 on only the first warp reads and writes, until the last barrier hands the sum to the
    others. pipeline: nothing is copied after the third read, and nothing follows the fourth.
    """
    numbers = [n for n, *_ in mutants(text, kernel)]
    barriers = [n for n in numbers if "bar" in text.split("\n")[n - 1]]
    return number in {"tree_sum": barriers[2:-1], "pipeline": [barriers[-3], barriers[-1]]}.get(kernel, [])


def test_findings_are_the_same_on_any_number_of_threads(text: str) -> None:
    program = ptx.Program.from_text(text)
    data, out = np.zeros(512, np.float32), np.zeros(512, np.float32)
    seen = {
        tuple(map(str, program["race"].launch(9, 128, [out, data], checks=True, threads=threads).findings))
        for threads in (1, 2, 4)
    }
    assert len(seen) == 1


def test_checks_leave_results_alone(text: str) -> None:
    program = ptx.Program.from_text(text)
    data = np.random.default_rng(1).normal(size=512).astype(np.float32)
    for kernel in ("tree_sum", "pipeline", "warp_synchronous"):
        bare, checked = np.zeros(128, np.float32), np.zeros(128, np.float32)
        program[kernel].launch(1, 128, [bare, data])
        program[kernel].launch(1, 128, [checked, data], checks=True, statistics=True)
        assert (bare == checked).all()
