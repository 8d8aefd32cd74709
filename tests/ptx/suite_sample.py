"""A kernel of the suite: its source, how to launch it at any size, what must come out, and facts known by hand."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from workbench import ptx
from workbench.ptx.report import LineFacts
from workbench.toolchain import compile_cuda_module

FOLDER = Path(__file__).parent / "suite"
Measure = Callable[["Sample", ptx.LaunchReport], float]


class Fresh(NamedTuple):
    """An array that nobody has written: it starts as rubbish, and reading it before the kernel writes is a fault."""

    shape: int | tuple[int, ...]
    dtype: type = np.float32


@dataclass(frozen=True)
class Case:
    """One launch. ``expected`` are arrays by position in ``args``; the kernel gets copies of the arrays in ``args``."""

    grid: int | tuple[int, ...]
    block: int | tuple[int, ...]
    args: Sequence[object]
    expected: Mapping[int, np.ndarray]
    shared_bytes: int = 0
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    any_order: bool = False  # the elements may come in any order
    tolerance: float = 1e-5  # of floating point, relative and absolute


@dataclass(frozen=True)
class Fact:
    """A number of one launch with statistics that can be worked out by hand: ``value``, for the sizes ``sizes``.

    ``case`` makes the launch where it is not the sample's own.
    """

    sizes: tuple[int, ...]
    value: float | Callable[[int], float]
    measure: Measure
    case: Callable[[int], Case] | None = None


@dataclass(frozen=True)
class Sample:
    """A kernel of the suite. ``sizes`` are those of the default run, ``long_sizes`` the others, ``mutant_sizes`` those
    that the mutation harness runs: small, and with a rest in every dimension."""

    file: str
    kernel: str
    case: Callable[[int], Case]
    sizes: tuple[int, ...]
    mutant_sizes: tuple[int, ...]
    facts: tuple[Fact, ...]
    long_sizes: tuple[int, ...] = ()

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.file}.cu"


class Run(NamedTuple):
    report: ptx.LaunchReport
    args: list[object]
    case: Case

    def wrong(self) -> str:
        """What differs from the expectation; empty if nothing does."""
        for position, expected in self.case.expected.items():
            got = self.args[position].reshape(expected.shape)
            if self.case.any_order:
                got, expected = np.sort(got, None), np.sort(expected, None)
            loose = {"rtol": self.case.tolerance, "atol": self.case.tolerance} if expected.dtype.kind == "f" else {}
            same = np.isclose(got, expected, **loose) if loose else got == expected
            if not same.all():
                at = np.argwhere(~same)[0]
                return f"argument {position} at {tuple(map(int, at))}: {got[tuple(at)]}, not {expected[tuple(at)]}"
        return ""


def _argument(value: object) -> object:
    if isinstance(value, Fresh):
        array = np.empty(value.shape, value.dtype)
        array.view(np.uint8)[...] = 0xA5
        return array
    return value.copy() if isinstance(value, np.ndarray) else value


def run(program: ptx.Program, kernel: str, case: Case, **options: object) -> Run:
    """Launches a kernel (its name in the PTX) once. Limits stop kernels that were made to spin for ever."""
    args = [_argument(value) for value in case.args]
    fresh = [position for position, value in enumerate(case.args) if isinstance(value, Fresh)]
    for name, values in case.constants.items():
        for variable, storage in program.variables.items():
            if name in variable:
                storage[: values.nbytes] = values.view(np.uint8)
    report = program[kernel].launch(
        case.grid, case.block, args, shared_bytes=case.shared_bytes, uninitialised=fresh, seconds_limit=20, **options
    )
    return Run(report, args, case)


@cache
def program(file: str, arch: str = "sm_80", *options: str) -> ptx.Program:
    module = compile_cuda_module(FOLDER / f"{file}.cu", arch=arch, options=options)
    return ptx.Program.from_text(next(iter(module.kernels.values())).ptx)


@cache
def source_lines(path: Path) -> tuple[str, ...]:
    return tuple(path.read_text().splitlines())


@cache
def function_lines(path: Path, name: str) -> range:
    """Line numbers, from 1, of a function of a file: from its head to the brace that closes it."""
    lines = source_lines(path)
    first = next(i for i, line in enumerate(lines) if re.match(rf"(extern|__device__|__global__)\b.*\b{name}\(", line))
    last = first if lines[first].endswith("}") else lines.index("}", first)
    return range(first + 1, last + 2)


@cache
def functions(path: Path, kernel: str) -> tuple[range, ...]:
    """The lines of a kernel and of the functions of its file that it uses, directly or not."""
    lines = source_lines(path)
    helpers = [match[1] for line in lines if (match := re.match(r"__device__ .*?(\w+)\(", line))]
    used, work = [], [kernel]
    while work:
        place = function_lines(path, work.pop())
        if place in used:
            continue
        used.append(place)
        text = "\n".join(lines[n - 1] for n in place)
        work += [name for name in helpers if re.search(rf"\b{name}\b", text)]
    return tuple(used)


def marked_line(path: Path, kernel: str, mark: str) -> int:
    """The line of a kernel, or of a function that it uses, that ends with ``// mark``."""
    lines = source_lines(path)
    found = [n for place in functions(path, kernel) for n in place if lines[n - 1].endswith(f"// {mark}")]
    assert len(found) == 1, f"{path.name}, {kernel}: {len(found)} lines end with // {mark}"
    return found[0]


# ---- measures ----


def _rows(sample: Sample, report: ptx.LaunchReport, mark: str, space: str, kind: str) -> list[LineFacts]:
    line = marked_line(sample.path, sample.kernel, mark)
    rows = [row for row in report.lines if line == row.source_line and row.space == space]
    rows = [row for row in rows if not row.text.startswith("ld.const")]  # not a request to global memory
    kinds = {(True, False): "load", (False, True): "store", (False, False): "atomic"}
    rows = [row for row in rows if kinds[row.is_load, row.is_store] == kind]
    assert rows, f"{sample.kernel}: no {kind} of {space} memory at // {mark}"
    return rows


def at(mark: str, space: str, kind: str, what: str) -> Measure:
    """The sum of a count of LineFacts over the accesses of one marked line.

    ``space`` is "global" or "shared", ``kind`` "load", "store" or "atomic".
    """
    return lambda sample, report: sum(getattr(row, what) for row in _rows(sample, report, mark, space, kind))


def per_request(mark: str, space: str, kind: str, what: str) -> Measure:
    """The same for each request."""
    return lambda sample, report: (
        at(mark, space, kind, what)(sample, report) / at(mark, space, kind, "requests")(sample, report)
    )


def total(what: str) -> Measure:
    """A property of the whole report."""
    return lambda _, report: getattr(report, what)


def mix(group: str) -> Measure:
    """Warp instructions of one class."""
    return lambda _, report: report.mix.get(group, 0)


# ---- the hardware's rules, counted independently of the machine ----


def sectors(indices: Sequence[int], size: int = 4) -> int:
    """32-byte sectors that one request touches, by indices of elements of ``size`` bytes in an aligned array."""
    return len({i * size // 32 for i in indices} | {(i * size + size - 1) // 32 for i in indices})


def wavefronts(words: Sequence[int]) -> int:
    """Passes of one request through the 32 banks: the most distinct words that any one of them holds."""
    banks: dict[int, set[int]] = {}
    for word in words:
        banks.setdefault(word % 32, set()).add(word)
    return max(map(len, banks.values()), default=0)
