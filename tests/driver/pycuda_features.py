"""What PyCUDA offers, feature by feature, each tried on the simulated driver; PYCUDA.md is the list of them.

A feature's function runs in a context of its own and asserts what must come out. ``refused`` features assert the error
and that it names what is missing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

# Each has a function of its own by the same name.
CALLER = """
__device__ float thrice(float x);
extern __device__ float offset;
static __device__ __noinline__ float helper(float x) { return x + offset; }
__global__ void both(float *x) { x[threadIdx.x] = helper(thrice(x[threadIdx.x])); }
"""
CALLED = """
__device__ float offset = 100;
static __device__ __noinline__ float helper(float x) { return 3 * x; }
__device__ float thrice(float x) { return helper(x); }
"""
LAUNCHES = """
__global__ void child(float *x) { x[threadIdx.x] = 1; }
__global__ void parent(float *x) { child<<<1, 32>>>(x); }
"""
SOURCE = """
__constant__ float factor[2] = {3.0f, 4.0f};
__device__ int counter = 5;
struct Pair { int first; double second; };
__global__ void scale(float *x, float a, int n)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= a; }
__global__ void by_constant(float *x) { x[threadIdx.x] *= factor[threadIdx.x % 2]; counter += 1; }
__global__ void places(int *out)
{
    int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] = 100 * block + thread;
}
__global__ void turn(float *x)
{
    extern __shared__ float tile[];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
__global__ void by_value(double *out, Pair pair) { out[0] = pair.first + pair.second; }
__global__ void __launch_bounds__(128) bounded(float *x)
{ __shared__ float own[100]; own[threadIdx.x % 100] = 1; *x = own[0]; }
"""


@dataclass(frozen=True)
class Feature:
    """``what`` a reader sees in the list; ``refused`` where trying it asserts an error."""

    area: str
    what: str
    run: Callable
    refused: bool = False

    def __str__(self) -> str:
        return self.run.__name__


def page() -> str:
    """PYCUDA.md."""
    lines = [
        "# PyCUDA on the simulated driver",
        "",
        "Every line is a test in `tests/driver/pycuda_features.py`, which writes this page: `python",
        "tests/driver/pycuda_features.py > workbench/driver/PYCUDA.md`. A feature that is not here raises PyCUDA's",
        "error, and the error says what is missing.",
    ]
    for area in dict.fromkeys(feature.area for feature in FEATURES):
        lines += ["", f"## {area[0].upper()}{area[1:]}", ""]
        lines += [f"- {'not here: ' if one.refused else ''}{one.what}" for one in FEATURES if one.area == area]
    return "\n".join([*lines, "", NOTES.strip(), ""])


NOTES = """
## What differs from a GPU

- Work runs when it is enqueued, which is one of the orders that streams allow; nothing overlaps. A kernel's fault still
  shows at the next call, as on a GPU, and at every call after that. The message has the source line, block, thread and
  address; `workbench.simulated_driver().last_fault` is the whole finding.
- Times between events are *predicted* for the device model. `time_kernel=True` measures the host's clock, and means
  nothing here.
- The device runs PTX. `SourceModule` compiles with the `nvcc` that `simulated_driver` puts on PATH, which calls NVRTC,
  or an installed nvcc with `WORKBENCH_NVCC=nvcc`. Code that needs tensor memory (sm_100a) is refused.
- The device's memory is this machine's: half of it, at most 80 GiB, unless `memory_bytes` says otherwise. Addresses are
  not reused soon, so that a stale pointer is found.
- A process forked after `pycuda.driver.init()` gets CUDA_ERROR_NOT_INITIALIZED, as on a GPU: start workers with spawn.
- `register_host_memory` fails in PyCUDA 2026.1 itself, whose own test is marked as failing; the driver call works.
- PyCUDA's own `test_driver.py` passes except for two tests whose kernels launch kernels (19 passed, 11 skipped, 1
  expected failure).

[CLIENTS.md](CLIENTS.md) lists the other clients of the driver.
"""


def _loaded():
    """SOURCE compiled; PyCUDA's cache makes that once."""
    from pycuda.compiler import SourceModule

    return SourceModule(SOURCE, options=["-DUNUSED=1"])


