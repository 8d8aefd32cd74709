"""Its PyCUDA backend, `lang="PYCUDA"` (after `workbench setup pycuda`). Times are predicted."""

import workbench as wb

wb.simulated_driver(force=True, memory_bytes=64 << 20)

import numpy as np  # noqa: E402
from features import run  # noqa: E402
from kernel_tuner import run_kernel, tune_kernel  # noqa: E402

SOURCE = """
__global__ void add(float *out, float *a, float *b, int n) {
    int i = blockIdx.x * block_size_x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}
"""
A, B = np.random.default_rng(0).random((2, 4096), np.float32)


def tuning():
    """`tune_kernel` with its PyCUDA backend, checked against a given answer"""
    arguments, sizes = [np.zeros_like(A), A, B, np.int32(A.size)], {"block_size_x": [32, 128, 256]}
    answer = [A + B, None, None, None]
    results, _ = tune_kernel("add", SOURCE, A.size, arguments, sizes, answer=answer, lang="PYCUDA", iterations=2)
    assert [row["block_size_x"] for row in results] == [32, 128, 256]
    assert all(row["time"] > 0 for row in results)


def running():
    """`run_kernel`"""
    arguments = [np.zeros_like(A), A, B, np.int32(A.size)]
    out = run_kernel("add", SOURCE, A.size, arguments, {"block_size_x": 64}, lang="PYCUDA")
    np.testing.assert_array_equal(out[0], A + B)


if __name__ == "__main__":
    run(globals())
