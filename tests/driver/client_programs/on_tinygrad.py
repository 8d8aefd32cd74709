"""It searches for libraries by file name. Before importing it set `DEV=CUDA`, `LD_LIBRARY_PATH` to the folders of
`workbench/driver/libcuda.so.1` and of NVRTC (`nvidia/cu13/lib`), and `CUDA_PATH` to the folder of the CUDA headers
(`nvidia/cu13`).
"""

import gc
import os
from pathlib import Path

import workbench as wb
from workbench.driver.library_files import library_path
from workbench.toolchain import nvrtc, tools

wb.simulated_driver(force=True, memory_bytes=64 << 20)
os.environ["DEV"] = "CUDA"
folders = library_path().parent, Path(nvrtc.library().path).parent
os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(map(str, folders))
os.environ["CUDA_PATH"] = str(tools.cuda_include().parent)

import numpy as np  # noqa: E402
from features import run  # noqa: E402
from tinygrad import Device, Tensor, TinyJit  # noqa: E402
from tinygrad.runtime.graph.cuda import CUDAGraph  # noqa: E402


def tensors():
    """tensors: matrix products, reductions, elementwise chains"""
    assert Device.DEFAULT == "CUDA"
    a, b = np.random.default_rng(0).random((2, 32, 32), np.float32)
    out = (Tensor(a) @ Tensor(b)).relu().sum(axis=1).numpy()
    np.testing.assert_allclose(out, (a @ b).sum(axis=1), rtol=1e-5)


def jit():
    """`TinyJit`, whose kernels become a graph"""

    @TinyJit
    def step(x, w):
        return ((x @ w).relu() + 1).softmax().realize()

    rng = np.random.default_rng(1)
    w = rng.random((32, 32), np.float32)
    weights = Tensor(w).realize()
    for _ in range(4):
        x = rng.random((8, 32), np.float32)
        out = step(Tensor(x).realize(), weights).numpy()
        expected = np.exp(x @ w - (x @ w).max(axis=1, keepdims=True))
        np.testing.assert_allclose(out, expected / expected.sum(axis=1, keepdims=True), rtol=1e-4)
    assert any(isinstance(one, CUDAGraph) for one in gc.get_objects())


if __name__ == "__main__":
    run(globals())