# ---- devices and contexts --------------------------------------------------------------------------------------------


def device_facts(cuda):
    device = cuda.Device(0)
    assert cuda.Device.count() == 1
    assert "simulated" in device.name()
    assert device.compute_capability() == (9, 0)
    assert device.total_memory() == 64 << 20
    attributes = device.get_attributes()
    assert attributes[cuda.device_attribute.MULTIPROCESSOR_COUNT] == 132
    assert attributes[cuda.device_attribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN] == 227 * 1024
    assert device.warp_size == 32


def contexts(cuda):
    first = cuda.Context.get_current()
    second = cuda.Device(0).make_context()
    assert cuda.Context.get_current() == second
    cuda.Context.pop()
    assert cuda.Context.get_current() == first
    second.push()
    second.pop()
    second.detach()
    primary = cuda.Device(0).retain_primary_context()
    primary.push()
    assert cuda.Context.get_device() == cuda.Device(0)
    cuda.Context.pop()
    primary.detach()


# ---- memory ----------------------------------------------------------------------------------------------------------


def linear_memory(cuda):
    values = np.arange(1000, dtype=np.int32)
    memory, other = cuda.mem_alloc(values.nbytes), cuda.mem_alloc(values.nbytes)
    cuda.memcpy_htod(memory, values)
    cuda.memcpy_dtod(other, memory, values.nbytes)
    back = np.empty_like(values)
    cuda.memcpy_dtoh(back, other)
    np.testing.assert_array_equal(back, values)
    assert cuda.mem_get_address_range(int(memory) + 40) == (int(memory), 4000)
    np.testing.assert_array_equal(cuda.from_device_like(memory, values), values)
    free = cuda.mem_get_info()[0]
    memory.free()
    assert cuda.mem_get_info()[0] == free + 4000


def fills(cuda):
    memory, back = cuda.mem_alloc(1024), np.empty(256, np.uint32)
    cuda.memset_d8(memory, 0xAB, 1024)
    cuda.memset_d16(int(memory) + 512, 0x1234, 128)
    cuda.memset_d32(int(memory) + 768, 0xDEADBEEF, 64)
    cuda.memcpy_dtoh(back, memory)
    assert (back[:128] == 0xABABABAB).all()
    assert (back[128:192] == 0x12341234).all()
    assert (back[192:] == 0xDEADBEEF).all()


def pitched_memory(cuda):
    image = np.arange(30 * 17, dtype=np.float32).reshape(17, 30)
    memory, pitch = cuda.mem_alloc_pitch(30 * 4, 17, 4)
    assert pitch >= 120
    assert pitch % 128 == 0
    there, back = cuda.Memcpy2D(), cuda.Memcpy2D()
    there.set_src_host(image)
    there.set_dst_device(memory)
    there.src_pitch, there.dst_pitch, there.width_in_bytes, there.height = 120, pitch, 120, 17
    there(aligned=True)
    part = np.zeros((5, 10), np.float32)
    back.set_src_device(memory)
    back.set_dst_host(part)
    back.src_x_in_bytes, back.src_y, back.src_pitch, back.dst_pitch = 16, 3, pitch, 40
    back.width_in_bytes, back.height = 40, 5
    back(aligned=False)
    np.testing.assert_array_equal(part, image[3:8, 4:14])
    cuda.memset_d2d32(memory, pitch, 7, 30, 17)
    back(aligned=False)
    assert (part.view(np.int32) == 7).all()


def boxes(cuda):
    box = np.arange(4 * 5 * 6, dtype=np.int32).reshape(4, 5, 6)
    memory, stream = cuda.mem_alloc(box.nbytes), cuda.Stream()
    cuda.memcpy_htod(memory, box)
    copy, part = cuda.Memcpy3D(), np.zeros((2, 3, 2), np.int32)
    copy.set_src_device(memory)
    copy.set_dst_host(part)
    copy.src_x_in_bytes, copy.src_y, copy.src_z, copy.src_pitch, copy.src_height = 8, 1, 2, 24, 5
    copy.dst_pitch, copy.dst_height, copy.width_in_bytes, copy.height, copy.depth = 8, 3, 8, 3, 2
    copy()
    np.testing.assert_array_equal(part, box[2:4, 1:4, 2:4])
    part[:] = 0
    copy(stream)
    stream.synchronize()
    np.testing.assert_array_equal(part, box[2:4, 1:4, 2:4])


