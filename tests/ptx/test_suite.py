"""Kernels in the style of textbooks: right at awkward sizes, without a finding, with the facts known by hand."""

from __future__ import annotations

import pytest
from suite_cases_idioms import IDIOMS
from suite_cases_rows import ROWS
from suite_cases_sums import SUMS
from suite_cases_tiles import TILES
from suite_sample import Fact, Sample, program, run

SAMPLES = (*SUMS, *TILES, *ROWS, *IDIOMS)


def sizes(which: str) -> list[object]:
    return [pytest.param(s, n, id=f"{s.kernel}-{n}") for s in SAMPLES for n in getattr(s, which)]


def check(sample: Sample, size: int) -> None:
    done = run(program(sample.file), sample.kernel, sample.case(size), checks=True)
    assert not done.wrong()
    assert done.report.findings == [], done.report


@pytest.mark.parametrize(("sample", "size"), sizes("sizes"))
def test_right_and_clean(sample: Sample, size: int) -> None:
    check(sample, size)


@pytest.mark.long
@pytest.mark.parametrize(("sample", "size"), sizes("long_sizes"))
def test_right_and_clean_at_more_sizes(sample: Sample, size: int) -> None:
    check(sample, size)


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(("sm_80", "--device-debug"), id="not optimised"),
        pytest.param(("sm_80", "--use_fast_math"), id="fast math"),
        pytest.param(("sm_90",), id="sm_90"),
        pytest.param(("sm_100",), id="sm_100", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.kernel)
@pytest.mark.sampled(3)
def test_right_and_clean_as_other_code(sample: Sample, code: tuple[str, ...]) -> None:
    for size in sample.mutant_sizes:
        done = run(program(sample.file, *code), sample.kernel, sample.case(size), checks=True)
        assert not done.wrong()
        assert done.report.findings == [], done.report


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.kernel)
def test_the_order_of_the_warps_is_nobodys_business(sample: Sample) -> None:
    case = sample.case(sample.mutant_sizes[0])
    done = run(program(sample.file), sample.kernel, case, checks=True, last_warp_first=True)
    assert not done.wrong()
    assert done.report.findings == [], done.report


@pytest.mark.long
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.kernel)
def test_blocks_on_several_threads(sample: Sample) -> None:
    done = run(program(sample.file), sample.kernel, sample.case(sample.mutant_sizes[0]), checks=True, threads=4)
    assert not done.wrong()
    assert done.report.findings == [], done.report


@pytest.mark.parametrize(
    ("sample", "fact"),
    [pytest.param(s, fact, id=f"{s.kernel}-{i}") for s in SAMPLES for i, fact in enumerate(s.facts)],
)
def test_facts(sample: Sample, fact: Fact) -> None:
    for size in fact.sizes:
        case = (fact.case or sample.case)(size)
        done = run(program(sample.file), sample.kernel, case, statistics=True)
        assert not done.wrong()
        expected = fact.value(size) if callable(fact.value) else fact.value
        assert fact.measure(sample, done.report) == expected, f"size {size}: {done.report}"


def test_the_suite_is_what_it_says() -> None:
    assert len(SAMPLES) >= 30
    assert all(sample.facts for sample in SAMPLES)
    written = {(sample.file, name) for sample in SAMPLES for name in program(sample.file)}
    assert written == {(sample.file, sample.kernel) for sample in SAMPLES}, "a kernel without a case"
