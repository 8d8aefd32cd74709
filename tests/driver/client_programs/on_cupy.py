"""After `workbench setup cupy`. A wheel of CuPy's as it comes has NVIDIA's CUDA runtime inside, which runs on NVIDIA's
driver alone: a warning says so when it is imported.
"""

import workbench as wb

wb.simulated_driver(force=True, memory_bytes=256 << 20)

import cupy as cp  # noqa: E402
import numpy as np  # noqa: E402
from features import run  # noqa: E402

RAW = """
extern "C" __global__ void add(float *x, float y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += y;
}
"""


def arrays():
    """arrays: `arange`, ufuncs, comparisons, broadcasting, indexing, sums"""
    x = cp.arange(12, dtype=cp.float32).reshape(3, 4)
    y = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_allclose(cp.asnumpy(cp.sqrt(x) * 2 + cp.ones(4, cp.float32)), np.sqrt(y) * 2 + 1, rtol=1e-6)
    np.testing.assert_array_equal((x[::2, 1:] > 5).get(), y[::2, 1:] > 5)
    np.testing.assert_array_equal(x.sum(axis=0).get(), y.sum(axis=0))


def raw_kernels():
    """`RawKernel`"""
    x = cp.zeros(100, cp.float32)
    cp.RawKernel(RAW, "add")((2,), (64,), (x, np.float32(3), 100))
    np.testing.assert_array_equal(x.get(), 3)


if __name__ == "__main__":
    run(globals())