def page_locked_memory(cuda):
    stream = cuda.Stream()
    host = cuda.pagelocked_empty(256, np.float32, mem_flags=cuda.host_alloc_flags.DEVICEMAP)
    host[:] = np.arange(256)
    memory, back = cuda.mem_alloc(host.nbytes), cuda.pagelocked_zeros(256, np.float32)
    cuda.memcpy_htod_async(memory, host, stream)
    cuda.memcpy_dtoh_async(back, memory, stream)
    stream.synchronize()
    np.testing.assert_array_equal(back, host)
    scale = _loaded().get_function("scale")
    scale(np.intp(host.base.get_device_pointer()), np.float32(2), np.int32(256), block=(256, 1, 1))
    cuda.Context.synchronize()
    np.testing.assert_array_equal(host, 2 * np.arange(256))


def managed_memory(cuda):
    array = cuda.managed_empty(100, np.float32, mem_flags=cuda.mem_attach_flags.GLOBAL)
    array[:] = np.arange(100)
    _loaded().get_function("scale")(array, np.float32(2), np.int32(100), block=(128, 1, 1))
    cuda.Context.synchronize()
    np.testing.assert_array_equal(array, 2 * np.arange(100))


def memory_pools(cuda):
    from pycuda.tools import DeviceMemoryPool, PageLockedMemoryPool

    pool = DeviceMemoryPool()
    first = pool.allocate(1 << 16)
    address = int(first)
    first.free()
    assert int(pool.allocate(1 << 16)) == address
    pool.free_held()
    pinned = PageLockedMemoryPool().allocate((64,), np.float32)
    pinned[:] = 1


# ---- modules and launches --------------------------------------------------------------------------------------------


def source_module(cuda):
    scale = _loaded().get_function("scale")
    x = np.arange(1000, dtype=np.float32)
    scale(cuda.InOut(x), np.float32(3), np.int32(1000), block=(128, 1, 1), grid=(8, 1))
    np.testing.assert_array_equal(x, 3 * np.arange(1000))
    seconds = scale(cuda.InOut(x), np.float32(1), np.int32(1000), block=(128, 1, 1), grid=(8, 1), time_kernel=True)
    assert seconds > 0


def source_module_templates(cuda):
    from pycuda.compiler import SourceModule

    source = """
    #include <cuda_fp16.h>
    template <class T> __device__ T twice(T x) { return x + x; }
    extern "C" __global__ void go(__half *x) { x[threadIdx.x] = twice(x[threadIdx.x]) + __float2half(float(BIAS)); }
    """
    module = SourceModule(source, no_extern_c=True, options=["-DBIAS=1", "-std=c++17"])
    x = np.arange(32, dtype=np.float16)
    module.get_function("go")(cuda.InOut(x), block=(32, 1, 1))
    np.testing.assert_array_equal(x, 2 * np.arange(32, dtype=np.float16) + 1)


def module_variables(cuda):
    module = _loaded()
    place, size = module.get_global("factor")
    assert size == 8
    x = np.ones(4, np.float32)
    module.get_function("by_constant")(cuda.InOut(x), block=(4, 1, 1))
    np.testing.assert_array_equal(x, [3, 4, 3, 4])
    cuda.memcpy_htod(place, np.array([10, 20], np.float32))
    module.get_function("by_constant")(cuda.InOut(x), block=(4, 1, 1))
    np.testing.assert_array_equal(x, [30, 80, 30, 80])
    counter = np.zeros(1, np.int32)
    cuda.memcpy_dtoh(counter, module.get_global("counter")[0])
    assert counter[0] == 7
    other = _loaded()
    cuda.memcpy_dtoh(counter, other.get_global("counter")[0])
    assert counter[0] == 5, "another module has variables of its own"


