"""The CUDA runtime's own calls: errors, memory that nobody wrote, and the heap of kernels."""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest
from runtime_calls import BY_ADDRESS, INT, SIZE, TO_HOST, U64, UINT, VOID, Runtime

from workbench.analysis.device_models import device_model
from workbench.analysis.launches import Launches
from workbench.analysis.watching import Watch, watch
from workbench.toolchain import tools

ILLEGAL_ADDRESS = 700


@pytest.fixture
def checked():
    """The launches of a process under ``workbench run --check``."""
    launches = Launches()
    watch(Watch(launches, device_model("h200"), checks=True))
    yield launches
    watch(None)


def findings(launches: Launches) -> list[str]:
    return [finding.kind for launch in launches for finding in launch.findings]


FREES = {
    "cudaFree": lambda runtime: runtime.new("cudaMalloc", VOID, SIZE(16)),
    "cudaFreeHost": lambda runtime: runtime.new("cudaMallocHost", VOID, SIZE(16)),
    "cudaStreamDestroy": lambda runtime: runtime.new("cudaStreamCreate"),
    "cudaEventDestroy": lambda runtime: runtime.new("cudaEventCreate"),
    "cudaGraphDestroy": lambda runtime: runtime.new("cudaGraphCreate", VOID, 0),
    "cudaLibraryUnload": lambda runtime: runtime.load(),
}


def test_a_fault_stays_until_the_device_is_reset(runtime: Runtime):
    things = {name: make(runtime) for name, make in FREES.items()}
    async_place = runtime.new("cudaMallocAsync", VOID, SIZE(16), None)
    place, kernel, other = runtime.array([0]), runtime.kernel("store"), runtime.new("cudaGraphCreate", VOID, 0)
    number, out = UINT(1), VOID()
    assert runtime.launch(kernel, [U64(64), number]) == 0, "the launch itself does not know yet"
    needs = {
        "cudaDeviceSynchronize": (), "cudaMalloc": (ctypes.byref(out), SIZE(4)), "cudaStreamQuery": (None,),
        "cudaMemset": (place, 0, SIZE(4)), "cudaGraphInstantiate": (ctypes.byref(out), other, U64(0)),
        "cudaPointerGetAttributes": (ctypes.create_string_buffer(128), place), "cudaStreamCreate": (ctypes.byref(out),),
    }  # fmt: skip
    for name, arguments in needs.items():
        assert getattr(runtime, name)(*arguments) == ILLEGAL_ADDRESS, name
        assert "out-of-bounds" in runtime.said(ILLEGAL_ADDRESS)
    assert runtime.launch(kernel, [place, number]) == ILLEGAL_ADDRESS
    for name, thing in things.items():
        assert getattr(runtime, name)(thing) == 0, f"{name} has done what it is for"
    assert runtime.cudaFreeAsync(async_place, None) == 0
    assert runtime.cudaFree(place) == 0
    assert runtime.cudaFree(None) == 0
    assert runtime.cudaFree(place) == 1, "what it did itself it says"
    device = INT(7)
    assert runtime.cudaGetDevice(ctypes.byref(device)) == 0
    assert device.value == 0
    assert runtime.cudaPeekAtLastError() == 1
    assert runtime.cudaDeviceSynchronize() == ILLEGAL_ADDRESS
    assert [runtime.cudaGetLastError() for _ in range(2)] == [ILLEGAL_ADDRESS] * 2
    assert runtime.cudaDeviceReset() == 0
    assert runtime.cudaGetLastError() == 0
    place = runtime.array([0])
    assert runtime.launch(runtime.kernel("store"), [place, number]) == 0
    assert runtime.values(place) == [1]


def test_a_reset_in_another_thread_is_one_here(runtime: Runtime):
    from concurrent.futures import ThreadPoolExecutor

    assert runtime.launch(runtime.kernel("store"), [U64(64), UINT(1)]) == 0
    assert runtime.cudaDeviceSynchronize() == ILLEGAL_ADDRESS
    with ThreadPoolExecutor(1) as other:
        assert other.submit(runtime.cudaDeviceReset).result() == 0
    assert runtime.cudaGetLastError() == ILLEGAL_ADDRESS
    assert runtime.cudaGetLastError() == 0
    assert runtime.cudaDeviceSynchronize() == 0


def fill(runtime: Runtime, place: VOID) -> None:
    runtime.did("cudaMemset", place, 0, SIZE(4))


def copy_in(runtime: Runtime, place: VOID) -> None:
    runtime.did("cudaMemcpy", place, VOID(np.zeros(4, np.uint32).ctypes.data), SIZE(16), BY_ADDRESS)


def copy_written(runtime: Runtime, place: VOID) -> None:
    runtime.did("cudaMemcpy", place, runtime.array([1]), SIZE(4), BY_ADDRESS)


