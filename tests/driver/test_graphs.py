"""Streams that are captured, graphs that are launched, and several devices, by the driver's own calls."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import numpy as np
import pytest
from test_library import PTX, SIZE, U64, VOID, allocated, made

UNSUPPORTED, INVALIDATED, UNMATCHED, UNJOINED, IMPLICIT, CAPTURED_EVENT = 900, 901, 903, 904, 906, 907
GLOBAL, RELAXED = 0, 2


@pytest.fixture
def add(cuda):
    """``add(stream, place, number)`` launches ``*place += number``, and returns the driver's result."""
    function = made(cuda.cuModuleGetFunction, made(cuda.cuModuleLoadData, PTX.encode()), b"add")

    def launch(stream: VOID | None, place: U64, number: int) -> int:
        value = ctypes.c_uint32(number)
        pointers = (VOID * 2)(ctypes.cast(ctypes.pointer(place), VOID), ctypes.cast(ctypes.pointer(value), VOID))
        return cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, pointers, None)

    return launch


def value(cuda, place: U64) -> int:
    out = np.zeros(1, np.uint32)
    assert cuda.cuMemcpyDtoH_v2(VOID(out.ctypes.data), place, SIZE(4)) == 0
    return int(out[0])


def stream(cuda) -> VOID:
    return made(cuda.cuStreamCreate, 1)


def ended(cuda, captured: VOID) -> VOID:
    """The graph of a capture, ready to be launched."""
    graph = VOID()
    assert cuda.cuStreamEndCapture(captured, ctypes.byref(graph)) == 0
    return made(cuda.cuGraphInstantiateWithFlags, graph, ctypes.c_uint64(0))


def test_a_captured_stream_runs_nothing_until_its_graph_is_launched(cuda, add):
    place, captured = allocated(cuda, 4), stream(cuda)
    assert cuda.cuStreamBeginCapture_v2(captured, GLOBAL) == 0
    assert cuda.cuMemsetD32Async(place, 5, SIZE(1), captured) == 0
    assert add(captured, place, 2) == 0
    graph = VOID()
    assert cuda.cuStreamEndCapture(captured, ctypes.byref(graph)) == 0
    count = SIZE()
    assert cuda.cuGraphGetNodes(graph, None, ctypes.byref(count)) == 0
    assert count.value == 2
    executable = made(cuda.cuGraphInstantiateWithFlags, graph, ctypes.c_uint64(0))
    assert cuda.cuGraphDestroy(graph) == 0, "what was made of it lives on"
    assert value(cuda, place) == 0
    for _ in range(2):
        assert cuda.cuGraphLaunch(executable, captured) == 0
        assert value(cuda, place) == 7, "each time from the start: the fill is part of it"
    assert add(captured, place, 1) == 0
    assert value(cuda, place) == 8, "the stream runs again what it is given"
    assert cuda.cuGraphExecDestroy(executable) == 0
    assert cuda.cuGraphLaunch(executable, captured) == 400


def test_a_stream_that_waits_for_a_captured_event_takes_part(cuda, add):
    place, first, second = allocated(cuda, 4), stream(cuda), stream(cuda)
    forked, joined = made(cuda.cuEventCreate, 2), made(cuda.cuEventCreate, 2)
    assert cuda.cuStreamBeginCapture_v2(first, GLOBAL) == 0
    assert cuda.cuEventRecord(forked, first) == 0
    assert cuda.cuStreamWaitEvent(second, forked, 0) == 0
    assert add(second, place, 3) == 0
    assert cuda.cuEventRecord(joined, second) == 0
    assert cuda.cuStreamWaitEvent(first, joined, 0) == 0
    status = ctypes.c_uint()
    assert cuda.cuStreamIsCapturing(second, ctypes.byref(status)) == 0
    assert status.value == 1
    assert cuda.cuEventQuery(joined) == CAPTURED_EVENT
    executable = ended(cuda, first)
    assert value(cuda, place) == 0
    assert cuda.cuGraphLaunch(executable, None) == 0
    assert value(cuda, place) == 3


def test_a_stream_that_does_not_come_back_spoils_the_capture(cuda, add):
    place, first, second = allocated(cuda, 4), stream(cuda), stream(cuda)
    forked, graph = made(cuda.cuEventCreate, 2), VOID()
    assert cuda.cuStreamBeginCapture_v2(first, GLOBAL) == 0
    assert cuda.cuEventRecord(forked, first) == 0
    assert cuda.cuStreamWaitEvent(second, forked, 0) == 0
    assert add(second, place, 3) == 0
    assert cuda.cuStreamEndCapture(first, ctypes.byref(graph)) == UNJOINED
    assert add(second, place, 4) == 0
    assert value(cuda, place) == 4, "both streams are free again"


@pytest.mark.parametrize("what", ["allocate", "free", "load", "wait", "copy", "query"])
def test_what_a_capture_does_not_survive(cuda, add, what: str):
    place, captured, out, graph = allocated(cuda, 4), stream(cuda), U64(), VOID()
    host = np.zeros(1, np.uint32)
    calls = {
        "allocate": lambda: cuda.cuMemAlloc_v2(ctypes.byref(out), SIZE(4)),
        "free": lambda: cuda.cuMemFree_v2(place),
        "load": lambda: cuda.cuModuleLoadData(ctypes.byref(VOID()), PTX.encode()),
        "wait": lambda: cuda.cuCtxSynchronize(),
        "copy": lambda: cuda.cuMemcpyDtoH_v2(VOID(host.ctypes.data), place, SIZE(4)),
        "query": lambda: cuda.cuStreamQuery(captured),
    }
    assert cuda.cuStreamBeginCapture_v2(captured, GLOBAL) == 0
    assert calls[what]() == UNSUPPORTED
    assert add(captured, place, 1) == INVALIDATED
    assert cuda.cuStreamEndCapture(captured, ctypes.byref(graph)) == INVALIDATED
    assert calls[what]() == 0, "afterwards it is as always"


