"""Run `workbench setup cupy` first: it rebuilds the five modules of CuPy's wheel that contain NVIDIA's static runtime.
Without it a warning says so when CuPy is imported. No variable has to be set: kernels are compiled to PTX with line
numbers, and cached in the workbench's home unless `CUPY_CACHE_DIR` names another folder. Under `workbench run --check`
CuPy's memory pool is off, so that each array has bounds of its own. On a machine with a GPU the rebuilt modules use
NVIDIA's runtime (`nvidia-cuda-runtime`), and its driver compiles the sorting kernels at their first use. `pip install
--force-reinstall cupy-cuda13x` restores the original.

CuPy itself has 19,624 tests in its folders for the core, maths, logic, sorting, indexing, creation, manipulation,
statistics and random numbers. 262 of them, drawn at random without those of Jitify, were run on workbench 31121cd and
the commits around it: 253 passed, 7 were skipped, 2 failed, one because it needs cuSOLVER, one a second device.
"""

import workbench as wb

wb.simulated_driver(force=True, memory_bytes=256 << 20)

import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
from pathlib import Path  # noqa: E402

import cupy as cp  # noqa: E402
import cupyx  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from cupyx import jit  # noqa: E402
from features import refused, run  # noqa: E402

X = np.linspace(-3, 4, 60, dtype=np.float32).reshape(6, 10)
Y = np.arange(10, dtype=np.int64)


def _same(ours, numpys, rtol=0.0):
    np.testing.assert_allclose(cp.asnumpy(ours), numpys, rtol=rtol)


def arrays():
    """arrays: `arange`, `asarray`, `asnumpy`, ufuncs, comparisons, broadcasting, reshapes, `concatenate`, `where`"""
    x, y = cp.asarray(X), cp.asarray(Y)
    _same(cp.sqrt(cp.abs(x)) * y + 1, np.sqrt(np.abs(X)) * Y + 1, rtol=1e-6)
    _same(cp.sin(x) / cp.exp(x), np.sin(X) / np.exp(X), rtol=1e-5)
    _same((x > 0.5) & (y % 2 == 1), (X > 0.5) & (Y % 2 == 1))
    _same(cp.concatenate([x.T, cp.ones((2, 6), cp.float32)]), np.concatenate([X.T, np.ones((2, 6))]))
    _same(cp.where(x < 0, -x, x * 2), np.where(X < 0, -X, X * 2))
    _same(x.astype(cp.float16) + cp.float16(1), X.astype(np.float16) + np.float16(1))
    _same((x + 1j * x) ** 2, (X + 1j * X) ** 2, rtol=1e-5)


def indexing():
    """indexing: slices, masks, integer arrays, assignment, `take`, `cupyx.scatter_add`"""
    x, which = cp.asarray(X), np.array([4, 0, 0, 2])
    _same(x[1::2, ::-3], X[1::2, ::-3])
    _same(x[x > 1], X[X > 1])
    _same(x[cp.asarray(which), 3], X[which, 3])
    _same(x.take(cp.asarray(which), axis=1), X.take(which, axis=1))
    x[x < 0] = 7
    _same(x, np.where(X < 0, 7, X))
    sums = cp.zeros(5)
    cupyx.scatter_add(sums, cp.asarray(which), 1.5)
    _same(sums, [3, 0, 1.5, 0, 1.5])


def reductions():
    """reductions over all and over axes, means, variances, arg-reductions, scans (`cumsum`, `cumprod`), histograms"""
    x = cp.asarray(X)
    _same(x.sum(axis=0), X.sum(axis=0), rtol=1e-4)
    _same(x.mean(), X.mean(), rtol=1e-5)
    _same(x.var(axis=1), X.var(axis=1), rtol=1e-5)
    _same(x.argmax(axis=1), X.argmax(axis=1))
    _same(cp.any(x > 3, axis=0), np.any(X > 3, axis=0))
    _same(cp.cumsum(cp.asarray(Y)), np.cumsum(Y))
    _same(cp.cumprod(x, axis=1), np.cumprod(X, axis=1), rtol=1e-5)
    _same(cp.histogram(x, bins=5)[0], np.histogram(X, bins=5)[0])


