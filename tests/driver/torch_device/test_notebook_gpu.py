"""``%workbench --gpu``: torch's device in a notebook, with findings below the cell that launches."""

from __future__ import annotations

import subprocess

import pytest
import warm

from workbench.driver.torch_device.library import installed_torch

KERNELS = """
import triton
import triton.language as tl

@triton.jit
def double(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)
"""
CELLS = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "workbench")
shell.run_line_magic("workbench", "--gpu --check --force found")
for cell in (
    "import torch, kernels",
    "x = torch.ones(100, device='cuda')",
    "kernels.double[(1,)](x, 120, BLOCK=128)",
    "print(x[0].item(), len(found), [one.kind for one in found.findings])",
    "%workbench --gpu --arch sm_80",
):
    shell.run_cell(cell)
"""


@pytest.mark.skipif(installed_torch() is None or installed_torch().problem is not None, reason="torch is no CUDA build")
def test_a_notebook_has_a_device_and_shows_findings(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNELS)
    done = subprocess.run([*warm.python("gpu"), "-c", CELLS], capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert "2.0 1 ['out-of-bounds']" in done.stdout, done.stdout + done.stderr
    assert "kernels.py:8: double: out-of-bounds: 4 bytes" in done.stdout + done.stderr
    assert "cannot be combined with --arch or --inductor" in done.stdout + done.stderr
