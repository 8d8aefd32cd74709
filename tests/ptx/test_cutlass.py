"""CUTLASS 3's own kernels for sm_90, from the headers that pip brings, compiled by NVRTC: right, accused of nothing."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("cutlass") / "run_gemm.py"
KERNELS = {  # schedules of the main loop and what follows it, rows of a tile, blocks of a cluster, half of A stored
    "warps specialised": ("KernelTmaWarpSpecialized", "NoSmemWarpSpecialized", 64, 1, 0),
    "ping-pong": ("KernelTmaWarpSpecializedPingpong", "TmaWarpSpecialized", 64, 1, 0),
    "two blocks": ("KernelTmaWarpSpecializedCooperative", "TmaWarpSpecializedCooperative", 128, 2, 0),
    "sparse": ("KernelTmaWarpSpecializedPingpong", "TmaWarpSpecialized", 64, 1, 1),
}


@pytest.fixture(scope="module")
def headers() -> Path:
    found = importlib.util.find_spec("cutlass_library")
    if found is None:
        pytest.skip("no headers of CUTLASS: python -m pip install --no-deps nvidia-cutlass")
    if shutil.which("g++") is None:
        pytest.skip("no g++ for CUTLASS' host code")
    return Path(found.submodule_search_locations[0]) / "source" / "include"


@pytest.mark.long
@pytest.mark.parametrize("name", KERNELS)
def test_a_product(name: str, headers: Path) -> None:
    command = [sys.executable, str(PROGRAM), str(headers), *map(str, KERNELS[name])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1500)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "nothing found" in done.stdout
