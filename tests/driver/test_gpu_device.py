"""The device "cuda" (devices/gpu.py) with the real PyCUDA on the simulated driver.

A CPU build of torch has no CUDA tensors and no streams, so these two stand in for them; everything below is real.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from workbench.devices import gpu
from workbench.errors import ArgumentError, KernelFault
from workbench.toolchain import compile_cuda, compile_cuda_module

SOURCE = """
__device__ int seen = 40;
extern "C" __global__ void saxpy(float *y, const float *x, float a, int n)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] += a * x[i]; }
extern "C" __global__ void count(int *out) { seen += 1; *out = seen; }
extern "C" __global__ void beyond(float *y, int n) { y[n] = 1; }
extern "C" __global__ void turn(float *x)
{
    extern __shared__ float tile[];
    tile[threadIdx.x + 20000] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[20000 + blockDim.x - 1 - threadIdx.x];
}
"""


class Tensor:
    """Device memory with what the device asks of a tensor."""

    device = SimpleNamespace(type="cuda", index=0)

    def __init__(self, cuda, content: np.ndarray):
        self._cuda, self._content, self._memory = cuda, content, cuda.to_device(content)

    def data_ptr(self) -> int:
        return int(self._memory)

    def numpy(self) -> np.ndarray:
        return self._cuda.from_device_like(self._memory, self._content)


class Stream:
    """Torch's streams: handles of the driver, and the order between them by the driver's events."""

    def __init__(self, cuda, handle: int, stream=None):
        self.cuda_stream, self._cuda, self._stream = handle, cuda, stream

    def wait_stream(self, other: Stream) -> None:
        event = self._cuda.Event(self._cuda.event_flags.DISABLE_TIMING)
        event.record(other._stream)
        if self._stream is not None:
            self._stream.wait_for_event(event)

    def synchronize(self) -> None:
        self._cuda.Context.synchronize()


@pytest.fixture
def current(pycuda, monkeypatch: pytest.MonkeyPatch) -> list[Stream]:
    """Torch's current stream, which a test may change; its primary context is current, as torch has it."""
    primary = _primary(pycuda)
    primary.push()
    streams = [Stream(pycuda, 0)]
    for name, answer in {
        "current_device": lambda: 0,
        "get_device_capability": lambda: (9, 0),
        "get_device_name": lambda: pycuda.Device(0).name(),
        "is_current_stream_capturing": lambda: False,
        "current_stream": lambda index: streams[-1],
        "ExternalStream": lambda handle, device: Stream(pycuda, handle, None),
    }.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    yield streams
    pycuda.Context.pop()


@functools.cache
def _primary(cuda):
    """Held as torch holds it: for as long as the process lives."""
    return gpu._for_ever(cuda.Device(0).retain_primary_context())


@pytest.fixture
def device(pycuda, current) -> gpu.Gpu:
    device = gpu.Gpu.__new__(gpu.Gpu)
    device._attach(pycuda, torch)
    return device


def saxpy(arch: str = "sm_90"):
    return compile_cuda(SOURCE, "saxpy", arch=arch)


def test_it_says_that_the_gpu_is_simulated(device):
    assert device.description == "H200-SXM5-141GB (simulated) (sm_90) through PyCUDA"


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_a_launch(device, pycuda, arch):
    """A cubin for sm_90 would be taken by a real driver; here it is the PTX."""
    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    there, out = Tensor(pycuda, x), Tensor(pycuda, y)
    device.launch(saxpy(arch), 8, 128, [out, there, 2.5, 1000])
    np.testing.assert_array_equal(out.numpy(), y + 2.5 * x)


def test_the_order_with_a_stream_of_torchs(device, pycuda, current):
    stream = pycuda.Stream(1)
    current.append(Stream(pycuda, stream.handle, stream))
    out, there = Tensor(pycuda, np.zeros(64, np.float32)), Tensor(pycuda, np.ones(64, np.float32))
    for _ in range(3):
        device.launch(saxpy(), 1, 64, [out, there, 1.0, 64])
    stream.synchronize()
    assert (out.numpy() == 3).all()


def test_shared_memory_beyond_48_kib(device, pycuda):
    x = Tensor(pycuda, np.arange(64, dtype=np.float32))
    device.launch(compile_cuda(SOURCE, "turn", arch="sm_90"), 1, 64, [x], shared_bytes=100 * 1024)
    np.testing.assert_array_equal(x.numpy(), np.arange(64)[::-1])


def test_variables(device, pycuda):
    kernel, out = compile_cuda_module(SOURCE, arch="sm_90")["count"], Tensor(pycuda, np.zeros(1, np.int32))
    device.launch(kernel, 1, 1, [out])
    assert device.read_variable(kernel, "seen") == (41).to_bytes(4, "little")
    device.write_variable(kernel, "seen", (6).to_bytes(4, "little"))
    device.launch(kernel, 1, 1, [out])
    assert out.numpy()[0] == 7
    device.reset_variables(kernel)
    device.launch(kernel, 1, 1, [out])
    assert out.numpy()[0] == 41


def test_threads(device, pycuda):
    """PyCUDA ties a context object to its thread: each must retain its own."""
    out, there = Tensor(pycuda, np.zeros(256, np.float32)), Tensor(pycuda, np.ones(256, np.float32))
    errors = []

    def work() -> None:
        try:
            for _ in range(5):
                device.launch(saxpy(), 2, 128, [out, there, 1.0, 256])
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert (out.numpy() == 20).all()


def test_what_is_refused(device, pycuda):
    with pytest.raises(ArgumentError, match="checks"):
        device.launch(saxpy(), 1, 64, [None, None, 1.0, 0], checks=True)
    with pytest.raises(ArgumentError, match="cpu"):
        device.launch(saxpy(), 1, 64, [torch.zeros(4), None, 1.0, 0])


def test_a_fault_is_the_launchs_error_from_then_on(pycuda, device):
    """In a process of its own it would end the process's work: here the primary context is made anew after it."""
    out = Tensor(pycuda, np.zeros(4, np.float32))
    device.launch(compile_cuda(SOURCE, "beyond", arch="sm_90"), 1, 1, [out, 4])
    with pytest.raises(KernelFault, match=r"illegal memory access.*0 bytes past the end"):
        device.launch(saxpy(), 1, 4, [out, out, 1.0, 4])
    assert ctypes.CDLL("libcuda.so.1").cuDevicePrimaryCtxReset_v2(0) == 0
