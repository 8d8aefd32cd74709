"""Processes around the driver: forked ones, threads, the end of the interpreter, scripts, calls with any numbers."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

START = """
import ctypes, os, random, sys, threading
import workbench as wb
driver = wb.simulated_driver(force=True, memory_bytes=32 << 20)
cuda = ctypes.CDLL("libcuda.so.1")
def check(code, expected=0):
    assert code == expected, (code, expected)
"""


def run(code: str, **options) -> str:
    """Run a program after START in a process of its own; fails, with what it said, unless it ends well."""
    done = subprocess.run(
        [sys.executable, "-c", START + textwrap.dedent(code)], capture_output=True, text=True, timeout=300, **options
    )
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def test_a_forked_child_gets_the_drivers_error():
    run("""
    check(cuda.cuInit(0))
    child = os.fork()
    if child == 0:
        count = ctypes.c_int()
        counted = cuda.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value == 1
        memory = ctypes.c_uint64()
        os._exit(0 if counted and cuda.cuMemAlloc_v2(ctypes.byref(memory), 4) == 3 and cuda.cuInit(0) == 3 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    check(cuda.cuCtxSynchronize(), 201)  # the parent goes on: initialised, without a context
    """)


def test_nothing_before_init_and_nothing_without_a_context():
    run("""
    value = ctypes.c_int()
    check(cuda.cuDeviceGetCount(ctypes.byref(value)), 3)
    check(cuda.cuInit(1), 1)
    check(cuda.cuInit(0))
    check(cuda.cuDeviceGetAttribute(ctypes.byref(value), 9999, 0), 1)
    check(cuda.cuDeviceGet(ctypes.byref(value), 1), 101)
    check(cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(4)), 201)
    text = ctypes.c_char_p()
    cuda.cuGetErrorString(201, ctypes.byref(text))
    assert b"no current context" in text.value, text.value
    """)


FUZZ = """
check(cuda.cuInit(0))
context = ctypes.c_void_p()
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
check(cuda.cuCtxPushCurrent_v2(context))
address, stream, event = ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_void_p()
check(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4096)))
check(cuda.cuStreamCreate(ctypes.byref(stream), 0))
check(cuda.cuEventCreate(ctypes.byref(event), 0))
rng = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
out = (ctypes.c_uint64 * 1024)()  # room for whatever a call writes, and a place that may be read
zone = ctypes.addressof(out)
def handle():
    known = [context.value, stream.value, event.value, address.value]
    anything = [0, 1, 2, 3, rng.getrandbits(64), rng.getrandbits(32), rng.choice(known) + 16]
    return ctypes.c_uint64(rng.choice([*anything, *known]))
def size():
    small = [0, 1, 3, 512, 4096, 4097, rng.getrandbits(12)]
    return ctypes.c_size_t(rng.choice([*small, 1 << 20, 1 << 40, 1 << 63, 2**64 - 1]))
def number():
    return ctypes.c_int(rng.choice([0, 1, 2, 8, 97, -1, 32767, -2**31, rng.getrandbits(16)]))
def room():
    return ctypes.c_uint64(rng.choice([0, zone, zone + 4096]))
