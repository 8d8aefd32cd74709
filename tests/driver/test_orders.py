"""Operations that nothing orders, and accesses of the host that come too early: each is found with both lines."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.driver.order import HOST_ACCESS, REUSED, UNORDERED
from workbench.driver.torch_device.library import installed_torch
from workbench.errors import MissingToolError
from workbench.toolchain import nvcc

HERE = Path(__file__).parent
TORCH = installed_torch()
RIGHT = {"kept_pinned"}  # pairs that are right in both forms
KINDS = {
    **dict.fromkeys(("pinned_reuse", "early_read", "numpy_view"), HOST_ACCESS),
    **dict.fromkeys(("managed_read", "early_copy", "ring"), HOST_ACCESS),
    "record_stream": REUSED,
}
REMEDIES = {UNORDERED: "wait_stream", REUSED: "record_stream", HOST_ACCESS: "ynchronize"}


def marked(program: Path) -> dict[tuple[str, str], int]:
    """Return the lines of a program that end in ``first: pair``, ``second: pair``, or ``both: pair``."""
    lines: dict[tuple[str, str], int] = {}
    for number, line in enumerate(program.read_text().splitlines(), 1):
        found = re.search(r"(?:#|//) (first|second|both): (.+)$", line)
        if found is None:
            continue
        for pair in found[2].split(", "):
            for side in ("first", "second") if found[1] == "both" else (found[1],):
                lines[side, pair] = number
    return lines


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=600, cwd=HERE, check=False
    )


@pytest.mark.skipif(TORCH is None or TORCH.problem is not None, reason="needs torch's build for CUDA 13")
def test_each_pair_of_torch():
    program = HERE / "torch_orders.py"
    lines, done = marked(program), run(str(program))
    # It ends with a fault of its own, which the watch on pages leaves to Python's handler, and that to the system.
    assert (done.returncode, done.stderr.count("Fatal Python error")) == (-signal.SIGSEGV, 1), done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(rows) > 10, done.stdout
    for row in rows:
        pair, found = row["pair"], row["found"]
        if row["form"] == "fixed" or pair in RIGHT:
            assert not found, row
            continue
        kind = KINDS.get(pair, UNORDERED)
        assert {(one["kind"], one["other"], one["line"]) for one in found} == {
            (kind, lines["first", pair], lines["second", pair])
        }, row
        assert all(REMEDIES[kind] in one["text"] for one in found)


@pytest.mark.parametrize("form", ["bug", "fixed"])
def test_a_cuda_program(form):
    try:
        nvcc.program()
    except MissingToolError as missing:
        pytest.skip(str(missing))
    program = HERE / "cuda_orders.cu"
    lines, done = marked(program), run("-m", "workbench.cli", "run", "--simulated", "--check", str(program), form)
    if form == "fixed":
        assert done.returncode == 0, done.stderr
        assert "nothing found" in done.stderr
        return
    assert done.returncode == 1, done.stderr
    found = re.findall(
        rf"cuda_orders\.cu:(\d+): ({UNORDERED}|{HOST_ACCESS}): .*at cuda_orders\.cu:(\d+)\)", done.stderr
    )
    pairs = {pair for _, pair in lines}
    wanted = {(str(lines["second", one]), KINDS.get(one, UNORDERED), str(lines["first", one])) for one in pairs}
    assert set(found) == wanted, done.stderr
