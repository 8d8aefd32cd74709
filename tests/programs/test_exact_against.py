"""``workbench run --exact-against``: programs in torch with kernels, and the operators between them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.driver.torch_device.library import installed_torch

TORCH = installed_torch()
needs_torch = pytest.mark.skipif(TORCH is None or TORCH.problem is not None, reason="needs torch's build for CUDA 13")
DRAWN = """
import torch
torch.manual_seed(0)
x = torch.randn(3, 70, device="cuda")
w = torch.randn(70, 8, device="cuda")
"""
KERNEL = (
    """
import triton
import triton.language as tl

@triton.jit
def softmax(x, y, d, B: tl.constexpr):
    offsets = tl.arange(0, B)
    row = tl.load(x + tl.program_id(0) * d + offsets, mask=offsets < d, other=float("-inf"))
    row = tl.exp(row - tl.max(row, 0))
    tl.store(y + tl.program_id(0) * d + offsets, row / tl.sum(row, 0), mask=offsets < d)
"""
    + DRAWN
    + """
y = torch.empty_like(x)
softmax[(3,)](x, y, 70, B=128)
out = (y @ w).half() * 2
print("the result is", out)
"""
)
FORMULA = (
    DRAWN
    + """
powers = (x - x.amax(1, keepdim=True)).exp()
out = (powers @ w) / powers.sum(1, keepdim=True)
out += out
assert torch.allclose(out, torch.softmax(x, 1) @ w)
"""
)
OTHERS = {
    "formula": (FORMULA, "the same computation in 794 of 794 elements"),
    "more": (
        FORMULA.replace("out += out", "out += out + 1e-6"),
        "not the same computation: 24 elements",
    ),
    "no_rule": (
        FORMULA.replace("out += out", "out = torch.lgamma(out)"),
        "no answer: no_rule.py: torch.lgamma: exact",
    ),
    "elsewhere": ("import math\n", "no answer: they have no global variables of the same name"),
}


@needs_torch
def test_programs_are_compared_with_what_lies_between_their_kernels(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(KERNEL)
    for name, (text, _) in OTHERS.items():
        (tmp_path / f"{name}.py").write_text(text)
    words = [word for name in OTHERS for word in ("--exact-against", f"{name}.py")]
    command = [str(Path(sys.executable).with_name("workbench")), "run", *words, "kernel.py"]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr  # whatever the answers
    assert done.stdout.count("the result is <tensor of elements>") == 1
    for name, (_, answer) in OTHERS.items():
        assert f"exact: kernel.py and {name}.py: {answer}" in done.stdout
    assert "(compared: x, w, out)" in done.stdout
    assert "\n    every element of out differs\nexact: a difference fails nothing by itself" in done.stdout
