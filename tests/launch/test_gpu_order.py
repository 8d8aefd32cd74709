"""What ``devices/gpu.py`` asks of PyCUDA and torch, and in which order, with recorders in their place.

The real driver is met in ``test_gpu.py``; this needs no GPU.
"""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from workbench.errors import ArgumentError, KernelFault
from workbench.launch import gpu, gpu_code, gpu_tensor_map
from workbench.ptx.tensor_map import TensorMap
from workbench.toolchain import compile_cuda, compile_cuda_module

SOURCE = """
extern "C" __global__ void store(float *x, int n) { x[n] = n; }
extern "C" __global__ void dynamic(float *x) { extern __shared__ float tile[]; tile[0] = *x; *x = tile[threadIdx.x]; }
"""


class Recorder:
    """A stand-in for ``pycuda.driver`` and for torch's streams: writes down every call."""

    class Error(Exception):
        pass

    def __init__(self):
        self.calls: list[tuple] = []
        self.fail_launch = False
        self.capturing = False
        self.current = 0
        self.function_attribute = SimpleNamespace(MAX_DYNAMIC_SHARED_SIZE_BYTES="max dynamic shared")
        self.Context = SimpleNamespace(pop=lambda: self.calls.append(("pop",)))

    def Device(self, index: int) -> SimpleNamespace:
        context = SimpleNamespace(push=lambda: self.calls.append(("push", index)))

        def retain() -> SimpleNamespace:
            self.calls.append(("retain", index, threading.current_thread().name))
            return context

        return SimpleNamespace(retain_primary_context=retain)

    def Stream(self, flags: int) -> SimpleNamespace:
        self.calls.append(("create stream", flags))
        return SimpleNamespace(handle=77)

    def module_from_buffer(self, image: bytes) -> SimpleNamespace:
        self.calls.append(("load", image[:4]))
        return SimpleNamespace(get_function=self._function, get_global=lambda name: (f"address of {name}", 4))

    def memcpy_dtoh(self, target: bytearray, source: str) -> None:
        self.calls.append(("read", source))
        target[:] = b"\1\2\3\4"

    def memcpy_htod(self, target: str, content: bytes) -> None:
        self.calls.append(("write", target, content))

    def _function(self, name: str) -> SimpleNamespace:
        def launch(kind: str, *arguments: object, shared_size: int) -> None:
            self.calls.append((kind, *arguments, shared_size))
            if self.fail_launch:
                raise self.Error("too many resources requested for launch")

        return SimpleNamespace(
            prepare=lambda types: self.calls.append(("prepare", *types)),
            prepared_call=lambda *a, **k: launch("launch", *a, **k),
            prepared_async_call=lambda *a, **k: launch("launch", *a, **k),
            set_attribute=lambda *a: self.calls.append(("attribute", *a)),
        )

    def stream(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(
            cuda_stream=handle,
            wait_stream=lambda other: self.calls.append((handle, "waits for", other.cuda_stream)),
            synchronize=lambda: self.calls.append(("synchronize", handle)),
        )

    def kinds(self) -> list:
        return [call[0] if isinstance(call[0], str) else call for call in self.calls]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(gpu, "_for_ever", lambda value: value)
    for module in (gpu, gpu_code):
        monkeypatch.setattr(module, "is_simulated", lambda: False)  # whatever other tests have started in this process
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index=0: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index=0: "recorder")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: recorder.capturing)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda index: recorder.stream(recorder.current))
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda handle, device: recorder.stream(handle))
    return recorder


@pytest.fixture
def device(recorder: Recorder) -> gpu.Gpu:
    device = gpu.Gpu.__new__(gpu.Gpu)
    device._attach(recorder, torch)
    return device


def test_the_default_stream_is_launched_on_directly(device: gpu.Gpu, recorder: Recorder):
    device.launch(compile_cuda(SOURCE, "store", arch="sm_90"), (2, 3), 64, [4096, 5])
    assert recorder.kinds() == ["retain", "push", "load", "prepare", "launch", "pop"]
    assert recorder.calls[-2] == ("launch", (2, 3, 1), (64, 1, 1), (4096).to_bytes(8, "little") + b"\5\0\0\0", 0)
    assert recorder.calls[-3] == ("prepare", "12s")
    recorder.calls.clear()
    device.launch(compile_cuda(SOURCE, "store", arch="sm_90"), 1, 64, [4096, 5])
    assert recorder.kinds() == ["push", "launch", "pop"], "loaded and retained once"