def copy_unwritten(runtime: Runtime, place: VOID) -> None:
    fill(runtime, place)
    runtime.did("cudaMemcpy", place, runtime.new("cudaMalloc", VOID, SIZE(4)), SIZE(4), BY_ADDRESS)


def store(runtime: Runtime, place: VOID) -> None:
    assert runtime.launch(runtime.kernel("store"), [place, UINT(1)]) == 0


def fill_beside(runtime: Runtime, place: VOID) -> None:
    runtime.did("cudaMemset", VOID(place.value + 4), 0, SIZE(64))


def copy_out(runtime: Runtime, place: VOID) -> None:
    runtime.did("cudaMemcpy", VOID(np.zeros(4, np.uint32).ctypes.data), place, SIZE(16), TO_HOST)


WRITES = {
    "nothing": (None, False), "a fill": (fill, True), "a copy": (copy_in, True), "a kernel": (store, True),
    "a copy on the device": (copy_written, True), "a copy of nothing": (copy_unwritten, False),
    "what is beside": (fill_beside, False), "a read": (copy_out, False),
}  # fmt: skip


@pytest.mark.parametrize("pool", [False, True], ids=["cudaMalloc", "cudaMallocAsync"])
@pytest.mark.parametrize("write", WRITES)
def test_memory_counts_as_written_when_somebody_wrote_it(runtime: Runtime, checked, write, pool):
    first = runtime.kernel("store")  # the process's first launch is checked, too
    assert runtime.launch(first, [runtime.new("cudaMalloc", VOID, SIZE(4)), UINT(1)]) == 0
    place = (
        runtime.new("cudaMallocAsync", VOID, SIZE(128), None) if pool else runtime.new("cudaMalloc", VOID, SIZE(128))
    )
    how, written = WRITES[write]
    if how:
        how(runtime, place)
    assert runtime.launch(runtime.kernel("add"), [place, UINT(1)]) == 0
    assert findings(checked) == ([] if written else ["uninitialised global read"])


def test_a_launch_without_checks_may_have_written_anything(runtime: Runtime, checked):
    kernel, add = runtime.kernel("store"), runtime.kernel("add")
    place = runtime.new("cudaMalloc", VOID, SIZE(4))
    watch(None)
    assert runtime.launch(kernel, [place, UINT(1)]) == 0
    watch(Watch(checked, device_model("h200"), checks=True))
    assert runtime.launch(add, [place, UINT(1)]) == 0
    assert findings(checked) == []


@pytest.mark.parametrize("same", [True, False], ids=["within", "to another"])
@pytest.mark.parametrize(("to", "from_"), [(0, 4), (4, 0), (3, 40), (41, 6), (0, 0)])
def test_a_copy_hands_on_which_bytes_nobody_wrote(runtime: Runtime, checked, to, from_, same):
    runtime.did("cudaDeviceSynchronize")
    assert runtime.launch(runtime.kernel("store"), [runtime.array([1]), UINT(1)]) == 0
    source, target = (runtime.new("cudaMalloc", VOID, SIZE(128)) for _ in range(2))
    runtime.did("cudaMemset", VOID(source.value + 10), 1, SIZE(64))
    written = np.zeros((2, 128), bool)
    written[0, 10:74] = True
    into = 0 if same else 1
    place = source if same else target
    runtime.did("cudaMemcpy", VOID(place.value + to), VOID(source.value + from_), SIZE(50), BY_ADDRESS)
    written[into, to : to + 50] = written[0, from_ : from_ + 50].copy()
    assert runtime.launch(runtime.kernel("read_bytes"), [place], threads=128) == 0
    (finding,) = [finding for launch in checked for finding in launch.findings]
    assert (finding.thread[0], finding.count) == (int(np.argmin(written[into])), int((~written[into]).sum()))


HEAP_SIZE = 2


def taken(runtime: Runtime, size: int) -> U64:
    """A block of the device heap."""
    out = runtime.new("cudaMalloc", VOID, SIZE(8))
    assert runtime.launch(runtime.kernel("make"), [out, U64(size)]) == 0
    low, high = runtime.values(out, 2)
    return U64(high << 32 | low)


