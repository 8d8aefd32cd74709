"""`wb.load_ptx` on PTX of other compilers: y += a * x, as each of them passes two arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.errors import ArgumentError

FOLDER = Path(__file__).parent / "ptx_texts"
COUNT = 100
WARP_ARRAY = np.dtype(
    [("data", "u8"), ("grad", "u8"), ("shape", "4i4"), ("strides", "4i4"), ("ndim", "i4"), ("flags", "i4")]
)


def numba_array(array: np.ndarray) -> list[Any]:
    """meminfo, parent, items, bytes of one, data, shape, strides."""
    return [None, None, array.size, array.itemsize, array, array.size, array.itemsize]


def warp_array(array: np.ndarray) -> np.ndarray:
    return np.array([(array.ctypes.data, 0, (COUNT, 0, 0, 0), (4, 0, 0, 0), 1, 0)], WARP_ARRAY)


def warp_bounds(count: int) -> np.ndarray:
    return np.array([((count, 0), count, 1)], [("shape", "2i4"), ("size", "u8"), ("tiles", "u8")])


# compiler: (the entry, its arguments, the source line of the sum, of those that have one)
COMPILERS = {
    "clang": ("saxpy", lambda y, x, a: [y, x, a, COUNT], 5),
    "numba": ("saxpy", lambda y, x, a: [*numba_array(y), *numba_array(x), a], 5),
    "warp": (
        "saxpy_cuda_kernel_forward",
        lambda y, x, a: [warp_bounds(COUNT), warp_array(y), warp_array(x), a],
        None,
    ),
    "cute": (
        "kernel_cutlass_saxpy_kernel_tensorptrf32generico1001_tensorptrf32generico1001__0",
        lambda y, x, a: [y, x, a],
        14,
    ),
}


@pytest.mark.parametrize("compiler", COMPILERS)
def test_ptx_of_a_compiler_is_called_checked_and_traced(compiler):
    entry, arguments, line = COMPILERS[compiler]
    kernel = wb.load_ptx(FOLDER / f"{compiler}.ptx", device="sim")[entry]
    x, y = np.arange(COUNT, dtype=np.float32), np.ones(COUNT, np.float32)
    kernel(2, 64, *arguments(y, x, 2.0))
    assert np.array_equal(y, 1 + 2 * x)
    assert wb.check_kernel(kernel, grid=2, block=64, args=arguments(y, x, -2.0)).ok
    assert (y == 1).all(), "run in both orders, kept once"
    trace = wb.trace_kernel(kernel, grid=2, block=64, args=arguments(y, x, 2.0))
    assert trace.unique_bytes >= 3 * 4 * COUNT
    if line is not None:
        assert {one.source_line for one in trace.report.lines if one.requests} == {line}
    assert kernel.compiled.registers >= 8, "also of PTX newer than the assembler here"
    short = x[:90].copy()
    found = wb.check_kernel(kernel, grid=2, block=64, args=arguments(y, short, 2.0))
    assert [(one.kind, one.line, one.count) for one in found] == [("out-of-bounds", line, COUNT - 90)]


def test_a_record_of_another_size_is_refused():
    kernel = wb.load_ptx(FOLDER / "warp.ptx", device="sim")[COMPILERS["warp"][0]]
    y = np.ones(COUNT, np.float32)
    with pytest.raises(ArgumentError, match="24 bytes"):
        kernel(2, 64, warp_bounds(COUNT), warp_bounds(COUNT), warp_array(y), 2.0)
