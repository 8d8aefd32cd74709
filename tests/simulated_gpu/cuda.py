"""``torch.cuda`` over the simulated driver: a test double, for a build of torch without CUDA.

`start` puts what follows in the place of ``torch.cuda``'s streams, events, graphs and properties. Tensors are then
really on ``cuda:N``, PyCUDA and Triton's own launcher run as they do on a GPU, and what they launch runs in the PTX
machine. It behaves as a GPU where that can make a test fail: device memory cannot be read by the host, is not zero when
fresh, and is gone when freed; nothing runs while a stream is captured. What it is not: asynchronous (work is done when
it is enqueued), or a measure of time (events give predicted times).
"""

from __future__ import annotations

import ctypes
import os
import uuid
from contextlib import contextmanager
from types import SimpleNamespace

import torch

VOID, U64 = ctypes.c_void_p, ctypes.c_uint64
_driver: ctypes.CDLL | None = None
_backend: ctypes.CDLL | None = None


def start(backend: ctypes.CDLL, devices: int) -> None:
    """Put all of this in the place of ``torch.cuda``, in this process and for good."""
    global _driver, _backend
    _driver, _backend = ctypes.CDLL("libcuda.so.1"), backend
    _backend.gpu_stream.restype = VOID
    _backend.gpu_set_stream.argtypes = [ctypes.c_int, VOID]
    _backend.gpu_free_block.argtypes = [U64]
    _backend.gpu_graph_blocks.argtypes = [VOID, U64]
    _backend.gpu_graph_blocks.restype = U64
    _backend.gpu_replay_error.restype = ctypes.c_char_p
    _call("cuInit", 0)
    _backend.gpu_start(devices)
    _patch(devices)


def _call(name: str, *arguments) -> None:
    code = getattr(_driver, name)(*arguments)
    if code:
        why = ctypes.c_char_p()
        _driver.cuGetErrorString(code, ctypes.byref(why))
        raise torch.AcceleratorError(f"CUDA error: {why.value.decode(errors='replace')}")


@contextmanager
def _on(device: int):
    _backend.gpu_push_context(device)
    try:
        yield
    finally:
        _backend.gpu_pop_context()


def _index(device) -> int:
    if device is None:
        return _backend.gpu_device()
    if isinstance(device, int):
        return device if device >= 0 else _backend.gpu_device()
    device = torch.device(device)
    return _backend.gpu_device() if device.index is None else device.index


# -- streams and events -----------------------------------------------------------------------------------------------


class Stream:
    """One stream of the driver; ``cuda_stream`` is its handle, 0 the default one."""

    def __init__(self, device=None, priority: int = 0, *, handle: int | None = None):
        self.device_index = _index(device)
        self.cuda_stream = handle
        if handle is None:
            made = VOID()
            with _on(self.device_index):
                _call("cuStreamCreate", ctypes.byref(made), 1)  # as torch's: it does not wait for the default stream
            self.cuda_stream = made.value

    device = property(lambda self: torch.device("cuda", self.device_index))
    stream_id = property(lambda self: self.cuda_stream)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((self.device_index, self.cuda_stream))

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        with _on(self.device_index):
            if event.handle is not None:
                _call("cuStreamWaitEvent", VOID(self.cuda_stream), event.handle, 0)

    def wait_stream(self, other: Stream) -> None:
        self.wait_event(other.record_event())

    def synchronize(self) -> None:
        with _on(self.device_index):
            _call("cuStreamSynchronize", VOID(self.cuda_stream))

    def query(self) -> bool:
        with _on(self.device_index):
            _call("cuStreamQuery", VOID(self.cuda_stream))
        return True


def _external_stream(handle: int, device=None) -> Stream:
    return Stream(device, handle=int(handle))