def ptx_modules(cuda):
    import tempfile

    from pycuda.compiler import compile as compile_with_nvcc

    image = compile_with_nvcc(SOURCE, target="ptx", options=["-DUNUSED=1"])
    x = np.ones(64, np.float32)
    for module in (cuda.module_from_buffer(image), _from_file(cuda, image, tempfile)):
        module.get_function("scale")(cuda.InOut(x), np.float32(3), np.int32(64), block=(64, 1, 1))
    assert (x == 9).all()


def _from_file(cuda, image, tempfile):
    with tempfile.NamedTemporaryFile(suffix=".ptx") as file:
        file.write(image)
        file.flush()
        return cuda.module_from_file(file.name)


def dynamic_module(cuda):
    from pycuda.compiler import DynamicModule

    module = DynamicModule()
    for source in (CALLER, CALLED):
        module.add_source(source, nvcc_options=["-rdc=true", "-lcudadevrt"])
    module.add_stdlib("cudadevrt")
    module.link()
    x = np.arange(64, dtype=np.float32)
    module.get_function("both")(cuda.InOut(x), block=(64, 1, 1))
    np.testing.assert_array_equal(x, 3 * np.arange(64) + 100)


def three_dimensions(cuda):
    out = np.zeros(2 * 3 * 4 * 24, np.int32)
    _loaded().get_function("places")(cuda.Out(out), grid=(2, 3, 4), block=(4, 3, 2))
    np.testing.assert_array_equal(out, [100 * block + thread for block in range(24) for thread in range(24)])


def dynamic_shared_memory(cuda):
    turn, x = _loaded().get_function("turn"), np.arange(256, dtype=np.float32)
    turn(cuda.InOut(x), block=(256, 1, 1), shared=1024)
    np.testing.assert_array_equal(x, np.arange(256)[::-1])
    turn.set_attribute(cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 * 1024)
    turn(cuda.InOut(x), block=(256, 1, 1), shared=100 * 1024)
    np.testing.assert_array_equal(x, np.arange(256))


def function_attributes(cuda):
    bounded = _loaded().get_function("bounded")
    assert bounded.max_threads_per_block == 128
    assert bounded.shared_size_bytes == 400
    assert bounded.local_size_bytes == 0
    assert 0 < bounded.num_regs <= 255


def structs_by_value(cuda):
    pair = np.array([(3, 1.5)], np.dtype([("first", np.int32), ("second", np.float64)], align=True))
    out = np.zeros(1)
    _loaded().get_function("by_value")(cuda.Out(out), pair, block=(1, 1, 1))
    assert out[0] == 4.5


def prepared_calls(cuda):
    scale, x = _loaded().get_function("scale"), np.ones(128, np.float32)
    memory, stream = cuda.to_device(x), cuda.Stream()
    scale.prepare("Pfi")
    scale.prepared_call((1, 1), (128, 1, 1), memory, 2.0, 128)
    scale.prepared_async_call((1, 1), (128, 1, 1), stream, memory, 2.0, 128)
    stream.synchronize()
    assert scale.prepared_timed_call((1, 1), (128, 1, 1), memory, 2.0, 128)() > 0
    np.testing.assert_array_equal(cuda.from_device_like(memory, x), 8 * x)


def streams_and_events(cuda):
    scale, x = _loaded().get_function("scale"), np.ones(1 << 16, np.float32)
    memory, first, second = cuda.to_device(x), cuda.Stream(), cuda.Stream()
    begin, middle, end = cuda.Event(), cuda.Event(), cuda.Event()
    begin.record(first)
    scale(memory, np.float32(2), np.int32(x.size), block=(256, 1, 1), grid=(256, 1), stream=first)
    middle.record(first)
    second.wait_for_event(middle)
    scale(memory, np.float32(5), np.int32(x.size), block=(256, 1, 1), grid=(256, 1), stream=second)
    end.record(second).synchronize()
    assert first.is_done()
    assert end.query()
    assert 0 < middle.time_since(begin) < begin.time_till(end) < 1, "milliseconds, as predicted for this GPU"
    assert (cuda.from_device_like(memory, x) == 10).all()


# ---- arrays ----------------------------------------------------------------------------------------------------------


