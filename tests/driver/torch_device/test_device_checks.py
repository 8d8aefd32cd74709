"""Checks inside the segments of torch's caching allocator: each block has the bounds that the program asked for."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import warm

from workbench.driver.torch_device.library import installed_torch

PROGRAM = Path(__file__).with_name("faulty_kernels.py")
TORCH = installed_torch()


def line_of(comment: str) -> int:
    """Return the line of a planted fault, by its comment."""
    lines = PROGRAM.read_text().splitlines()
    return next(at for at, line in enumerate(lines, 1) if line.endswith(f"# {comment}"))


@pytest.mark.skipif(TORCH is None or TORCH.problem is not None, reason="needs torch's build for CUDA 13")
def test_each_fault_is_found_at_its_line():
    command = [*warm.python("gpu"), "-m", "workbench.cli", "run", "--check", str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    found = re.findall(r"faulty_kernels\.py:(\d+): (\w+): ([\w -]+):", done.stderr)
    assert found == [
        (str(line_of("uninitialised")), "unwritten", "uninitialised global read"),
        (str(line_of("out-of-bounds")), "past_the_end", "out-of-bounds"),
        (str(line_of("freed")), "freed", "out-of-bounds"),
    ]
    assert "0 bytes past the end of x, which has 240 bytes" in done.stderr
    assert re.search(r"thread \(\d+, 0, 0\); x: float32 \(60,\), allocated at faulty_kernels\.py:\d+", done.stderr)
    assert re.search(r"that was freed \(float32 \(\d+,\), allocated at faulty_kernels\.py:\d+\)", done.stderr)
    assert done.stderr.endswith("4 launches checked, 3 findings\n")
