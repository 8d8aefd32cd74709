"""Install `numba-cuda[cu13]`; no variable has to be set. Numba links through the driver, and warns about that."""

import workbench as wb

wb.simulated_driver(force=True, memory_bytes=64 << 20)

import math  # noqa: E402
import warnings  # noqa: E402

import numpy as np  # noqa: E402
from features import run  # noqa: E402
from numba import cuda, float32  # noqa: E402

warnings.simplefilter("ignore")


def kernels():
    """`@cuda.jit`: host and device arrays, streams, `math`, debug information"""

    @cuda.jit
    def wave(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = math.sin(x[i])

    x, out = np.linspace(0, 1, 1000), np.zeros(1000)
    wave[8, 128](x, out)
    np.testing.assert_allclose(out, np.sin(x))
    stream = cuda.stream()
    there = cuda.device_array_like(x)
    cuda.jit(debug=True, opt=False)(wave.py_func)[8, 128, stream](cuda.to_device(x, stream=stream), there)
    np.testing.assert_allclose(there.copy_to_host(stream=stream), np.sin(x))


def shared_memory():
    """shared memory, barriers, atomics; pinned, mapped and managed arrays"""

    @cuda.jit
    def total(x, out):
        tile, t = cuda.shared.array(128, float32), cuda.threadIdx.x
        tile[t] = x[cuda.grid(1)]
        cuda.syncthreads()
        half = 64
        while half > 0:
            if t < half:
                tile[t] += tile[t + half]
            cuda.syncthreads()
            half //= 2
        if t == 0:
            cuda.atomic.add(out, 0, tile[0])

    out = cuda.managed_array(1, np.float32)
    out[0] = 0
    total[4, 128](np.ones(512, np.float32), out)
    cuda.synchronize()
    assert out[0] == 512
    assert cuda.pinned_array(4).size == cuda.mapped_array(4).size == 4


def device_functions():
    """device functions, reductions, the compiler's figures of registers and shared memory"""

    @cuda.jit(device=True)
    def square(x):
        return x * x

    @cuda.jit("void(float32[:])")
    def squares(x):
        x[cuda.threadIdx.x] = square(x[cuda.threadIdx.x])

    x = cuda.to_device(np.arange(32, dtype=np.float32))
    squares[1, 32](x)
    assert cuda.reduce(lambda a, b: a + b)(x) == (np.arange(32) ** 2).sum()
    assert squares.get_max_threads_per_block() == 1024


def cooperative_groups():
    """cooperative groups: `cuda.cg.this_grid().sync()`"""

    @cuda.jit
    def last_first(x):
        i = cuda.grid(1)
        x[i] = i
        cuda.cg.this_grid().sync()
        if i == 0:
            x[0] = x[x.size - 1]

    x = cuda.to_device(np.zeros(256, np.int32))
    last_first[4, 64](x)
    assert x.copy_to_host()[0] == 255


if __name__ == "__main__":
    run(globals())