H, S, N, P = handle, size, number, room
# Pointers that a call reads or writes through are null or real, as no driver can tell others; all else is anything.
CALLS = {
    "cuCtxPushCurrent_v2": (H,), "cuCtxSetCurrent": (H,), "cuCtxPopCurrent_v2": (P,), "cuCtxGetDevice": (P,),
    "cuCtxSetLimit": (N, S), "cuCtxGetLimit": (P, N), "cuCtxGetApiVersion": (H, P), "cuCtxSynchronize": (),
    "cuDeviceGetAttribute": (P, N, N), "cuDeviceTotalMem_v2": (P, N), "cuDeviceGet": (P, N),
    "cuDeviceGetName": (P, N, N), "cuMemAlloc_v2": (P, S), "cuMemAllocPitch_v2": (P, P, S, S, N),
    "cuMemAllocManaged": (P, S, N), "cuMemFree_v2": (H,),
    "cuMemHostAlloc": (P, S, N), "cuMemFreeHost": (H,), "cuMemHostRegister_v2": (H, S, N), "cuMemHostUnregister": (H,),
    "cuMemGetAddressRange_v2": (P, P, H), "cuMemGetInfo_v2": (P, P), "cuMemHostGetDevicePointer_v2": (P, H, N),
    "cuMemHostGetFlags": (P, H), "cuPointerGetAttribute": (P, N, H),
    "cuMemcpyHtoD_v2": (H, H, S), "cuMemcpyDtoH_v2": (P, H, S), "cuMemcpyDtoD_v2": (H, H, S),
    "cuMemcpyDtoDAsync_v2": (H, H, S, H), "cuMemsetD8_v2": (H, N, S), "cuMemsetD16_v2": (H, N, S),
    "cuMemsetD32Async": (H, N, S, H), "cuMemsetD2D8_v2": (H, S, N, S, S), "cuMemsetD2D32_v2": (H, S, N, S, S),
    "cuMemcpy2D_v2": (P,), "cuMemcpy3D_v2": (P,), "cuMemcpy2DAsync_v2": (P, H),
    "cuStreamCreate": (P, N), "cuStreamDestroy_v2": (H,), "cuStreamSynchronize": (H,), "cuStreamQuery": (H,),
    "cuStreamWaitEvent": (H, H, N), "cuStreamAttachMemAsync": (H, H, S, N), "cuEventCreate": (P, N),
    "cuEventDestroy_v2": (H,), "cuEventRecord": (H, H), "cuEventSynchronize": (H,), "cuEventQuery": (H,),
    "cuEventElapsedTime_v2": (P, H, H), "cuModuleUnload": (H,), "cuModuleGetFunction": (P, H, P),
    "cuModuleGetGlobal_v2": (P, P, H, P), "cuModuleLoadData": (P, P), "cuModuleLoad": (P, P),
    "cuFuncGetAttribute": (P, N, H), "cuFuncSetAttribute": (H, N, N), "cuFuncSetBlockShape": (H, N, N, N),
    "cuLaunchKernel": (H, N, N, N, N, N, N, N, H, P, P), "cuCtxDetach": (H,), "cuCtxDestroy_v2": (H,),
    "cuDevicePrimaryCtxRelease_v2": (N,), "cuTexRefCreate": (P,), "cuArrayCreate_v2": (P, P),
    "cuLinkAddData_v2": (H, N, P), "cuMemAllocAsync": (P, S, H), "cuMemFreeAsync": (H, H), "cuMemPoolCreate": (P, P),
    "cuMemAllocFromPoolAsync": (P, S, H, H), "cuMemPoolDestroy": (H,), "cuMemPoolGetAttribute": (H, N, P),
    "cuGraphCreate": (P, N), "cuGraphInstantiateWithFlags": (P, H, S), "cuGraphLaunch": (H, H), "cuGraphDestroy": (H,),
    "cuGraphAddEmptyNode": (P, H, P, ctypes.c_size_t), "cuUserObjectRelease": (H, N),
    "cuFuncGetParamInfo": (H, S, P, P),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (P, H, N, S), "cuStreamGetCaptureInfo_v2": (H, P, P, P, P, P),
}
codes = set()
for turn in range(20000):
    name = rng.choice(list(CALLS))
    for i in range(64):
        out[i] = rng.choice([0, 1, 2, 3, 64, 4096, address.value, zone, rng.getrandbits(64)])
    codes.add(getattr(cuda, name)(*[make() for make in CALLS[name]]))
    if turn % 500 == 0:  # start over where everything was freed
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        cuda.cuCtxPushCurrent_v2(context)
        cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4096))
        cuda.cuStreamCreate(ctypes.byref(stream), 0)
        cuda.cuEventCreate(ctypes.byref(event), 0)
