"""Driver calls, NVRTC, and the runtime."""

import workbench as wb

wb.simulated_driver(force=True, memory_bytes=64 << 20)

import ctypes  # noqa: E402

import numpy as np  # noqa: E402
from cuda.bindings import driver, nvrtc, runtime  # noqa: E402
from features import refused, run  # noqa: E402

SOURCE = b'extern "C" __global__ void add(float *x, float y) { x[threadIdx.x] += y; }'


def _checked(answer):
    code, *values = answer
    assert int(code) == 0, code
    return values[0] if len(values) == 1 else values


def _started():
    _checked(driver.cuInit(0))
    _checked(driver.cuCtxSetCurrent(_checked(driver.cuDevicePrimaryCtxRetain(0))))


def _kernel():
    program = _checked(nvrtc.nvrtcCreateProgram(SOURCE, b"add.cu", 0, [], []))
    _checked(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_90"]))
    ptx = b" " * _checked(nvrtc.nvrtcGetPTXSize(program))
    _checked(nvrtc.nvrtcGetPTX(program, ptx))
    return _checked(driver.cuModuleGetFunction(_checked(driver.cuModuleLoadData(ptx)), b"add"))


def kernels():
    """PTX by NVRTC, modules, launches, copies, streams, occupancy"""
    _started()
    kernel, stream = _kernel(), _checked(driver.cuStreamCreate(0))
    host = np.arange(32, dtype=np.float32)
    memory = _checked(driver.cuMemAllocAsync(host.nbytes, stream))
    _checked(driver.cuMemcpyHtoDAsync(memory, host.ctypes.data, host.nbytes, stream))
    arguments = ((memory, 2.0), (None, ctypes.c_float))
    _checked(driver.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, arguments, 0))
    back = np.zeros_like(host)
    _checked(driver.cuMemcpyDtoHAsync(back.ctypes.data, memory, host.nbytes, stream))
    _checked(driver.cuStreamSynchronize(stream))
    np.testing.assert_array_equal(back, host + 2)
    assert _checked(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(kernel, 256, 0)) == 8


def machine_code():
    """machine code by NVRTC (`-arch=sm_90`), which gives PTX here"""
    _started()
    program = _checked(nvrtc.nvrtcCreateProgram(SOURCE, b"add.cu", 0, [], []))
    _checked(nvrtc.nvrtcCompileProgram(program, 1, [b"-arch=sm_90"]))
    code = b" " * _checked(nvrtc.nvrtcGetCUBINSize(program))
    _checked(nvrtc.nvrtcGetCUBIN(program, code))
    assert b".target sm_90" in code
    _checked(driver.cuModuleGetFunction(_checked(driver.cuModuleLoadData(code)), b"add"))


def graphs():
    """graphs, captured and built node by node"""
    _started()
    stream, memory = _checked(driver.cuStreamCreate(0)), _checked(driver.cuMemAlloc(4))
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    _checked(driver.cuStreamBeginCapture(stream, mode))
    _checked(driver.cuMemsetD32Async(memory, 7, 1, stream))
    executable = _checked(driver.cuGraphInstantiate(_checked(driver.cuStreamEndCapture(stream)), 0))
    _checked(driver.cuGraphLaunch(executable, stream))
    out = np.zeros(1, np.uint32)
    _checked(driver.cuMemcpyDtoH(out.ctypes.data, memory, 4))
    assert out[0] == 7
    graph, fill = _checked(driver.cuGraphCreate(0)), driver.CUDA_MEMSET_NODE_PARAMS()
    fill.dst, fill.value, fill.elementSize, fill.width, fill.height = memory, 9, 4, 1, 1
    _checked(driver.cuGraphAddMemsetNode(graph, [], 0, fill, _checked(driver.cuCtxGetCurrent())))
    _checked(driver.cuGraphLaunch(_checked(driver.cuGraphInstantiate(graph, 0)), stream))
    _checked(driver.cuMemcpyDtoH(out.ctypes.data, memory, 4))
    assert out[0] == 9


def runtime_calls():
    """`cuda.bindings.runtime`: properties, memory, copies, streams, events, graphs, errors with their reason"""
    assert _checked(runtime.cudaRuntimeGetVersion()) == 13000
    assert _checked(runtime.cudaGetDeviceProperties(0)).multiProcessorCount == 132
    host, back = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    stream, memory = _checked(runtime.cudaStreamCreate()), _checked(runtime.cudaMalloc(host.nbytes))
    start, end = (_checked(runtime.cudaEventCreate()) for _ in range(2))
    kind = runtime.cudaMemcpyKind
    _checked(runtime.cudaEventRecord(start, stream))
    _checked(runtime.cudaMemcpyAsync(memory, host.ctypes.data, host.nbytes, kind.cudaMemcpyHostToDevice, stream))
    mode = runtime.cudaStreamCaptureMode.cudaStreamCaptureModeGlobal
    _checked(runtime.cudaStreamBeginCapture(stream, mode))
    _checked(runtime.cudaMemsetAsync(memory, 0, host.nbytes // 2, stream))
    graph = _checked(runtime.cudaGraphInstantiate(_checked(runtime.cudaStreamEndCapture(stream)), 0))
    _checked(runtime.cudaGraphLaunch(graph, stream))
    _checked(runtime.cudaEventRecord(end, stream))
    _checked(runtime.cudaMemcpy(back.ctypes.data, memory, host.nbytes, kind.cudaMemcpyDeviceToHost))
    np.testing.assert_array_equal(back, np.where(np.arange(32) < 16, 0, host))
    assert _checked(runtime.cudaEventElapsedTime(start, end)) > 0
    (code,) = runtime.cudaFree(12345)
    assert code == runtime.cudaError_t.cudaErrorInvalidValue
    assert b"in no allocation" in _checked(runtime.cudaGetErrorString(code))


def no_newer_runtime():
    """functions of the runtime that came after CUDA 13.0, such as `cudaGraphGetId`"""
    graph = _checked(runtime.cudaGraphCreate(0))
    refused(lambda: _checked(runtime.cudaGraphGetId(graph)), "cuGetExportTable")


def no_virtual_memory():
    """virtual memory management"""
    _started()
    refused(lambda: _checked(driver.cuMemAddressReserve(1 << 21, 0, 0, 0)), "use cuMemAlloc")


if __name__ == "__main__":
    run(globals())