class Event:
    """One event of the driver; ``elapsed_time`` is predicted, in milliseconds."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False):
        self.flags, self.handle, self.device_index = 0 if enable_timing else 2, None, None

    def record(self, stream: Stream | None = None) -> None:
        stream = stream or current_stream()
        with _on(stream.device_index):
            if self.handle is None:
                self.handle, self.device_index = VOID(), stream.device_index
                _call("cuEventCreate", ctypes.byref(self.handle), self.flags)
            _call("cuEventRecord", self.handle, VOID(stream.cuda_stream))

    def wait(self, stream: Stream | None = None) -> None:
        (stream or current_stream()).wait_event(self)

    def synchronize(self) -> None:
        if self.handle is not None:
            with _on(self.device_index):
                _call("cuEventSynchronize", self.handle)

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Event) -> float:
        took = ctypes.c_float()
        with _on(self.device_index):
            _call("cuEventElapsedTime_v2", ctypes.byref(took), self.handle, end.handle)
        return took.value

    def __del__(self):
        if self.handle is not None and _driver is not None:
            _driver.cuEventDestroy_v2(self.handle)


def current_stream(device=None) -> Stream:
    index = _index(device)
    return Stream(index, handle=_backend.gpu_stream(index) or 0)


def default_stream(device=None) -> Stream:
    return Stream(device, handle=0)


def set_stream(stream: Stream) -> None:
    _backend.gpu_set_stream(stream.device_index, stream.cuda_stream or None)


@contextmanager
def stream_context(stream: Stream | None):
    if stream is None:
        yield
        return
    device, before = _backend.gpu_device(), current_stream(stream.device_index)
    _backend.gpu_set_device(stream.device_index)
    set_stream(stream)
    try:
        yield
    finally:
        set_stream(before)
        _backend.gpu_set_device(device)


def synchronize(device=None) -> None:
    with _on(_index(device)):
        _call("cuCtxSynchronize")


def is_current_stream_capturing() -> bool:
    stream, status = current_stream(), ctypes.c_uint()
    with _on(stream.device_index):
        _call("cuStreamIsCapturing", VOID(stream.cuda_stream), ctypes.byref(status))
    return status.value != 0


# -- graphs -----------------------------------------------------------------------------------------------------------


class CUDAGraph:
    """What a stream was given while it was captured; it owns the memory that was allocated meanwhile."""

    def __init__(self, keep_graph: bool = False):
        self._executable, self._blocks, self._stream = None, [], None

    def capture_begin(self, pool=None, capture_error_mode: str = "global") -> None:
        self._stream = current_stream()
        mode = ("global", "thread_local", "relaxed").index(capture_error_mode)
        with _on(self._stream.device_index):
            _call("cuStreamBeginCapture_v2", VOID(self._stream.cuda_stream), mode)

    def capture_end(self) -> None:
        graph, executable = VOID(), VOID()
        with _on(self._stream.device_index):
            try:
                _call("cuStreamEndCapture", VOID(self._stream.cuda_stream), ctypes.byref(graph))
            finally:
                count = _backend.gpu_graph_blocks(None, 0)
                blocks = (U64 * count)()
                _backend.gpu_graph_blocks(blocks, count)
                self._blocks = list(blocks)
            _call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, 0)
            _call("cuGraphDestroy", graph)
        self._executable = executable

    def replay(self) -> None:
        stream = current_stream(self._stream.device_index)
        with _on(stream.device_index):
            _call("cuGraphLaunch", self._executable, VOID(stream.cuda_stream))
        if error := _backend.gpu_replay_error().decode():
            raise torch.AcceleratorError(error)

    def reset(self) -> None:
        if self._executable is not None:
            _driver.cuGraphExecDestroy(self._executable)
        for block in self._blocks:
            _backend.gpu_free_block(block)
        self._executable, self._blocks = None, []

    def pool(self) -> tuple[int, int]:
        return (0, id(self))

    def __del__(self):
        # Its memory stays: a tensor that was made during the capture may still be looked at.
        if self._executable is not None and _driver is not None:
            _driver.cuGraphExecDestroy(self._executable)


@contextmanager
def graph_context(graph: CUDAGraph, pool=None, stream: Stream | None = None, capture_error_mode: str = "global"):
    synchronize()
    with stream_context(stream or Stream()):
        graph.capture_begin(capture_error_mode=capture_error_mode)
        try:
            yield
        finally:
            graph.capture_end()


# -- the device -------------------------------------------------------------------------------------------------------


def get_device_properties(device=None) -> SimpleNamespace:
    index = _index(device)

    def attribute(which: int) -> int:
        out = ctypes.c_int()
        _call("cuDeviceGetAttribute", ctypes.byref(out), which, index)
        return out.value

    name, identity, memory = ctypes.create_string_buffer(256), (ctypes.c_ubyte * 16)(), ctypes.c_size_t()
    _call("cuDeviceGetName", name, 256, index)
    _call("cuDeviceGetUuid_v2", identity, index)
    _call("cuDeviceTotalMem_v2", ctypes.byref(memory), index)
    return SimpleNamespace(
        name=name.value.decode(), major=attribute(75), minor=attribute(76), total_memory=memory.value,
        multi_processor_count=attribute(16), L2_cache_size=min(attribute(38), 1 << 18), warp_size=attribute(10),
        shared_memory_per_block=attribute(8), shared_memory_per_block_optin=attribute(97),
        shared_memory_per_multiprocessor=attribute(81), regs_per_multiprocessor=attribute(82),
        max_threads_per_multi_processor=attribute(39), max_threads_per_block=attribute(1), is_integrated=0,
        is_multi_gpu_board=0, gcnArchName="", uuid=uuid.UUID(bytes=bytes(identity)),
    )  # fmt: skip


def mem_get_info(device=None) -> tuple[int, int]:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    with _on(_index(device)):
        _call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


class DeviceContext:
    """``torch.cuda.device``: makes a device current in a block."""

    def __init__(self, device):
        self._index, self._before = -1 if device is None else _index(device), -1

    def __enter__(self) -> None:
        self._before = _backend.gpu_device()
        if self._index >= 0:
            set_device(self._index)

    def __exit__(self, *error) -> None:
        _backend.gpu_set_device(self._before)


class DeviceOf(DeviceContext):
    """``torch.cuda.device_of``."""

    def __init__(self, tensor):
        super().__init__(tensor.get_device() if tensor.is_cuda else None)


def set_device(device) -> None:
    index = _index(device)
    if not 0 <= index < torch.cuda.device_count():
        raise torch.AcceleratorError("CUDA error: invalid device ordinal")
    _backend.gpu_set_device(index)


def _capability(device=None) -> tuple[int, int]:
    properties = get_device_properties(device)
    return properties.major, properties.minor


def _sleep(cycles: int) -> None:
    """Nothing to wait for: work is done when it is enqueued."""


def _patch(devices: int) -> None:
    """``torch.cuda`` as far as the project, its tests and Triton use it."""
    cuda = torch.cuda
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    names = {
        "is_available": lambda: True, "device_count": lambda: devices, "init": lambda: None, "_lazy_init": lambda: None,
        "is_initialized": lambda: True, "current_device": lambda: _backend.gpu_device(), "set_device": set_device,
        "device": DeviceContext, "device_of": DeviceOf, "get_device_properties": get_device_properties,
        "get_device_capability": _capability, "get_device_name": lambda d=None: get_device_properties(d).name,
        "mem_get_info": mem_get_info, "empty_cache": lambda: None, "synchronize": synchronize, "Stream": Stream,
        "ExternalStream": _external_stream, "Event": Event, "current_stream": current_stream, "_sleep": _sleep,
        "default_stream": default_stream, "set_stream": set_stream, "stream": stream_context, "CUDAGraph": CUDAGraph,
        "graph": graph_context, "is_current_stream_capturing": is_current_stream_capturing,
    }  # fmt: skip
    for name, value in names.items():
        setattr(cuda, name, value)
    torch.version.cuda = "13.0"
    torch.Tensor.record_stream = lambda tensor, stream: None  # memory is never given out again while it is held
    torch._C._cuda_getCurrentRawStream = lambda device: current_stream(device).cuda_stream
