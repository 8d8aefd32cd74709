"""Its `Program` and `Linker` return PTX for a cubin, and warn about nvJitLink, which they do without."""

import workbench as wb

wb.simulated_driver(force=True, memory_bytes=64 << 20)

import ctypes  # noqa: E402

import numpy as np  # noqa: E402
from cuda.core import (  # noqa: E402
    Device,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    Linker,
    LinkerOptions,
    ManagedMemoryResource,
    Program,
    ProgramOptions,
    VirtualMemoryResource,
    launch,
)
from features import refused, run  # noqa: E402

SOURCE = """
template <class T> __global__ void add(T *x, T y) { x[threadIdx.x] += y; }
extern "C" __global__ void plain(float *x) { x[threadIdx.x] *= 2; }
"""
DEVICE = Device()
DEVICE.set_current()
STREAM = DEVICE.create_stream()
OPTIONS = ProgramOptions(std="c++17", arch=f"sm_{DEVICE.arch}")


def _values(buffer, count: int) -> np.ndarray:
    pinned = LegacyPinnedMemoryResource().allocate(4 * count)
    buffer.copy_to(pinned, stream=STREAM)
    STREAM.sync()
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(int(pinned.handle))).copy()


def _filled(count: int):
    buffer = DEVICE.memory_resource.allocate(4 * count, stream=STREAM)
    buffer.fill(0, stream=STREAM)
    return buffer


def kernels():
    """`Program` from C++ ("ptx" and "cubin"), templates, `launch`, buffers from pools, pinned and managed memory"""
    code = Program(SOURCE, "c++", OPTIONS).compile("cubin", name_expressions=("add<float>",))
    buffer = _filled(32)
    launch(STREAM, LaunchConfig(grid=1, block=32), code.get_kernel("add<float>"), buffer, np.float32(3))
    launch(STREAM, LaunchConfig(grid=1, block=32), code.get_kernel("plain"), buffer)
    np.testing.assert_array_equal(_values(buffer, 32), 6)
    assert ManagedMemoryResource().allocate(256, stream=STREAM).is_host_accessible


def occupancy():
    """attributes and parameters of kernels, `occupancy`"""
    kernel = Program(SOURCE, "c++", OPTIONS).compile("ptx").get_kernel("plain")
    assert kernel.num_arguments == 1
    assert kernel.occupancy.max_active_blocks_per_multiprocessor(256, 0) == 8
    assert kernel.occupancy.max_potential_block_size(0, 1024).max_block_size == 1024


def linker():
    """`Linker`, through the driver's"""
    options = ProgramOptions(std="c++17", arch=f"sm_{DEVICE.arch}", relocatable_device_code=True)
    one = 'extern "C" __device__ float f(float x) { return x + 5; }'
    two = 'extern "C" __device__ float f(float x); extern "C" __global__ void go(float *x) { *x = f(*x); }'
    parts = [Program(text, "c++", options).compile("ptx") for text in (one, two)]
    kernel = Linker(*parts, options=LinkerOptions(arch=f"sm_{DEVICE.arch}")).link("cubin").get_kernel("go")
    buffer = _filled(1)
    launch(STREAM, LaunchConfig(grid=1, block=1), kernel, buffer)
    assert _values(buffer, 1) == [5]


def graphs():
    """graphs that are captured: `create_graph_builder`, `complete`, `launch`"""
    kernel = Program(SOURCE, "c++", OPTIONS).compile("ptx", name_expressions=("add<float>",)).get_kernel("add<float>")
    buffer, builder = _filled(32), DEVICE.create_graph_builder().begin_building()
    for _ in range(2):
        launch(builder, LaunchConfig(grid=1, block=32), kernel, buffer, np.float32(1))
    graph = builder.end_building().complete()
    for _ in range(3):
        graph.launch(STREAM)
    np.testing.assert_array_equal(_values(buffer, 32), 6)


def cooperative():
    """cooperative launches, where all blocks fit"""
    kernel = Program(SOURCE, "c++", OPTIONS).compile("ptx").get_kernel("plain")
    launch(STREAM, LaunchConfig(grid=4, block=32, is_cooperative=True), kernel, _filled(32))
    huge = LaunchConfig(grid=100_000, block=32, is_cooperative=True)
    refused(lambda: launch(STREAM, huge, kernel, _filled(32)), "exceeds the limit (4224)")


def clusters():
    """clusters of blocks"""
    kernel = Program(SOURCE, "c++", OPTIONS).compile("ptx").get_kernel("plain")
    launch(STREAM, LaunchConfig(grid=2, cluster=2, block=32), kernel, _filled(32))
    STREAM.sync()


def no_virtual_memory():
    """`VirtualMemoryResource`"""
    refused(lambda: VirtualMemoryResource(DEVICE), "VMM")


if __name__ == "__main__":
    run(globals())
