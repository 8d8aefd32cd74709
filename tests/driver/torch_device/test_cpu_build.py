"""With torch's CPU build everything but `cuda` goes on working, and who asks for `cuda` is told which build has it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.long

KERNELS = """
import torch, triton, triton.language as tl, workbench as wb
from workbench.attention import copy_blocks

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) + tl.load(y + at, at < n), at < n)

x = torch.rand(1000)
out = torch.empty_like(x)
add[(4,)](x, x, out, 1000, BLOCK=256)
scale = wb.load_cuda('extern "C" __global__ void scale(float* x) { x[threadIdx.x] *= 2; }', device="sim")
scale.scale(1, 32, out)
caches = torch.rand(2, 4, 16, 2, 64).half()
copy_blocks(caches[:1], caches[1:], torch.tensor([[0, 3]]), variant="cuda_vectors")
print(torch.version.cuda, torch.equal(out[:32], 4 * x[:32]), torch.equal(caches[:, 3], caches[:, 0]))
"""
ASKS = "import torch\ntorch.ones(2, device='cuda')"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run a program under `workbench run --check` with the CPU build of this torch's version in front."""
    folder = tmp_path_factory.mktemp("cpu_build")
    version = f"torch=={torch.__version__.split('+')[0]}+cpu"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder / "site"), version]
    install += ["--extra-index-url", "https://download.pytorch.org/whl/cpu"]
    done = subprocess.run(install, capture_output=True, text=True, timeout=500, check=False)
    if done.returncode:
        pytest.skip(f"{version} cannot be had: {done.stderr[-200:]}")

    def under(text: str) -> subprocess.CompletedProcess:
        program = Path(folder, "program.py")
        program.write_text(text)
        command = [sys.executable, "-m", "workbench.cli", "run", "--check", str(program)]
        environment = {**os.environ, "PYTHONPATH": str(folder / "site")}
        return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)

    return under


def test_kernels_run(run):
    done = run(KERNELS)
    assert done.stdout.splitlines()[-1:] == ["None True True"], done.stderr
    assert "nothing found" in done.stderr


def test_who_asks_for_cuda_is_told_which_build_has_it(run):
    done = run(ASKS)
    assert done.returncode == 1
    assert "is the CPU build, which has no cuda device. Install the CUDA build: python -m pip install" in done.stderr