def sorts():
    """sorts: `sort`, `argsort`, `lexsort`, `unique`, `searchsorted`, `partition`; Thrust's kernels, rebuilt"""
    x = np.random.default_rng(0).permutation(500).astype(np.float32)
    _same(cp.sort(cp.asarray(x)), np.sort(x))
    _same(cp.argsort(cp.asarray(x)), np.argsort(x))
    _same(cp.sort(cp.asarray(x.reshape(20, 25)), axis=0), np.sort(x.reshape(20, 25), axis=0))
    keys = np.stack([x, x // 50])
    _same(cp.lexsort(cp.asarray(keys)), np.lexsort(keys))
    _same(cp.unique(cp.asarray(x // 7)), np.unique(x // 7))
    _same(cp.searchsorted(cp.asarray(Y), cp.asarray(x % 11)), np.searchsorted(Y, x % 11))
    assert cp.partition(cp.asarray(x), 9)[:10].max() == 9


def kernels():
    """`ElementwiseKernel`, `ReductionKernel`, `cupy.fuse`, `cupy.vectorize`, `cupyx.jit.rawkernel`"""
    x, y = cp.asarray(X), cp.asarray(X) + 1
    squares = cp.ElementwiseKernel("T a, T b", "T out", "out = (a - b) * (a - b)", "squares")
    _same(squares(x, y), np.ones_like(X), rtol=1e-5)
    norm = cp.ReductionKernel("T a", "T out", "a * a", "a + b", "out = sqrt(a)", "0", "length_of")
    _same(norm(x, axis=1), np.linalg.norm(X, axis=1), rtol=1e-6)

    @cp.fuse()
    def fused(a, b):
        return cp.sqrt(a * a + b) * 2

    @cp.vectorize
    def chosen(a):
        return -a if a > 0 else a

    _same(fused(x, y * y), np.sqrt(X * X + (X + 1) ** 2) * 2, rtol=1e-5)
    _same(chosen(x), -np.abs(X))

    @jit.rawkernel()
    def twice(source, target, size):
        i = jit.blockIdx.x * jit.blockDim.x + jit.threadIdx.x
        if i < size:
            target[i] = source[i] * 2

    out = cp.zeros(60, cp.float32)
    twice[2, 32](x.ravel(), out, np.int32(60))
    _same(out, X.ravel() * 2)


RAW = r"""
__constant__ float factor[2];
template <class T> __global__ void scale(T *x, int n) {
  extern __shared__ char shared[];
  T *own = reinterpret_cast<T *>(shared);
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  own[threadIdx.x] = i < n ? x[i] : T(0);
  __syncthreads();
  if (i < n) x[i] = own[threadIdx.x] * factor[blockIdx.x & 1];
}
extern "C" __global__ void add(float *x, float y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += y;
}
"""


def raw_kernels():
    """`RawKernel`, by NVRTC and nvcc, `RawModule` with `__constant__` memory, templates, attributes of kernels"""
    x = cp.zeros(100, cp.float32)
    add = cp.RawKernel(RAW, "add")
    add((2,), (64,), (x, np.float32(3), 100))
    assert add.max_threads_per_block == 1024
    cp.RawKernel(RAW, "add", backend="nvcc")((2,), (64,), (x, np.float32(0), 100))
    module = cp.RawModule(code=RAW, options=("-std=c++17",), name_expressions=("scale<float>",))
    constant = cp.ndarray(2, cp.float32, module.get_global("factor"))
    constant[:] = cp.asarray([2, 5], cp.float32)
    module.get_function("scale<float>")((2,), (64,), (x, 100), shared_mem=4 * 64)
    _same(x, np.where(np.arange(100) < 64, 6, 15))


def streams():
    """streams, events, `elapsed_time`, captured graphs, host callbacks, `cupyx.profiler.benchmark` (predicted times)"""
    stream, seen = cp.cuda.Stream(non_blocking=True), []
    start, end = cp.cuda.Event(), cp.cuda.Event()
    with stream:
        start.record()
        x = cp.arange(1000, dtype=cp.float32)
        x += 1
        end.record()
    stream.launch_host_func(seen.append, 5)
    stream.synchronize()
    assert end.done
    assert seen == [5]
    assert cp.cuda.get_elapsed_time(start, end) > 0
    with stream:
        stream.begin_capture()
        x *= 2
        graph = stream.end_capture()
    for _ in range(3):
        graph.launch(stream)
    stream.synchronize()
    assert x[9] == 80
    assert cupyx.profiler.benchmark(lambda: cp.add(x, x, out=x), n_repeat=2, n_warmup=1).gpu_times.min() > 0


def memory():
    """memory: the pool and its statistics, `malloc_async`, managed, pinned; limits, `OutOfMemoryError`"""
    pool = cp.get_default_memory_pool()
    x = cp.zeros(1 << 20, cp.uint8)
    assert pool.used_bytes() >= 1 << 20
    del x
    pool.free_all_blocks()
    pinned = cupyx.empty_pinned(8, np.float32)
    pinned[:] = 3
    _same(cp.asarray(pinned), np.full(8, 3))
    for allocator in (cp.cuda.malloc_async, cp.cuda.malloc_managed):
        with cp.cuda.using_allocator(allocator):
            _same(cp.arange(5) * 2, np.arange(5) * 2)
    refused(lambda: cp.zeros(1 << 30, cp.uint8), "Out of memory allocating 1,073,741,824 bytes")


def exchange():
    """`__cuda_array_interface__` and DLPack; torch's build for CPUs and NumPy take a copy on the host"""
    x = cp.arange(6, dtype=cp.float32)
    _same(cp.from_dlpack(x), np.arange(6))
    _same(np.from_dlpack(x, device="cpu", copy=True), np.arange(6))
    on_host = torch.from_dlpack(x.__dlpack__(dl_device=(1, 0)))
    _same(cp.asarray(on_host), np.arange(6))

    class Other:
        __cuda_array_interface__ = x.__cuda_array_interface__

    view = cp.asarray(Other())
    view += 1
    _same(x, np.arange(1, 7))


def random_generators():
    """`cupy.random.default_rng`: its kernels over cuRAND's device functions, rebuilt"""
    generator = cp.random.default_rng(7)
    values = generator.random(4000, dtype=cp.float32)
    assert abs(float(values.mean()) - 0.5) < 0.02
    normal = generator.standard_normal(4000)
    assert abs(float(normal.std()) - 1) < 0.05
    whole = generator.integers(0, 6, 600)
    assert set(cp.asnumpy(whole)) == set(range(6))


def products():
    """matrix products (`@`, `dot`, `einsum`, `tensordot`) by our cuBLAS, in every type, on the host"""
    a, b = X.reshape(2, 6, 5), X.reshape(2, 5, 6)
    for dtype in (np.float16, np.float32, np.float64, np.complex64, np.int32):
        x, y = a.astype(dtype), b.astype(dtype)
        _same(cp.matmul(cp.asarray(x), cp.asarray(y)), x @ y, rtol=1e-2 if dtype is np.float16 else 1e-5)
        _same(cp.asarray(x[0]) @ cp.asarray(y[1]), x[0] @ y[1], rtol=1e-2 if dtype is np.float16 else 1e-5)
    _same(cp.dot(cp.asarray(X), cp.asarray(X[1])), X @ X[1], rtol=1e-5)
    _same(cp.einsum("ij,kj->ik", cp.asarray(X), cp.asarray(X)), X @ X.T, rtol=1e-5)
    _same(cp.tensordot(cp.asarray(a), cp.asarray(b), (2, 1)), np.tensordot(a, b, (2, 1)), rtol=1e-5)
    _same(cp.asfortranarray(cp.asarray(X)), X)


def random_numbers():
    """`cupy.random.seed`, `rand`, `randn`, `randint`, `permutation`, `choice`, by our cuRAND"""
    cp.random.seed(3)
    values = cp.random.rand(2000)
    cp.random.seed(3)
    _same(cp.random.rand(2000), values.get())
    assert abs(float(values.mean()) - 0.5) < 0.03
    assert abs(float(cp.random.randn(2000).std()) - 1) < 0.05
    assert set(cp.asnumpy(cp.random.randint(0, 4, 200))) == set(range(4))
    _same(cp.sort(cp.random.permutation(50)), np.arange(50))
    assert cp.random.choice(5, 3).max() < 5


FAULT = r'''
import cupy as cp
kernel = cp.RawKernel(r"""
extern "C" __global__ void shift(float *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  x[i] = x[i + 1];
}
""", "shift")
x = cp.arange(64, dtype=cp.float32)
kernel((1,), (64,), (x, 64))
'''


def checks():
    """`workbench run --check`: a fault in a `RawKernel` is reported with its line in the kernel's source"""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program.py"
        program.write_text(FAULT)
        command = [sys.executable, "-m", "workbench.cli", "run", "--check", str(program)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "shift.cu:4: shift: out-of-bounds" in done.stderr, done.stderr
    assert "x[i] = x[i + 1];" in done.stderr


WITHOUT = """
import cupy
assert cupy.cuda.runtime.runtimeGetVersion() >= 13000
import cupy.cuda.cub, cupy.cuda.thrust, cupy.cuda.jitify, cupy.random._generator_api
maps = open("/proc/self/maps").read()
assert "/nvidia/cu13/lib/libcudart.so.13" in maps and "/workbench/driver/" not in maps
"""


def other_driver():
    """without the simulated driver: NVIDIA's runtime, found beside CuPy, serves the rebuilt modules"""
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def no_textures():
    """textures and CUDA arrays"""
    form = cp.cuda.texture.ChannelFormatDescriptor(32, 0, 0, 0, cp.cuda.runtime.cudaChannelFormatKindFloat)
    refused(lambda: cp.cuda.texture.CUDAarray(form, 8, 8), "cudaErrorNotSupported", "cudaMalloc3DArray")


def no_libraries():
    """functions of cuFFT, cuSOLVER and cuSPARSE: `cupy.fft`, `cupy.linalg.solve`, sparse products"""
    refused(lambda: cp.fft.fft(cp.ones(8)), "libcufft: NVIDIA's library only runs on NVIDIA's driver")
    refused(lambda: cp.linalg.solve(cp.eye(3), cp.ones(3)), "libcusolver: NVIDIA's library")


if __name__ == "__main__":
    run(globals())
