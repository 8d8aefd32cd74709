"""Differences of comparisons and traces: figures, source lines, conditions, and the files that they are read from."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from workbench.cli import main

OPS = """
import workbench as wb

@wb.op
def doubled(x):
    return 2 * x

doubled.case("small", x=wb.randn(128))
doubled.cuda('''extern "C" __global__ void f(float *out, const float *x) {
    for (int i = threadIdx.x; i < 128; i += N) {
        BODY
    }
}''', tune={"N": (32, 64)}, grid=1, block="N")
"""
BODIES = {
    "base": "out[i] = 2 * x[i];",
    "slower": "float once = x[i];\n        out[i] = 2 * x[i] + (x[(i + 64) % 128] - x[(i + 64) % 128 * 1]) * once;",
    "wrong": "out[i] = 3 * x[i];",
}


@pytest.fixture
def op_file(tmp_path: Path, monkeypatch, fresh_home) -> Callable[[str], str]:
    """Return a function that declares the op with another body, always in the same file."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(body: str) -> str:
        sys.modules.pop("doubled_ops", None)
        (tmp_path / "doubled_ops.py").write_text(OPS.replace("BODY", BODIES[body]))
        return f"{tmp_path}/doubled_ops.py:doubled"

    yield write
    sys.modules.pop("doubled_ops", None)


def workbench(*words: object) -> Any:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture
def saved(op_file, tmp_path: Path) -> dict[str, Path]:
    files = {command: tmp_path / f"{command}.json" for command in ("compare", "trace")}
    for command, file in files.items():
        done = workbench(command, op_file("base"), "--save", file)
        assert done.exit_code == 0, done.output
    return files


@pytest.mark.parametrize("command", ["compare", "trace"])
def test_a_pull_request_is_compared_with_what_was_saved(command: str, saved, op_file, tmp_path: Path):
    same, summary = workbench(command, op_file("base"), "--against", saved[command]), tmp_path / "summary.md"
    assert (same.exit_code, "figures are the same" in same.output) == (0, True), same.output
    against = (command, op_file("slower"), "--against", saved[command], "--markdown", summary)
    failed = workbench(*against, "--fail-if", "warp_instructions > 1.02", "--fail-if", "absolute registers > 999")
    assert failed.exit_code == 3, failed.output
    assert "warp_instructions" in failed.output
    assert "| ✗ | warp_instructions > 1.02 |" in summary.read_text()
    passed = workbench(*against, "--fail-if", "warp_instructions < 1")
    assert passed.exit_code == 0, passed.output
    assert summary.read_text().count("✓ | warp_instructions < 1") == 1, "appended"
    printed = json.loads(workbench(*against, "--fail-if", "warp_instructions > 1.02", "--json").stdout)
    assert (printed["schema"], printed["ok"]) == ("workbench-diff/1", False)
    assert ("once" in failed.output) == (command == "trace")