def test_kernels_share_the_heap_of_their_context(runtime: Runtime, driver):
    before = len(driver.heap_leaks)
    runtime.did("cudaDeviceSetLimit", HEAP_SIZE, SIZE(1 << 16))
    block = taken(runtime, 100)
    assert block.value
    assert taken(runtime, 1 << 16).value == 0, "there is no room beside the other"
    assert runtime.launch(runtime.kernel("store"), [block, UINT(1)], threads=25) == 0
    assert runtime.cudaMemset(block, 0, SIZE(4)) == 1, "it is the kernels' own"
    assert runtime.cudaDeviceSetLimit(HEAP_SIZE, SIZE(1 << 20)) == 1
    assert len(driver.heap_leaks) == before + 1
    assert runtime.launch(runtime.kernel("end"), [block]) == 0
    assert len(driver.heap_leaks) == before
    assert runtime.launch(runtime.kernel("store"), [block, UINT(1)]) == 0
    assert runtime.cudaDeviceSynchronize() == ILLEGAL_ADDRESS
    assert "of the device heap that was freed" in runtime.said(ILLEGAL_ADDRESS)
    runtime.did("cudaDeviceReset")
    runtime.did("cudaDeviceSetLimit", HEAP_SIZE, SIZE(1 << 20))
    assert taken(runtime, 1 << 18).value


def test_a_batch_of_copies_is_one_after_the_other(runtime: Runtime):
    first, second, out = runtime.array([1, 2]), runtime.array([3, 4]), np.zeros(2, np.uint32)
    host = out.ctypes.data
    to, from_ = (VOID * 2)(second.value, host), (VOID * 2)(first.value, second.value)
    sizes = (SIZE * 2)(4, 8)
    runtime.did("cudaMemcpyBatchAsync", to, from_, sizes, SIZE(2), None, None, SIZE(0), None)
    assert out.tolist() == [1, 4]
    sizes[1] = 12
    assert runtime.cudaMemcpyBatchAsync(to, from_, sizes, SIZE(2), None, None, SIZE(0), None) == 1
    assert "12 bytes from byte 0 of an allocation of 8 bytes" in runtime.said(1)
    assert runtime.cudaMemcpyBatchAsync(to, from_, sizes, SIZE(0), None, None, SIZE(0), None) == 1


def test_ranges_of_managed_memory(runtime: Runtime):
    managed, plain = runtime.new("cudaMallocManaged", VOID, SIZE(64), UINT(1)), runtime.array([0])
    value, preferred, read_mostly = INT(7), 2, 1
    for which, expected in ((read_mostly, 0), (preferred, -2)):
        runtime.did("cudaMemRangeGetAttribute", ctypes.byref(value), SIZE(4), which, managed, SIZE(64))
        assert value.value == expected
    assert runtime.cudaMemRangeGetAttribute(ctypes.byref(value), SIZE(4), 1, managed, SIZE(65)) == 1
    assert runtime.cudaMemRangeGetAttribute(ctypes.byref(value), SIZE(4), 1, plain, SIZE(4)) == 1
    assert "not managed memory" in runtime.said(1)
    places, sizes = (VOID * 1)(managed.value), (SIZE * 1)(64)
    runtime.did("cudaMemPrefetchBatchAsync", places, sizes, SIZE(1), None, None, SIZE(0), U64(0), None)
    sizes[0] = 65
    assert runtime.cudaMemDiscardBatchAsync(places, sizes, SIZE(1), U64(0), None) == 1


def test_attributes_of_streams_are_kept(runtime: Runtime):
    first, second = runtime.new("cudaStreamCreate"), runtime.new("cudaStreamCreate")
    given, read, priority = (INT * 16)(5), (INT * 16)(), 8
    runtime.did("cudaStreamSetAttribute", first, priority, given)
    runtime.did("cudaStreamGetAttribute", second, priority, read)
    assert read[0] == 0
    runtime.did("cudaStreamCopyAttributes", second, first)
    runtime.did("cudaStreamGetAttribute", second, priority, read)
    assert read[0] == 5


def test_every_driver_function_that_runtimes_ask_for_is_there(cuda):
    real = tools.find_library(r"libcudart\.so\.13")
    if real is None:
        pytest.skip("nvidia-cuda-runtime is not installed")
    asked = set(re.findall(rb"\0(cu[A-Z]\w+?)(?:_pt[sd][zs])?(?=\0)", real.read_bytes()))
    asked |= {b"cuGreenCtxCreate", b"cuCtxFromGreenCtx", b"cuLogsCurrent", b"cuMulticastBindMem"}  # torch's
    assert len(asked) > 300
    missing = []
    for name in sorted(asked):
        found, status = VOID(), INT()
        version, flags = 13000, U64(0)
        cuda.cuGetProcAddress_v2(
            re.sub(rb"_v\d$", b"", name), ctypes.byref(found), version, flags, ctypes.byref(status)
        )
        if not found.value:
            missing.append(name.decode())
    assert missing == []


def test_what_is_refused_says_what_to_use(cuda):
    text = ctypes.c_char_p()
    for name, words in (("cuGreenCtxStreamCreate", "cannot be divided"), ("cuMulticastUnbind", "nothing is shared")):
        assert getattr(cuda, name)() == 801
        assert cuda.cuGetErrorString(801, ctypes.byref(text)) == 0
        assert name in text.value.decode()
        assert words in text.value.decode()