def test_a_thread_may_say_that_it_knows_what_it_does(cuda):
    captured, mode = stream(cuda), ctypes.c_uint(RELAXED)
    assert cuda.cuStreamBeginCapture_v2(captured, GLOBAL) == 0
    assert cuda.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)) == 0
    assert mode.value == GLOBAL
    allocated(cuda, 4)
    assert cuda.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)) == 0
    ended(cuda, captured)


def test_misuse_of_captures(cuda):
    captured, graph = stream(cuda), VOID()
    assert cuda.cuStreamBeginCapture_v2(None, GLOBAL) == IMPLICIT
    assert cuda.cuStreamEndCapture(captured, ctypes.byref(graph)) == UNMATCHED
    assert cuda.cuStreamBeginCapture_v2(captured, 7) == 1
    assert cuda.cuStreamBeginCapture_v2(captured, GLOBAL) == 0
    assert cuda.cuStreamBeginCapture_v2(captured, GLOBAL) == UNSUPPORTED
    event = made(cuda.cuEventCreate, 2)
    assert cuda.cuEventRecord(event, captured) == 0
    assert cuda.cuStreamWaitEvent(None, event, 0) == IMPLICIT
    ended(cuda, captured)
    assert cuda.cuStreamWaitEvent(captured, event, 0) == CAPTURED_EVENT, "its capture is over"


def test_a_fault_in_a_graph_is_the_contexts(cuda, add):
    place, captured = allocated(cuda, 4), stream(cuda)
    assert cuda.cuStreamBeginCapture_v2(captured, GLOBAL) == 0
    assert add(captured, place, 1) == 0
    executable = ended(cuda, captured)
    assert cuda.cuMemFree_v2(place) == 0
    assert cuda.cuGraphLaunch(executable, captured) == 0
    assert cuda.cuCtxSynchronize() == 700, "the graph does not keep what it was captured with"


def test_a_host_function_runs_in_its_turn(cuda, add):
    place, captured, seen = allocated(cuda, 4), stream(cuda), []
    call = ctypes.CFUNCTYPE(None, VOID)(lambda data: seen.append(data))
    assert cuda.cuLaunchHostFunc(captured, call, VOID(1)) == 0
    assert seen == [1]
    assert cuda.cuStreamBeginCapture_v2(captured, GLOBAL) == 0
    assert cuda.cuLaunchHostFunc(captured, call, VOID(2)) == 0
    assert add(captured, place, 1) == 0
    executable = ended(cuda, captured)
    assert seen == [1]
    assert cuda.cuGraphLaunch(executable, captured) == 0
    assert seen == [1, 2]
    assert value(cuda, place) == 1


SEVERAL = """
import ctypes
from workbench.driver import simulated_driver

driver = simulated_driver(force=True, memory_bytes=1 << 20, devices=2)
import pycuda.driver as cuda

cuda.init()
assert cuda.Device.count() == 2
assert cuda.Device(0).pci_bus_id() != cuda.Device(1).pci_bus_id()
contexts = [cuda.Device(number).make_context() for number in range(2)]
assert cuda.Context.get_device() == cuda.Device(1)
there = cuda.mem_alloc(1 << 19)
assert cuda.mem_get_info() == (1 << 19, 1 << 20)
contexts[1].pop()
assert cuda.mem_get_info() == (1 << 20, 1 << 20), "each has its own memory"
kernel = cuda.module_from_buffer({ptx!r}).get_function("add").prepare("PI")
here = cuda.mem_alloc(4)
assert cuda.Device(0).can_access_peer(cuda.Device(1))
contexts[0].enable_peer_access(contexts[1])
cuda.memset_d32(int(there), 5, 1)
kernel.prepared_call((1, 1), (1, 1, 1), there, 1)
cuda.memcpy_peer(int(here), int(there), 4, contexts[0], contexts[1])
assert cuda.from_device(here, 1, "u4")[0] == 6
for peer in reversed(contexts):
    try:
        contexts[0].enable_peer_access(peer)
    except cuda.Error as error:
        print(error, driver.last_error)
contexts[0].disable_peer_access(contexts[1])
kernel.prepared_call((1, 1), (1, 1, 1), there, 1)
try:
    cuda.Context.synchronize()
except cuda.Error as error:
    print(error, driver.last_error)
contexts[0].pop()
"""


def test_devices_see_each_others_memory_as_peers(pycuda):
    done = subprocess.run([sys.executable, "-c", SEVERAL.format(ptx=PTX.encode())], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    already, itself, fault = done.stdout.splitlines()
    assert "device 0 has access to device 1 already" in already
    assert "device 0 is no peer of itself" in itself
    assert "an illegal memory access" in fault
    assert "memory of device 1, which device 0 has no access to: move the tensor" in fault
