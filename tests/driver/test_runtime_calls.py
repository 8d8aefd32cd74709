"""The CUDA runtime's own calls: errors."""

from __future__ import annotations

import ctypes

from runtime_calls import INT, SIZE, U64, UINT, VOID, Runtime

ILLEGAL_ADDRESS = 700


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
