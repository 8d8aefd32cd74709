"""Whole programs with reported faults: each form ends with the verdict, and the words, that its row has."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import warm

PROGRAMS = Path(__file__).parent / "programs"
PLAIN = ("-m", "workbench.cli", "run", "--simulated")
CHECKED = (*PLAIN, "--check")


class Program(NamedTuple):
    """A form of a program. ``says`` are patterns that its output matches, ``silent`` those that it does not match."""

    file: str
    form: str = ""
    says: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    status: int = 0
    command: tuple[str, ...] = CHECKED

    @property
    def id(self) -> str:
        options = [word for word in self.command if word.startswith("sm_")]
        return "-".join([Path(self.file).stem, *options, *([self.form] if self.form else [])])


CLEAN = ("checked: nothing found",)

STAGED = (
    r"triton_staged_loop\.py:26: staged: write to global memory that a copy is reading",
    r"the other side is triton_staged_loop\.py:25 ",
    r"staged \[0, 1, 1, 1, 1, 1\]",  # the old values, which a GPU copies
)
_REFUSED = r"refused, and the program did not ask for the error: {}, grid .*{}.*refused_launches\.cu:{}, in main"

FAULTS = [
    Program(
        "atomic_order.py", "bug", (r"note: total: order of float additions: .* of y, .*at source.cu:13 ",), command=()
    ),
    Program(
        "floor_grid.py",
        "bug",
        (
            r"floor_grid\.py:\d+: uninitialised read by the host: torch's sum reads 208 elements of out that",
            r"the first of them element 1,792; double, launched at floor_grid\.py:\d+, had out as an argument",
            r"out: float32 \(2000,\), allocated at floor_grid\.py:\d+",
        ),
        status=1,
    ),
    Program(
        "partly_copied.cu",
        "bug",
        (
            r"partly_copied\.cu:28: uninitialised read by the host: a copy to the host reads 928 bytes of out",
            r"the first of them byte 3,072; twice had out as an argument .* out: allocated at partly_copied\.cu:22",
            r"partly_copied\.cu:11: twice: out-of-bounds: .* 0 bytes past the end of in, which has 4000 bytes",
            "Perhaps it is the padding of structs",
            r"; in: allocated at partly_copied\.cu:23",
        ),
        status=1,
    ),
    Program("compile_kernel.py", "bug", (r"axpy\.cu:5: axpy: out-of-bounds", "if \\(i <= n\\)"), status=1),
    Program("compile_kernel.py", "float", ("RuntimeWarning: axpy: torch passes argument 2, 2.0.*4 bytes", "False")),
    Program("cubin_by_nvrtc.py", "bug", (r"count\.cu:5: count: out-of-bounds", "if \\(i <= n\\)"), status=1),
    Program(
        "grid_limit.cu",
        "bug",
        (
            r"refused, .* did not ask for the error: scale, grid \(1, 1, 65536\), block \(1, 1, 1\): .*"
            r"grid dimension z is 65536, allowed are 1 to 65535 .*at grid_limit\.cu:27, in main",
            r"grid_limit\.cu:27  scale<<<grid, 1>>>",
            "1 launch checked, 1 refused, 1 finding",
        ),
        status=1,
    ),
    Program(
        "refused_launches.cu",
        "unasked",
        (
            _REFUSED.format("large", "50000 bytes of dynamic shared memory, allowed are 49152", 21),
            _REFUSED.format("bounded", "256 threads per block, its __launch_bounds__ allow 128", 22),
            _REFUSED.format("plain", "block dimension z is 65, allowed are 1 to 64", 23),
            _REFUSED.format("together", "1048576 blocks, of which 4224 fit on the device at once", 25),
            _REFUSED.format("plain", r"a multiple of the cluster \(3, 1, 1\)", 32),
            "5 launches refused: nothing was checked",
        ),
        status=1,
    ),
    Program("refused_launches.cu", "overwritten", (_REFUSED.format("plain", "2000", 34),), status=1, command=PLAIN),
    Program(
        "grid_barrier_reused.cu",
        "bug",
        (
            r"a launch ended early: grid_barrier_reused\.cu:\d+: shift_twice.*deadlock: 4 bytes at 0x\w+, byte 0 of ",
            r"which has 8 bytes, are read again and again, and nobody who is left changes them",
            r"they hold \d and are compared with 4.*; 4 threads wait so, in blocks \(0, 0, 0\), \(1, 0, 0\), ",
            r"\n +grid_barrier_reused\.cu:(23|24)  \S",
        ),
        status=1,
    ),
    Program("refused_launches.cu", "illegal", ("cudaErrorIllegalAddress", "out-of-bounds"), status=1),
    *(
        Program("triton_staged_loop.py", "staged", STAGED, status=1, command=(*CHECKED, "--arch", arch))
        for arch in ("sm_80", "sm_90")
    ),
    Program(
        "view_bounds.py",
        "bug",
        (r"write: out-of-bounds: .* of cache, .*a view of shape \(16, 16, 32\) with .* at \S*view_bounds.py:21 ",),
        status=1,
    ),
    Program(
        "wrapped_index_inside.py",
        "bug",
        (r"gather: wrapped index: .* of pool, which has .* at \S*_inside.py:17 .* index that has wrapped at \S*:17 ",),
        status=1,
    ),
    Program(
        "shared_neighbours.py",
        "bug",
        (r"out-of-bounds: .*element -1 of counts, which has 8; it lands in before; .* element -1 to element 8 at",),
        command=(),
    ),
]

ERRORS = r"a\*b-p 5\.96046e-08  p-a\*b -5\.96046e-08  a\*b\+\(-p\) 5\.96046e-08  half 0\.000244141  fmaf 5\.96046e-08"
NO_ERRORS = r"a\*b-p 0  p-a\*b 0  a\*b\+\(-p\) 0  half 0  fmaf 5\.96046e-08"

RIGHT = [
    Program("compile_kernel.py", "fixed", ("True", *CLEAN), ("Warning",)),
    Program("cubin_by_nvrtc.py", "fixed", (r"\[1.0, 2.0, 3.0, 4.0\]", *CLEAN)),
    Program("cubin_by_nvrtc.py", "bindings", (r"\[1.0, 2.0, 3.0, 4.0\]", *CLEAN)),
    Program("refused_launches.cu", "asked", ("note: .*refused, and the program got the error: plain", *CLEAN)),
    Program("contraction_residual.cu", "", (ERRORS, *CLEAN)),
    Program("contraction_residual.cu", "", (NO_ERRORS,), command=(*CHECKED, "--no-fmad")),
    Program("contraction_residual.cu", "", (NO_ERRORS,), command=(*CHECKED, "--nvcc", "--fmad=false")),
    Program("grid_limit.cu", "fixed", ("sum 65536", *CLEAN)),
    Program("view_bounds.py", "fixed", CLEAN),
    Program("wrapped_index_inside.py", "fixed", CLEAN),
    Program("shared_neighbours.py", "fixed", silent=("out-of-bounds",), command=()),
    Program("floor_grid.py", "fixed", ("4000.0 of 4000.0", *CLEAN)),
    Program("partly_copied.cu", "fixed", ("sum 2000", *CLEAN)),
    Program("atomic_order.py", "fixed", silent=("order of",), command=()),
    Program("grid_barrier_reused.cu", "fixed", ("no error", *CLEAN)),
    *(
        Program("triton_staged_loop.py", "in_order", ("0, 1, 2, 3, 4, 5", *CLEAN), command=(*CHECKED, "--arch", arch))
        for arch in ("sm_80", "sm_90")
    ),
]


def verdict(program: Program) -> None:
    form = [program.form] if program.form else []
    python = warm.python("gpu" if program.command else "host") if program.file.endswith(".py") else [sys.executable]
    command = [*python, *program.command, str(PROGRAMS / program.file), *form]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    output = done.stdout + done.stderr
    assert done.returncode == program.status, output
    for pattern in program.says:
        assert re.search(pattern, output), f"{pattern!r} is not in:\n{output}"
    for pattern in program.silent:
        assert not re.search(pattern, output), f"{pattern!r} is in:\n{output}"


@pytest.mark.parametrize("program", FAULTS, ids=lambda program: program.id)
def test_a_fault_is_reported(program):
    verdict(program)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("program", RIGHT, ids=lambda program: program.id)
def test_its_twin_is_clean(program):
    verdict(program)
