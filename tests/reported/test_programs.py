"""Whole programs with reported faults: each form ends with the verdict, and the words, that its row has."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

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

_REFUSED = r"refused, and the program did not ask for the error: {}, grid .*{}.*refused_launches\.cu:{}, in main"
FAULTS: list[Program] = [
    Program(
        "grid_limit.cu",
        "bug",
        (
            r"refused, .* did not ask for the error: scale, grid \(1, 1, 65536\), block \(1, 1, 1\): .*"
            r"grid dimension z is 65536, allowed are 1 to 65535 .*at grid_limit\.cu:30, in main",
            r"grid_limit\.cu:30  scale<<<grid, 1>>>",
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
            r"shift_twice.*deadlock: 4 bytes at 0x\w+, byte 0 of .*which has 8 bytes, are read again and again",
            r"they hold \d and are compared with 4.*; 4 threads wait so, in blocks \(0, 0, 0\), \(1, 0, 0\), ",
            r"grid_barrier_reused\.cu:(28|29)",
        ),
        status=1,
    ),
    Program("refused_launches.cu", "illegal", ("cudaErrorIllegalAddress", "out-of-bounds"), status=1),
]

RIGHT = [
    Program("grid_limit.cu", "fixed", ("sum 65536", *CLEAN)),
    Program("refused_launches.cu", "asked", ("note: .*refused, and the program got the error: plain", *CLEAN)),
    Program("view_bounds.py", "fixed", CLEAN),
    Program("wrapped_index_inside.py", "fixed", CLEAN),
    Program("shared_neighbours.py", "fixed", silent=("out-of-bounds",), command=()),
    Program("floor_grid.py", "fixed", ("4000.0 of 4000.0", *CLEAN)),
    Program("atomic_order.py", "fixed", silent=("order of",), command=()),
    Program("grid_barrier_reused.cu", "fixed", ("no error", *CLEAN)),
]


def verdict(program: Program) -> None:
    form = [program.form] if program.form else []
    command = [sys.executable, *program.command, str(PROGRAMS / program.file), *form]
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
