"""Default streams of threads: what programs compiled with ``--default-stream per-thread`` call."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor

import pytest
from runtime_calls import INT, SIZE, U64, UINT, VOID, Dim3, Runtime

LEGACY, PER_THREAD = 1, 2
NULL_IS_SHARED, NULL_IS_OWN = "", "_ptsz"
IMPLICIT = 906
LARGE = 8 << 20


def stream_id(runtime: Runtime, stream: int | None, suffix: str = "") -> int:
    number = U64()
    runtime.did(f"cudaStreamGetId{suffix}", VOID(stream), ctypes.byref(number))
    return number.value


def test_each_thread_has_a_stream_of_its_own(runtime: Runtime):
    own, shared = stream_id(runtime, PER_THREAD), stream_id(runtime, LEGACY)
    assert len({own, shared}) == 2
    assert stream_id(runtime, None, "_ptsz") == own
    assert stream_id(runtime, None) == shared
    assert stream_id(runtime, LEGACY, "_ptsz") == shared
    with ThreadPoolExecutor(1) as other:
        assert other.submit(stream_id, runtime, LEGACY).result() == shared
        assert other.submit(stream_id, runtime, PER_THREAD).result() not in (own, shared)
        assert (
            other.submit(stream_id, runtime, None, "_ptsz").result()
            == other.submit(stream_id, runtime, PER_THREAD).result()
        )
    runtime.did("cudaDeviceReset")
    assert stream_id(runtime, PER_THREAD) not in (own, shared)


def test_it_can_be_captured_and_the_shared_one_cannot(runtime: Runtime):
    place, add, number, graph, status = runtime.array([0]), runtime.kernel("add"), UINT(3), VOID(), INT()
    values = (VOID * 2)(ctypes.addressof(place), ctypes.addressof(number))
    assert runtime.cudaStreamBeginCapture(None, 2) == IMPLICIT
    runtime.did("cudaStreamBeginCapture_ptsz", None, 2)
    runtime.did("cudaStreamIsCapturing", VOID(PER_THREAD), ctypes.byref(status))
    assert status.value == 1
    one = Dim3(1, 1, 1)
    runtime.did("cudaLaunchKernel_ptsz", add, one, one, values, SIZE(0), None)
    with ThreadPoolExecutor(1) as other:
        other.submit(runtime.did, "cudaLaunchKernel_ptsz", add, one, one, values, SIZE(0), None).result()
    assert runtime.values(place) == [3], "the other thread's stream is not captured"
    runtime.did("cudaStreamEndCapture_ptsz", None, ctypes.byref(graph))
    executable = runtime.new("cudaGraphInstantiate", VOID, graph, U64(0))
    runtime.did("cudaGraphLaunch_ptsz", executable, None)
    assert runtime.values(place) == [6]


def elapsed(runtime: Runtime, work: tuple[str, bool], then: tuple[str, bool]) -> float:
    """Milliseconds from the begin of a fill to an event that is recorded behind it, each with its meaning of null and
    perhaps in another thread."""
    place = runtime.new("cudaMalloc", VOID, SIZE(LARGE))
    begin, end = runtime.new("cudaEventCreate"), runtime.new("cudaEventCreate")
    milliseconds = ctypes.c_float()
    with ThreadPoolExecutor(1) as other:

        def call(elsewhere: bool, name: str, *arguments) -> None:
            if elsewhere:
                other.submit(runtime.did, name, *arguments).result()
            else:
                runtime.did(name, *arguments)

        call(work[1], f"cudaEventRecord{work[0]}", begin, None)
        call(work[1], f"cudaMemsetAsync{work[0]}", place, 0, SIZE(LARGE), None)
        call(then[1], f"cudaEventRecord{then[0]}", end, None)
    runtime.did("cudaEventElapsedTime", ctypes.byref(milliseconds), begin, end)
    return milliseconds.value


@pytest.mark.parametrize(
    ("work", "then", "waits"),
    [
        ((NULL_IS_OWN, False), (NULL_IS_OWN, False), True), ((NULL_IS_OWN, False), (NULL_IS_SHARED, False), True),
        ((NULL_IS_SHARED, False), (NULL_IS_OWN, False), True), ((NULL_IS_OWN, True), (NULL_IS_SHARED, False), True),
        ((NULL_IS_OWN, True), (NULL_IS_OWN, False), False), ((NULL_IS_SHARED, True), (NULL_IS_SHARED, False), True),
    ],
)  # fmt: skip
def test_the_shared_stream_orders_those_of_threads(runtime: Runtime, work, then, waits):
    assert (elapsed(runtime, work, then) > 0) == waits