def array_arithmetic(cuda):
    from pycuda import gpuarray

    x, y = np.linspace(1, 2, 500).astype(np.float32), np.linspace(3, 5, 500).astype(np.float32)
    a, b = gpuarray.to_gpu(x), gpuarray.to_gpu(y)
    np.testing.assert_allclose((a + 2 * b - a * b / 3).get(), x + 2 * y - x * y / 3, rtol=1e-5)
    a += b
    np.testing.assert_allclose(a.get(), x + y, rtol=1e-6)
    np.testing.assert_array_equal((a > b).get(), (a.get() > b.get()))
    np.testing.assert_array_equal(
        gpuarray.arange(10, dtype=np.int32).get()[2:7], gpuarray.arange(10, dtype=np.int32)[2:7].get()
    )


def array_reductions(cuda):
    from pycuda import gpuarray

    x = np.arange(2000, dtype=np.float32) / 1000
    a = gpuarray.to_gpu(x)
    np.testing.assert_allclose(gpuarray.sum(a).get(), x.sum(), rtol=1e-5)
    np.testing.assert_allclose(gpuarray.dot(a, a).get(), x @ x, rtol=1e-5)
    assert gpuarray.max(a).get() == x.max()


def array_functions(cuda):
    import pycuda.cumath as cumath
    from pycuda import gpuarray

    x = np.linspace(0.1, 2, 200).astype(np.float32)
    np.testing.assert_allclose(cumath.exp(gpuarray.to_gpu(x)).get(), np.exp(x), rtol=1e-5)


def complex_arrays(cuda):
    from pycuda import gpuarray

    z = (np.arange(50) + 1j * np.arange(50)[::-1]).astype(np.complex64)
    np.testing.assert_allclose((gpuarray.to_gpu(z) * gpuarray.to_gpu(z)).get(), z * z, rtol=1e-5)


def elementwise_kernel(cuda):
    from pycuda import gpuarray
    from pycuda.elementwise import ElementwiseKernel

    combine = ElementwiseKernel(
        "float a, float *x, float b, float *y, float *z", "z[i] = a * x[i] + b * y[i]", "combine"
    )
    x, y = gpuarray.to_gpu(np.arange(400, dtype=np.float32)), gpuarray.to_gpu(np.ones(400, np.float32))
    z = gpuarray.empty_like(x)
    combine(5, x, 6, y, z)
    np.testing.assert_array_equal(z.get(), 5 * np.arange(400) + 6)


def reduction_kernel(cuda):
    from pycuda import gpuarray
    from pycuda.reduction import ReductionKernel

    dot = ReductionKernel(
        np.float32, neutral="0", reduce_expr="a + b", map_expr="x[i] * y[i]", arguments="float *x, float *y"
    )
    x = np.arange(3000, dtype=np.float32) / 1000
    np.testing.assert_allclose(dot(gpuarray.to_gpu(x), gpuarray.to_gpu(x)).get(), x @ x, rtol=1e-5)


def scan_kernels(cuda):
    from pycuda import gpuarray
    from pycuda.scan import ExclusiveScanKernel, InclusiveScanKernel

    x = np.random.default_rng(0).integers(0, 10, 3000).astype(np.int32)
    a = gpuarray.to_gpu(x)
    InclusiveScanKernel(np.int32, "a + b")(a)
    np.testing.assert_array_equal(a.get(), np.cumsum(x))
    a = gpuarray.to_gpu(x)
    ExclusiveScanKernel(np.int32, "a + b", 0)(a)
    np.testing.assert_array_equal(a.get(), np.cumsum(x) - x)


# ---- refused by name -------------------------------------------------------------------------------------------------


def _refused(cuda, run, *words: str):
    with pytest.raises(cuda.Error) as caught:
        run()
    for word in words:
        assert word in str(caught.value)


def texture_references(cuda):
    _refused(cuda, lambda: _loaded().get_texref("picture"), "not supported", "textures")
    _refused(cuda, cuda.TextureReference, "textures")


def surfaces(cuda):
    _refused(cuda, lambda: _loaded().get_surfref("picture"), "surfaces")


def cuda_arrays(cuda):
    _refused(cuda, lambda: cuda.matrix_to_array(np.zeros((4, 4), np.float32), "C"), "CUDA arrays")


def dynamic_parallelism(cuda):
    from pycuda.compiler import DynamicSourceModule

    _refused(cuda, lambda: DynamicSourceModule(LAUNCHES), "Dynamic parallelism is not supported")