def test_another_stream_is_waited_for_and_waits(device: gpu.Gpu, recorder: Recorder):
    recorder.current = 5
    device.launch(compile_cuda(SOURCE, "store", arch="sm_90"), 1, 64, [4096, 5])
    order = [call for call in recorder.kinds() if call not in ("retain", "load", "prepare")]
    assert order == ["push", "create stream", (77, "waits for", 5), "launch", (5, "waits for", 77), "pop"]
    assert ("create stream", 1) in recorder.calls, "not blocking, else it could not be captured"
    recorder.calls.clear()
    device.launch(compile_cuda(SOURCE, "store", arch="sm_90"), 1, 64, [4096, 5])
    assert "create stream" not in recorder.kinds()


@pytest.mark.parametrize("current", [0, 5])
def test_a_refused_launch_leaves_context_and_stream_as_they_were(device: gpu.Gpu, recorder: Recorder, current: int):
    recorder.fail_launch, recorder.current = True, current
    with pytest.raises(KernelFault, match=r"store.*too many resources"):
        device.launch(compile_cuda(SOURCE, "store", arch="sm_90"), 1, 64, [4096, 5])
    assert recorder.kinds()[-1] == "pop"
    if current:
        assert recorder.calls[-2] == (5, "waits for", 77)


def test_more_than_48_kib_is_asked_for_once(device: gpu.Gpu, recorder: Recorder):
    kernel = compile_cuda(SOURCE, "dynamic", arch="sm_90")
    for shared in (1024, 49152, 50000, 49200, 60000):
        device.launch(kernel, 1, 32, [4096], shared_bytes=shared)
    assert [call[2] for call in recorder.calls if call[0] == "attribute"] == [50000, 60000]


def test_static_shared_memory_counts_too(device: gpu.Gpu, recorder: Recorder):
    source = """extern "C" __global__ void both(float *x)
    { __shared__ float own[608]; extern __shared__ float tile[];
      own[threadIdx.x] = tile[threadIdx.x] = *x; __syncthreads();
      *x = own[31 - threadIdx.x] + tile[31 - threadIdx.x]; }"""
    kernel = compile_cuda(source, "both", arch="sm_90")
    for shared in (1024, 46720, 46721, 49152, 47000):
        device.launch(kernel, 1, 32, [4096], shared_bytes=shared)
    assert [call[2] for call in recorder.calls if call[0] == "attribute"] == [46721, 49152]


def test_a_bound_launch_runs_as_often_as_one_likes(device: gpu.Gpu, recorder: Recorder):
    bound = device.bind(compile_cuda(SOURCE, "store", arch="sm_90"), (2, 3), 64, [4096, 5])
    assert recorder.calls == []
    bound.run()
    bound.run()
    assert recorder.kinds() == ["retain", "push", "load", "prepare", "launch", "pop", "push", "launch", "pop"]
    first, second = (call for call in recorder.calls if call[0] == "launch")
    assert first == second == ("launch", (2, 3, 1), (64, 1, 1), bound.parameters, 0)


def test_a_tensor_map_that_the_driver_refuses(monkeypatch: pytest.MonkeyPatch):
    driver = SimpleNamespace(cuTensorMapEncodeTiled=lambda *values: 1)
    monkeypatch.setattr(gpu_tensor_map.ctypes, "CDLL", lambda name: driver)
    with pytest.raises(ArgumentError, match=r"tensor map.*it returned 1.*compute capability 9\.0"):
        gpu_tensor_map.encoded(TensorMap.of(torch.zeros(64, 64), (8, 8)))


def test_each_thread_retains_the_context_for_itself(device: gpu.Gpu, recorder: Recorder):
    kernel = compile_cuda(SOURCE, "store", arch="sm_90")
    for name in ("one", "two"):
        thread = threading.Thread(target=device.launch, args=(kernel, 1, 32, [4096, 1]), name=name)
        thread.start()
        thread.join()
    assert [call[2] for call in recorder.calls if call[0] == "retain"] == ["one", "two"]
    assert recorder.kinds().count("load") == 1


