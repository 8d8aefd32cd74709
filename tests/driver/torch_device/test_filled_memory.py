"""New device memory that is filled with a byte, however large it is, and whether torch had it before or not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from workbench.driver.torch_device.library import installed_torch

TORCH = installed_torch()
PROGRAM = """
import workbench as wb
wb.simulated_gpu(force=True)
import torch
from workbench.driver.torch_device.starting import fill_new_memory

def is_filled(made, byte):
    return bool((made.view(torch.uint8) == byte).all())

fill_new_memory(0xFF)
small, large = (torch.empty(size, device="cuda") for size in (1000, 90 << 20))
assert small.isnan().all() and is_filled(large, 0xFF)
place = small.data_ptr()
del small, large
fill_new_memory(0x3C)
small, large = (torch.empty(size, device="cuda") for size in (1000, 90 << 20))
assert small.data_ptr() == place and is_filled(small, 0x3C) and is_filled(large, 0x3C)
assert torch.zeros(1000, device="cuda").sum() == 0
fill_new_memory(None)
small.zero_()
del small
assert is_filled(torch.empty(1000, device="cuda"), 0)
print("filled")
"""


@pytest.mark.skipif(TORCH is None or TORCH.problem is not None, reason="needs torch's build for CUDA 13")
def test_new_memory_is_filled():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.stdout == "filled\n", done.stderr
