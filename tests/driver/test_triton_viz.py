"""triton-viz's sanitizer beside `workbench run --check` on the same programs, clean and with planted faults.

pip install triton-viz
pytest -m long -s tests/driver/test_triton_viz.py
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

PROGRAM = """
import torch
import triton
import triton.language as tl


@triton.jit
def row_sums(out, x, rows, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * cols + at, mask=at < cols, other=0.0)
    tl.store(out + row, tl.sum(values, 0))


x = torch.rand(23, 100)
out = torch.zeros(23)
row_sums[(23,)](out, x, 23, 100, BLOCK=128)
torch.testing.assert_close(out, x.sum(1))
"""
# fault: (what is written there, what instead, the lines at fault, whether triton-viz looks for its kind)
FAULTS = {
    "none": ("", "", (), False),
    "load past the end": ("mask=at < cols, other=0.0", "mask=at < BLOCK, other=0.0", ("values = tl.load",), True),
    "load before the start": ("x + row * cols + at", "x + row * cols + at - 1", ("values = tl.load",), True),
    "store past the end": ("tl.store(out + row,", "tl.store(out + row + 1,", ("tl.store",), True),
    "one program too many": ("row_sums[(23,)]", "row_sums[(24,)]", ("values = tl.load", "tl.store"), True),
    "all programs store to one place": ("tl.store(out + row,", "tl.store(out + row * 0,", ("tl.store",), False),
}
SANITIZER = "import sys; from triton_viz.wrapper import apply_sanitizer; sys.exit(apply_sanitizer())"


def lines_named(command: list[str], script: Path) -> tuple[set[int], float]:
    """The lines of the script that a checker names, and its seconds."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, *command, str(script)], capture_output=True, text=True, timeout=300)
    text = done.stdout + done.stderr
    named = re.findall(rf"(?:row_sums at \S*|^ *(?:workbench: )?){script.name}:(\d+)", text, re.MULTILINE)
    return set(map(int, named)), time.perf_counter() - began


@pytest.mark.parametrize("fault", FAULTS)
def test_what_triton_viz_finds_is_found_at_the_same_line(fault, tmp_path):
    pytest.importorskip("triton_viz")
    written, instead, texts, theirs_to_find = FAULTS[fault]
    assert not written or PROGRAM.count(written) == 1
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.replace(written, instead) if written else PROGRAM)
    lines = script.read_text().splitlines()
    expected = [number for number, line in enumerate(lines, 1) if line.strip().startswith(texts)]
    theirs, their_seconds = lines_named(["-c", SANITIZER], script)
    ours, our_seconds = lines_named(["-m", "workbench.cli", "run", "--simulated", "--check"], script)
    print(f"{fault}: triton-viz {theirs} in {their_seconds:.1f} s, workbench {ours} in {our_seconds:.1f} s")
    assert theirs == set(expected[:1] if theirs_to_find else []), "it ends at the first"
    assert ours == set(expected)