@pytest.mark.parametrize(("arch", "image"), [("sm_90", b"\x7fELF"), ("sm_90a", b"\x7fELF"), ("sm_80", b"//\n/")])
def test_machine_code_where_it_runs_else_ptx(device: gpu.Gpu, recorder: Recorder, arch: str, image: bytes):
    device.launch(compile_cuda(SOURCE, "store", arch=arch), 1, 32, [4096, 1])
    assert ("load", image) in recorder.calls


@pytest.mark.parametrize(
    ("arch", "capability", "machine_code", "as_ptx"),
    [
        ("sm_80", (8, 6), True, True),
        ("sm_86", (8, 0), False, False),
        ("sm_80", (9, 0), False, True),
        ("sm_90", (8, 9), False, False),
        ("sm_90a", (9, 0), True, True),
        ("sm_90a", (10, 0), False, False),
        ("sm_100a", (10, 3), False, False),
        ("sm_100f", (10, 3), True, True),
        ("sm_103f", (10, 0), False, False),
        ("sm_100f", (12, 0), False, False),
        ("sm_100", (12, 0), False, True),
        ("sm_120a", (12, 1), False, False),
    ],
)
def test_where_code_runs(arch: str, capability: tuple[int, int], machine_code: bool, as_ptx: bool):
    assert gpu_code.runs_on(arch, capability, machine_code=True) == machine_code
    assert gpu_code.runs_on(arch, capability, machine_code=False) == as_ptx


def test_code_for_one_architecture_is_refused_elsewhere(device: gpu.Gpu, recorder: Recorder):
    with pytest.raises(ArgumentError, match=r"store for sm_100a.*code for sm_90"):
        device.launch(compile_cuda(SOURCE, "store", arch="sm_100a"), 1, 32, [4096, 1])
    assert "load" not in recorder.kinds()


def test_under_capture_only_loaded_kernels_and_tensors(device: gpu.Gpu, recorder: Recorder):
    recorder.capturing = True
    with pytest.raises(ArgumentError, match="not loaded yet"):
        device.launch(compile_cuda(SOURCE, "store", arch="sm_90"), 1, 32, [4096, 1])
    assert recorder.kinds()[-1] == "pop"
    with pytest.raises(ArgumentError, match="NumPy"):
        device.launch(compile_cuda(SOURCE, "store", arch="sm_90"), 1, 32, [np.zeros(4, np.float32), 1])


def test_what_only_the_simulator_can_is_refused(device: gpu.Gpu, recorder: Recorder):
    kernel = compile_cuda(SOURCE, "store", arch="sm_90")
    options = [{"statistics": True}, {"checks": True}, {"instruction_limit": 1}, {"seconds_limit": 1.0}]
    for option in [*options, {"record_block": 0}]:
        with pytest.raises(ArgumentError, match='device="sim"'):
            device.launch(kernel, 1, 32, [4096, 1], **option)
    with pytest.raises(ArgumentError, match=r"argument 0 'x'.*cpu.*cuda:0"):
        device.launch(kernel, 1, 32, [torch.zeros(4), 1])
    assert recorder.calls == []


def test_kernels_of_one_program_share_one_module_and_its_variables(device: gpu.Gpu, recorder: Recorder):
    module = compile_cuda_module(SOURCE, arch="sm_90")
    device.launch(module["store"], 1, 32, [4096, 1])
    device.launch(module["dynamic"], 1, 32, [4096], shared_bytes=128)
    assert recorder.kinds().count("load") == 1
    recorder.calls.clear()
    assert device.read_variable(module["store"], "taps") == b"\1\2\3\4"
    device.write_variable(module["dynamic"], "taps", b"abcd")
    expected = [("synchronize", 0), ("push", 0), ("read", "address of taps"), ("pop",)]
    assert recorder.calls == [
        *expected,
        ("synchronize", 0),
        ("push", 0),
        ("write", "address of taps", b"abcd"),
        ("pop",),
    ]


def test_reset_variables_load_the_program_anew(device: gpu.Gpu, recorder: Recorder):
    module = compile_cuda_module(SOURCE, arch="sm_90")
    other = compile_cuda("__global__ void other() {}", "other", arch="sm_90")
    for kernel in (module["store"], other):
        device.launch(kernel, 1, 32, [4096, 1] if kernel is module["store"] else [])
    device.reset_variables(module["dynamic"])
    recorder.calls.clear()
    device.launch(other, 1, 32, [])
    assert "load" not in recorder.kinds()
    device.launch(module["store"], 1, 32, [4096, 1])
    assert recorder.kinds().count("load") == 1
