"""Pairs of small PyCUDA programs for `ordered_pairs`; ``# first`` and ``# second`` are the lines of what is found.

Each returns what its operations leave behind.
"""

import ordered_pairs

ordered_pairs.watch_all()

import workbench as wb  # noqa: E402

wb.simulated_driver(force=True)

import numpy as np  # noqa: E402
import pycuda.driver as cuda  # noqa: E402
from pycuda.compiler import SourceModule  # noqa: E402
from pycuda.tools import DeviceMemoryPool  # noqa: E402

cuda.init()
context = cuda.Device(0).make_context()

N = 1024
add_one = SourceModule(
    """
__global__ void add_one(float *y, const float *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 1;
}
"""
).get_function("add_one")
SHAPE = {"block": (256, 1, 1), "grid": (N // 256, 1)}


def arrays() -> tuple[cuda.DeviceAllocation, cuda.DeviceAllocation]:
    made = cuda.mem_alloc(4 * N), cuda.mem_alloc(4 * N)
    for one in made:
        cuda.memset_d32(one, 0, N)
    cuda.Context.synchronize()
    return made


def value(array: cuda.DeviceAllocation) -> np.ndarray:
    """Return what an array holds when everything has run."""
    cuda.Context.synchronize()
    host = np.empty(N, np.float32)
    cuda.memcpy_dtoh(host, array)
    return host


def two_streams(fixed: bool) -> np.ndarray:
    """Launch twice on an array, on two streams."""
    (x, y), one, two = arrays(), cuda.Stream(), cuda.Stream()
    add_one(x, x, np.int32(N), **SHAPE, stream=one)  # first: two_streams
    add_one(y, x, np.int32(N), **SHAPE, stream=one if fixed else two)  # second: two_streams
    return value(y)


def event_forgotten(fixed: bool) -> np.ndarray:
    """Record an event after an upload, for which the stream of the launch does not wait."""
    (x, y), one, two, done = arrays(), cuda.Stream(), cuda.Stream(), cuda.Event()
    host = cuda.pagelocked_zeros(N, np.float32)
    host[:] = 1
    cuda.memcpy_htod_async(x, host, one)  # first: event_forgotten
    done.record(one)
    if fixed:
        two.wait_for_event(done)
    add_one(y, x, np.int32(N), **SHAPE, stream=two)  # second: event_forgotten
    return value(y)


def upload_again(fixed: bool) -> np.ndarray:
    """Fill a page-locked array again while it is copied."""
    (x, _), stream = arrays(), cuda.Stream()
    host = cuda.pagelocked_zeros(N, np.float32)
    cuda.memcpy_htod_async(x, host, stream)  # first: upload_again
    if fixed:
        stream.synchronize()
    host[:] = 1  # second: upload_again
    return value(x)


def early_result(fixed: bool) -> float:
    """Read a result before its copy has ended."""
    (x, y), stream, done = arrays(), cuda.Stream(), cuda.Event()
    host = cuda.pagelocked_zeros(N, np.float32)
    add_one(y, x, np.int32(N), **SHAPE, stream=stream)
    cuda.memcpy_dtoh_async(host, y, stream)  # first: early_result
    done.record(stream)
    if fixed:
        done.synchronize()
    return float(host.sum())  # second: early_result


def download_early(fixed: bool) -> np.ndarray:
    """Copy a result to the host on another stream than that of the launch."""
    (x, y), one, two = arrays(), cuda.Stream(), cuda.Stream()
    host = cuda.pagelocked_zeros(N, np.float32)
    add_one(y, x, np.int32(N), **SHAPE, stream=one)  # first: download_early
    cuda.memcpy_dtoh_async(host, y, one if fixed else two)  # second: download_early
    cuda.Context.synchronize()
    return host


def pooled(fixed: bool) -> np.ndarray:
    """Give memory back to PyCUDA's pool, which hands it out again, while a launch on another stream reads it."""
    (y, _), pool, one, two = arrays(), DeviceMemoryPool(), cuda.Stream(), cuda.Stream()
    x = pool.allocate(4 * N)
    cuda.memset_d32(x, 0, N)
    cuda.Context.synchronize()
    add_one(y, x, np.int32(N), **SHAPE, stream=one)  # first: pooled
    if fixed:
        one.synchronize()
    x.free()
    again = pool.allocate(4 * N)
    cuda.memset_d32_async(again, 0x40000000, N, two)  # second: pooled
    return value(y)


def managed(fixed: bool) -> np.ndarray:
    """Write managed memory on the host while a launch reads it."""
    x = cuda.managed_zeros(N, np.float32, mem_flags=cuda.mem_attach_flags.GLOBAL)
    y, _ = arrays()
    add_one(y, np.intp(x.base.get_device_pointer()), np.int32(N), **SHAPE)  # first: managed
    if fixed:
        cuda.Context.synchronize()
    x[5] = 1  # second: managed
    return value(y)


def freed(_: bool) -> np.ndarray:
    """Free memory under a running launch: the call waits for it, in both forms."""
    (x, y), stream = arrays(), cuda.Stream()
    add_one(y, x, np.int32(N), **SHAPE, stream=stream)
    x.free()
    again = cuda.mem_alloc(4 * N)
    cuda.memset_d32(again, 0, N)
    return value(y)


def default_waits(_: bool) -> np.ndarray:
    """Use the default stream, for which PyCUDA's streams wait: right in both forms."""
    (x, y), stream = arrays(), cuda.Stream()
    add_one(y, x, np.int32(N), **SHAPE, stream=stream)
    add_one(x, y, np.int32(N), **SHAPE)
    add_one(y, x, np.int32(N), **SHAPE, stream=stream)
    return value(y)


PAIRS = [
    two_streams, event_forgotten, upload_again, early_result, download_early, pooled, managed, freed, default_waits,
]  # fmt: skip

if __name__ == "__main__":
    ordered_pairs.run(PAIRS, cuda.Context.synchronize)
    context.pop()
