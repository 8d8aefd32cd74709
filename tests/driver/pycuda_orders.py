"""Pairs of small PyCUDA programs for `ordered_pairs`; ``# first`` and ``# second`` are the lines of what is found."""

import ordered_pairs

ordered_pairs.watch_all()

import workbench as wb  # noqa: E402

wb.simulated_driver(force=True)

import numpy as np  # noqa: E402
import pycuda.driver as cuda  # noqa: E402
from pycuda.compiler import SourceModule  # noqa: E402

N = 1024
twice = SourceModule(
    """
__global__ void twice(float *y, const float *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
"""
).get_function("twice")


def start(y: object, x: object, stream: object = None) -> None:
    twice(y, x, np.int32(N), block=(256, 1, 1), grid=(N // 256, 1), stream=stream)


def arrays() -> tuple[cuda.DeviceAllocation, cuda.DeviceAllocation]:
    made = cuda.mem_alloc(4 * N), cuda.mem_alloc(4 * N)
    for one in made:
        cuda.memset_d32(one, 0, N)
    cuda.Context.synchronize()
    return made


def two_streams(fixed: bool) -> None:
    """Read on one stream what another one writes."""
    (x, y), (one, two), done = arrays(), (cuda.Stream(), cuda.Stream()), cuda.Event()
    cuda.memset_d32_async(x, 1, N, one)  # first: two_streams
    done.record(one)
    if fixed:
        two.wait_for_event(done)
    twice(y, x, np.int32(N), block=(256, 1, 1), grid=(4, 1), stream=two)  # second: two_streams


def upload_again(fixed: bool) -> None:
    """Fill a page-locked array again while it is copied."""
    (x, _), stream = arrays(), cuda.Stream()
    host = cuda.pagelocked_zeros(N, np.float32)
    cuda.memcpy_htod_async(x, host, stream)  # first: upload_again
    if fixed:
        stream.synchronize()
    host[:] = 1  # second: upload_again


def early_result(fixed: bool) -> None:
    """Read a result before its copy has ended."""
    (x, y), stream, done = arrays(), cuda.Stream(), cuda.Event()
    host = cuda.pagelocked_zeros(N, np.float32)
    twice(y, x, np.int32(N), block=(256, 1, 1), grid=(4, 1), stream=stream)
    cuda.memcpy_dtoh_async(host, y, stream)  # first: early_result
    done.record(stream)
    if fixed:
        done.synchronize()
    host.sum()  # second: early_result


def copies_overlap(fixed: bool) -> None:
    """Copy from a buffer on one stream while a launch on another one writes it."""
    (x, y), (one, two) = arrays(), (cuda.Stream(), cuda.Stream())
    host = cuda.pagelocked_zeros(N, np.float32)
    twice(y, x, np.int32(N), block=(256, 1, 1), grid=(4, 1), stream=one)  # first: copies_overlap
    cuda.memcpy_dtoh_async(host, y, one if fixed else two)  # second: copies_overlap


def managed(fixed: bool) -> None:
    """Write managed memory on the host while a launch reads it."""
    x = cuda.managed_zeros(N, np.float32, mem_flags=cuda.mem_attach_flags.GLOBAL)
    y, _ = arrays()
    twice(y, np.intp(x.base.get_device_pointer()), np.int32(N), block=(256, 1, 1), grid=(4, 1))  # first: managed
    if fixed:
        cuda.Context.synchronize()
    x[5] = 1  # second: managed


def default_waits(fixed: bool) -> None:
    """Use the default stream, for which PyCUDA's streams wait: right in both forms."""
    (x, y), stream = arrays(), cuda.Stream()
    start(y, x, stream)
    start(x, y)
    start(y, x, stream)


PAIRS = [two_streams, upload_again, early_result, copies_overlap, managed, default_waits]

if __name__ == "__main__":
    ordered_pairs.run(PAIRS, cuda.Context.synchronize)