assert {0, 1, 201, 400, 801} <= codes, codes
assert codes <= {0, 1, 2, 101, 200, 201, 209, 215, 218, 301, 400, 500, 709, 712, 713, 801}, codes
"""


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_calls_with_any_numbers_never_end_the_process(seed: int):
    code = START + FUZZ
    done = subprocess.run([sys.executable, "-c", code, str(seed)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


def test_contexts_of_several_threads(pycuda, driver):
    run("""
    import numpy as np
    import pycuda.driver as cuda
    from pycuda.compiler import SourceModule
    cuda.init()
    source = "__global__ void add(int *x, int n) { atomicAdd(x + threadIdx.x, n); }"
    results = {}
    def work(number):
        context = cuda.Device(0).make_context()
        add = SourceModule(source).get_function("add")
        memory = cuda.to_device(np.zeros(32, np.int32))
        for _ in range(20):
            add(memory, np.int32(number), block=(32, 1, 1), grid=(4, 1))
        results[number] = cuda.from_device(memory, 32, np.int32)
        del memory, add
        context.pop()
        context.detach()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert all((results[number] == 80 * number).all() for number in range(1, 5)), results
    """)


def test_a_process_ends_in_peace_with_everything_still_alive(pycuda):
    said = run("""
    import numpy as np
    import pycuda.autoprimaryctx
    import pycuda.driver as cuda
    from pycuda import gpuarray
    from pycuda.compiler import SourceModule
    module = SourceModule("__global__ void add(int *x) { x[threadIdx.x] += 1; }")
    array, stream, event = gpuarray.zeros(32, np.int32), cuda.Stream(), cuda.Event()
    module.get_function("add")(array.gpudata, block=(32, 1, 1))
    print(array.get().sum())
    """)
    assert said.strip() == "32"


def test_an_endless_kernel_ends_at_the_limit(pycuda):
    code = """
    import numpy as np
    import workbench as wb
    wb.simulated_driver(force=True, seconds_limit=0.5)
    import pycuda.autoinit
    import pycuda.driver as cuda
    from pycuda.compiler import SourceModule
    module = SourceModule("__global__ void wait(volatile int *x) { for (int n = 0; *x == 0; ++n) x[1] = n; }")
    module.get_function("wait")(cuda.to_device(np.zeros(2, np.int32)), block=(1, 1, 1))
    try:
        cuda.Context.synchronize()
    except cuda.Error as error:
        assert "timed out" in str(error), error
        assert wb.simulated_driver().last_fault.kind == "timeout"
    else:
        raise SystemExit("no error")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


INTERRUPTED = """
import ctypes
import numpy as np
import workbench as wb
wb.simulated_driver(force=True)
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule
SOURCE = "__global__ void wait(volatile int *x, int n) { unsigned k = 0; while (*x == 0) ++k; x[1] += n + (k >> 31); }"
wait, directly = SourceModule(SOURCE).get_function("wait"), wb.load_cuda(SOURCE).wait
flag, array = cuda.to_device(np.zeros(2, np.int32)), np.zeros(2, np.int32)
library, stream = ctypes.CDLL("libcuda.so.1"), cuda.Stream()
handle, graph, executable = ctypes.c_void_p(stream.handle), ctypes.c_void_p(), ctypes.c_void_p()
assert library.cuStreamBeginCapture_v2(handle, 0) == 0
for _ in range(2):
    wait(flag, np.int32(1), block=(1, 1, 1), stream=stream)
assert library.cuStreamEndCapture(handle, ctypes.byref(graph)) == 0
assert library.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_uint64(0)) == 0
for call in (
    lambda: wait(flag, np.int32(1), block=(1, 1, 1)),
    lambda: library.cuGraphLaunch(executable, handle),
    lambda: directly(1, 1, array, 1),
):
    print("ready", flush=True)
    try:
        call()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
cuda.memcpy_htod(flag, np.array([1, 0], np.int32))
wait(flag, np.int32(5), block=(1, 1, 1))
array[0] = 1
directly(1, 1, array, 5)
print(cuda.from_device(flag, 2, np.int32), array)
"""


def test_ctrl_c_ends_a_kernel_and_nothing_else(pycuda):
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    for _ in range(3):
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
        time.sleep(0.2)
        start = time.perf_counter()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n", process.communicate()[1]
        assert time.perf_counter() - start < 2
    out, said = process.stdout.read(), process.stderr.read()  # communicate() would miss what readline() has buffered
    assert (out, said, process.wait(timeout=60)) == ("[1 5] [1 5]\n", "", 0)


def test_workbench_run_gives_a_script_its_driver(pycuda, tmp_path: Path):
    (tmp_path / "helper.py").write_text("import numpy as np\nNUMBERS = np.arange(8, dtype=np.float32)\n")
    (tmp_path / "script.py").write_text(
        textwrap.dedent("""
        import sys
        import pycuda.autoinit
        from pycuda import gpuarray
        from helper import NUMBERS
        print(pycuda.autoinit.device.name(), (gpuarray.to_gpu(NUMBERS) * 2).get().sum(), sys.argv[1:], __name__)
        """)
    )
    command = [sys.executable, "-m", "workbench.cli", "run", "--simulated", "--model", "a100-sxm-80gb"]
    done = subprocess.run(
        [*command, str(tmp_path / "script.py"), "--mine", "1"], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "A100-SXM4-80GB (simulated) 56.0 ['--mine', '1'] __main__", done.stderr
    done = subprocess.run([*command, "nothing.py"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "nothing.py" in done.stderr
