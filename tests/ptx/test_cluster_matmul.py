"""Products of matrices by clusters, as a user writes and runs them: a multicast, a sum through distributed memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sampling import long_if

import workbench as wb
from workbench.errors import KernelFault

SOURCE = Path(__file__).with_name("cuda_cluster_matmul.cu")
SHARED_BYTES = 2 * 2 * 64 * 64 * 2


def launch_of(name: str, m: int, n: int, k: int) -> tuple[dict[str, Any], torch.Tensor, torch.Tensor]:
    """What a launch of the kernel takes, the result to be, and the one expected."""
    torch.manual_seed(0)
    a, b, c = torch.randn(m, k).half(), torch.randn(n, k).half(), torch.zeros(m, n)
    split = name == "matmul_split_k"
    grid, cluster = ((n // 64, m // 64, 4), (1, 1, 4)) if split else ((m // 64, n // 64), 2)
    maps = wb.TensorMap.of(a, (64, 64), swizzle=128), wb.TensorMap.of(b, (64 if split else 32, 64), swizzle=128)
    options = {"grid": grid, "block": 160, "args": (c, *maps, n, k), "shared_bytes": SHARED_BYTES, "cluster": cluster}
    return options, c, a.double() @ b.double().T


@pytest.mark.parametrize("size", [(128, 64, 512), long_if(True, (512, 512, 512))], ids=str)
@pytest.mark.parametrize("name", ["matmul_multicast", "matmul_split_k"])
def test_it_is_right_and_accused_of_nothing(name: str, size: tuple[int, int, int]) -> None:
    kernel = wb.load_cuda(SOURCE, arch="sm_90a")[name]
    options, c, expected = launch_of(name, *size)
    report = wb.check_kernel(kernel, **options)
    assert report.ok, report
    torch.testing.assert_close(c.double(), expected, rtol=0, atol=2e-3)


def test_a_trace_says_what_a_multicast_saves() -> None:
    options, _, _ = launch_of("matmul_multicast", 128, 64, 512)
    trace = wb.trace_kernel(wb.load_cuda(SOURCE, arch="sm_90a")["matmul_multicast"], **options)
    # Both blocks get tiles of a of their own and read one half each of those of b, which both get.
    assert (trace.landed_bytes, trace.filled_bytes) == (2 * 2 * 64 * 512 * 2, 0)
    assert trace.multicast_bytes == 64 * 512 * 2
    assert "65,536 by multicast" in str(trace)


FOUND = {  # the mistake planted: the kernel, what is told of it
    1: ("matmul_multicast", "may not have begun"),
    2: ("matmul_multicast", ""),
    3: ("matmul_multicast", "bytes"),
    4: ("matmul_multicast", "has ended"),
    5: ("matmul_split_k", "may not have begun"),
    6: ("matmul_split_k", "has ended"),
    7: ("matmul_multicast", "mbarrier.init"),
}


@pytest.mark.parametrize("fault", FOUND)
@pytest.mark.sampled(7)
def test_a_planted_mistake_is_found(fault: int) -> None:
    name, words = FOUND[fault]
    kernel = wb.load_cuda(SOURCE, arch="sm_90a", macros={"FAULT": fault})[name]
    options, _, _ = launch_of(name, 128, 64, 512)
    try:
        told = str(wb.check_kernel(kernel, **options))
    except KernelFault as found:
        told = str(found)
    assert "nothing found" not in told
    assert words in told