def shared_between_processes(cuda):
    memory = cuda.mem_alloc(16)
    _refused(cuda, lambda: cuda.mem_get_ipc_handle(memory), "of this process alone")


def machine_code(cuda):
    _refused(cuda, lambda: cuda.module_from_buffer(b"\x7fELF" + bytes(60)), "machine code", "PTX")
    empty = b"\x50\xed\x55\xba\x01\x00\x10\x00" + bytes(60)
    _refused(cuda, lambda: cuda.module_from_buffer(empty), "fatbin has no PTX", "compute_XX")


def random_numbers(cuda):
    with pytest.raises(AttributeError, match="curand"):
        importlib.import_module("pycuda.curandom")


FEATURES = (
    Feature("devices and contexts", "devices: name, capability, memory, attributes", device_facts),
    Feature(
        "devices and contexts", "contexts that a program creates, the primary context; push, pop, detach", contexts
    ),
    Feature("memory", "`mem_alloc`, `memcpy_htod`, `_dtoh`, `_dtod`, `from_device`, `mem_get_info`", linear_memory),
    Feature("memory", "`memset_d8`, `_d16`, `_d32`", fills),
    Feature("memory", "`mem_alloc_pitch`, `Memcpy2D`, `memset_d2d…`", pitched_memory),
    Feature("memory", "`Memcpy3D`, also on a stream", boxes),
    Feature("memory", "page-locked memory, asynchronous copies, host memory used by a kernel", page_locked_memory),
    Feature("memory", "managed memory", managed_memory),
    Feature("memory", "`DeviceMemoryPool`, `PageLockedMemoryPool`", memory_pools),
    Feature("modules and launches", "`SourceModule`; `In`, `Out`, `InOut`; `time_kernel`", source_module),
    Feature("modules and launches", "`SourceModule` with templates, headers and options", source_module_templates),
    Feature("modules and launches", "`__device__` and `__constant__` variables: `get_global`", module_variables),
    Feature("modules and launches", "`module_from_buffer` and `module_from_file` with PTX", ptx_modules),
    Feature(
        "modules and launches",
        "`DynamicModule` of several sources, `DynamicSourceModule`",
        dynamic_module,
    ),
    Feature("modules and launches", "grids and blocks of three dimensions", three_dimensions),
    Feature(
        "modules and launches",
        "dynamic shared memory, and more than 48 KiB of it with an opt-in",
        dynamic_shared_memory,
    ),
    Feature("modules and launches", "function attributes: registers, shared memory, threads", function_attributes),
    Feature("modules and launches", "structs by value", structs_by_value),
    Feature("modules and launches", "`prepared_call`, `prepared_async_call`, `prepared_timed_call`", prepared_calls),
    Feature("streams and events", "order between streams; elapsed time is the *predicted* time", streams_and_events),
    Feature("arrays", "`GPUArray` arithmetic, comparison, slices", array_arithmetic),
    Feature("arrays", "`gpuarray.sum`, `dot`, `max`", array_reductions),
    Feature("arrays", "`pycuda.cumath`", array_functions),
    Feature("arrays", "complex numbers", complex_arrays),
    Feature("arrays", "`ElementwiseKernel`", elementwise_kernel),
    Feature("arrays", "`ReductionKernel`", reduction_kernel),
    Feature("arrays", "`InclusiveScanKernel`, `ExclusiveScanKernel`", scan_kernels),
    Feature("not supported", "texture references", texture_references, refused=True),
    Feature("not supported", "surface references", surfaces, refused=True),
    Feature("not supported", "CUDA arrays", cuda_arrays, refused=True),
    Feature("not supported", "dynamic parallelism", dynamic_parallelism, refused=True),
    Feature("not supported", "cubins, and fatbins without PTX", machine_code, refused=True),
    Feature(
        "not supported",
        "`pycuda.curandom`: `workbench setup pycuda` builds without cuRAND",
        random_numbers,
        refused=True,
    ),
    Feature(
        "not supported",
        "memory and events shared between processes (IPC)",
        shared_between_processes,
        refused=True,
    ),
)


if __name__ == "__main__":
    print(page(), end="")
