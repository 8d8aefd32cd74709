"""The device "cuda" on a real GPU: launches, streams, graphs, shared memory, threads, errors."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import workbench as wb
from workbench.errors import ArgumentError, KernelFault
from workbench.launch import devices
from workbench.toolchain import CompiledKernel, compile_cuda, compile_triton

pytestmark = pytest.mark.gpu

SOURCE = """
#include <cuda_bf16.h>
struct Pair { int first; float second; };
extern "C" __global__ void saxpy(float *y, const float *x, float a, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
extern "C" __global__ void increment(int *x) { x[blockIdx.x * blockDim.x + threadIdx.x] += 1; }
extern "C" __global__ void reversed(int *x)
{
    extern __shared__ int tile[];
    int last = gridDim.y * blockDim.x - 1;  // gridDim.y stretches the tile over more shared memory
    tile[last - threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (blockIdx.y == 0) x[threadIdx.x] = tile[last - (blockDim.x - 1 - threadIdx.x)];
}
extern "C" __global__ void slow(int *x, long long cycles)
{
    long long start = clock64();
    while (clock64() - start < cycles) { }
    x[threadIdx.x] = 7;
}
extern "C" __global__ void mixed(float *out, unsigned char a, short b, double c, Pair pair, __nv_bfloat16 *half)
{ out[0] = a + b + c + pair.first * pair.second + __bfloat162float(half[0]); }
extern "C" __global__ void __launch_bounds__(1024) busy(float *x) { x[threadIdx.x] *= 2; }
extern "C" __global__ void both(int *x)
{
    __shared__ int kept[608];
    extern __shared__ int tile[];
    kept[threadIdx.x] = x[threadIdx.x];
    tile[12287 - threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = kept[127 - threadIdx.x] + tile[12287 - (127 - threadIdx.x)];
}
"""
SPIN = (
    20_000_000 if os.environ.get("WORKBENCH_SIMULATED_GPU") is None else 20_000
)  # cycles: the PTX machine counts each


@triton.jit
def _sum(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out, tl.sum(tl.load(x + offsets, mask=offsets < n, other=0.0)))


@pytest.fixture(scope="module")
def device() -> devices.Device:
    return devices.get("cuda")


def _kernel(device: devices.Device, name: str) -> CompiledKernel:
    return compile_cuda(SOURCE, name, arch=device.arch)


def test_auto_is_the_gpu(device: devices.Device):
    assert devices.get("auto") is device
    assert torch.cuda.get_device_name() in device.description
    major, minor = torch.cuda.get_device_capability()
    assert device.arch == f"sm_{major}{minor}"
    assert repr(device) == f"<device cuda: {device.description}>"


def test_a_variable_that_no_module_has_is_the_drivers_error(device: devices.Device):
    with pytest.raises(KernelFault, match=r"saxpy.*on .*not found"):
        device.read_variable(_kernel(device, "saxpy"), "nothing")


def test_a_launch_changes_torchs_tensors(device: devices.Device):
    x, y = torch.randn(1000, device="cuda"), torch.randn(1000, device="cuda")
    expected = y + 2.5 * x
    assert device.launch(_kernel(device, "saxpy"), 8, 128, [y, x, 2.5, 1000]) is None
    torch.testing.assert_close(y, expected)


def test_every_kind_of_argument(device: devices.Device):
    out, half = torch.zeros(1, device="cuda"), torch.full((1,), 0.5, dtype=torch.bfloat16, device="cuda")
    pair = np.array((3, 1.5), np.dtype([("first", "<i4"), ("second", "<f4")]))[()]
    device.launch(_kernel(device, "mixed"), 1, 1, [out, 255, -5, 2.25, pair, half])
    assert out.item() == 255 - 5 + 2.25 + 4.5 + 0.5


def test_numpy_arrays_are_copied_there_and_back(device: devices.Device):
    x, y = np.ones(256, np.float32), np.arange(256, dtype=np.float32)
    device.launch(_kernel(device, "saxpy"), 2, 128, [y, x, 2.0, 256])
    np.testing.assert_array_equal(y, np.arange(256) + 2)


def test_code_for_an_older_architecture_runs(device: devices.Device):
    x = torch.zeros(128, dtype=torch.int32, device="cuda")
    device.launch(compile_cuda(SOURCE, "increment", arch="sm_80"), 1, 128, [x])
    assert (x == 1).all()


def test_a_triton_kernel_compiled_ahead_of_time(device: devices.Device):
    kernel = compile_triton(_sum, {"x": "*fp32", "out": "*fp32", "n": "i32"}, {"BLOCK": 256}, arch=device.arch)
    x, out = torch.arange(256, dtype=torch.float32, device="cuda"), torch.zeros(1, device="cuda")
    device.launch(kernel, 1, 128, [x, out, 200])
    assert out.item() == 199 * 200 / 2


# ---- streams and graphs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own_stream", [False, True])
def test_launches_are_ordered_with_torchs_current_stream(device: devices.Device, own_stream: bool):
    """A slow kernel between two torch operations: the first must be seen by it, and its result by the second."""
    stream = torch.cuda.Stream() if own_stream else torch.cuda.default_stream()
    kernel = _kernel(device, "slow")
    x = torch.zeros(128, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for round_ in range(5):
            x.fill_(round_)
            device.launch(kernel, 1, 128, [x, SPIN])
            copy = x.clone()
            x.fill_(-1)
            stream.synchronize()
            assert (copy == 7).all()
            assert (x == -1).all()


def test_a_launch_waits_for_work_before_it(device: devices.Device):
    stream = torch.cuda.Stream()
    x = torch.zeros(128, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x.fill_(41)
        device.launch(_kernel(device, "increment"), 1, 128, [x])
    stream.synchronize()
    assert (x == 42).all()


def test_streams_run_side_by_side_without_mixing(device: devices.Device):
    kernel = _kernel(device, "increment")
    tensors = [torch.zeros(4096, dtype=torch.int32, device="cuda") for _ in range(4)]
    streams = [torch.cuda.Stream() for _ in tensors]
    torch.cuda.synchronize()
    for _ in range(50):
        for stream, tensor in zip(streams, tensors, strict=True):
            with torch.cuda.stream(stream):
                device.launch(kernel, 32, 128, [tensor])
    torch.cuda.synchronize()
    assert all((tensor == 50).all() for tensor in tensors)


def test_a_cuda_graph_captures_launches_among_torch_operations(device: devices.Device):
    kernel = _kernel(device, "increment")
    x = torch.zeros(1024, dtype=torch.int32, device="cuda")
    device.launch(kernel, 8, 128, [x])
    torch.cuda.synchronize()
    x.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.mul_(2)
        device.launch(kernel, 8, 128, [x])
        device.launch(kernel, 8, 128, [x])
        x.mul_(10)
    assert (x == 0).all(), "captured, not run"
    expected = 0
    for _ in range(3):
        graph.replay()
        expected = (expected * 2 + 2) * 10
        assert (x == expected).all()
    device.launch(kernel, 8, 128, [x])
    assert (x == expected + 1).all(), "launches go on as usual after a capture"


def test_a_kernel_that_is_not_loaded_is_refused_under_capture(device: devices.Device):
    kernel = compile_cuda(SOURCE, "increment", arch=device.arch, macros={"NEVER_LOADED": 1})
    x = torch.zeros(128, dtype=torch.int32, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(1)
        with pytest.raises(ArgumentError, match="Launch it once before"):
            device.launch(kernel, 1, 128, [x])
    graph.replay()
    assert (x == 1).all(), "the refusal does not spoil the capture"


# ---- shared memory, threads, errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("stretch", [1, 100, 180])
def test_dynamic_shared_memory_beyond_48_kib(device: devices.Device, stretch: int):
    x = torch.arange(128, dtype=torch.int32, device="cuda")
    shared = stretch * 512
    limit = torch.cuda.get_device_properties(0).shared_memory_per_block_optin
    if shared > limit:
        pytest.skip(f"this GPU gives a block {limit} bytes")
    device.launch(_kernel(device, "reversed"), (1, stretch), 128, [x], shared_bytes=shared)
    assert x.tolist() == list(range(127, -1, -1))


def test_static_and_dynamic_shared_memory_beyond_48_kib_together(device: devices.Device):
    """49,152 bytes of dynamic shared memory need no asking for, unless the kernel has some of its own beside them."""
    x = torch.arange(128, dtype=torch.int32, device="cuda")
    device.launch(_kernel(device, "both"), 1, 128, [x], shared_bytes=49152)
    assert x.tolist() == [2 * (127 - i) for i in range(128)]


def test_too_much_shared_memory_is_refused_before_the_driver_sees_it(device: devices.Device):
    x = torch.arange(128, dtype=torch.int32, device="cuda")
    with pytest.raises(ArgumentError, match="shared_bytes"):
        device.launch(_kernel(device, "reversed"), 1, 128, [x], shared_bytes=512 * 1024)
    assert (x == torch.arange(128, device="cuda")).all()


def test_threads_launch_at_once(device: devices.Device):
    kernel, failures = _kernel(device, "increment"), []

    def work(index: int) -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream() if index % 2 else torch.cuda.default_stream()):
                x = torch.zeros(4096, dtype=torch.int32, device="cuda")
                for size in (32, 64, 128) * 20:
                    device.launch(kernel, 4096 // size, size, [x])
                assert (x == 60).all()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_torch_works_on_in_a_thread_that_only_launched(device: devices.Device):
    x, results = torch.zeros(128, dtype=torch.int32, device="cuda"), []

    def work() -> None:
        device.launch(_kernel(device, "increment"), 1, 128, [x])
        results.append((x + torch.ones_like(x)).sum().item())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert results == [256]


def test_wrong_arguments_name_the_parameter(device: devices.Device):
    x = torch.zeros(128, device="cuda")
    with pytest.raises(ArgumentError, match=r"saxpy\(\): argument 3 'n'"):
        device.launch(_kernel(device, "saxpy"), 1, 128, [x, x, 1.0, 2.0])
    with pytest.raises(ArgumentError, match=r"argument 1 'x'.*cpu"):
        device.launch(_kernel(device, "saxpy"), 1, 128, [x, torch.zeros(128), 1.0, 128])
    with pytest.raises(ArgumentError, match="block"):
        device.launch(_kernel(device, "busy"), 1, 2048, [x])
    with pytest.raises(ArgumentError, match="sim"):
        device.launch(_kernel(device, "busy"), 1, 32, [x], checks=True)
    assert not x.any()


def test_what_the_driver_refuses_is_a_fault_and_the_next_launch_works(device: devices.Device):
    """More threads than the registers allow: only the driver knows."""
    wide = "float v[96]; for (int i = 0; i < 96; ++i) v[i] = x[i * n + threadIdx.x]; __syncthreads();"
    total = " + ".join(f"v[{i}] * v[{(i * 7) % 96}]" for i in range(96))
    source = f'extern "C" __global__ void wide(float *x, int n) {{ {wide} x[threadIdx.x] = {total}; }}'
    kernel = compile_cuda(source, "wide", arch=device.arch)
    if kernel.registers * 1024 <= 65536:
        pytest.skip(f"the compiler needs only {kernel.registers} registers")
    x = torch.zeros(128 * 1024, device="cuda")
    with pytest.raises(KernelFault, match="wide"):
        device.launch(kernel, 1, 1024, [x, 1024])
    device.launch(kernel, 1, 128, [x, 1024])
    torch.cuda.synchronize()


def test_load_cuda_runs_a_users_kernel():
    module = wb.load_cuda(SOURCE)
    x = torch.zeros(128, dtype=torch.int32, device="cuda")
    module.increment(1, 128, x)
    assert (x == 1).all()
    assert repr(module).endswith(f"for {devices.get('cuda').arch} on cuda>")


def test_code_for_another_architecture_alone_is_refused_by_name(device: devices.Device):
    other = "sm_90a" if device.arch != "sm_90" else "sm_100a"
    x = torch.zeros(128, dtype=torch.int32, device="cuda")
    with pytest.raises(ArgumentError, match=rf"increment for {other}.*code for {device.arch}"):
        device.launch(compile_cuda(SOURCE, "increment", arch=other), 1, 128, [x])


# ---- several devices -------------------------------------------------------------------------------------------------


@pytest.fixture
def second() -> str:
    if torch.cuda.device_count() < 2:
        pytest.skip("this machine has one GPU")
    assert torch.cuda.current_device() == 0
    return "cuda:1"


@pytest.mark.parametrize("own_stream", [False, True])
def test_a_launch_runs_where_its_tensors_are(device: devices.Device, second: str, own_stream: bool):
    x = torch.zeros(128, dtype=torch.int32, device=second)
    with torch.cuda.stream(torch.cuda.Stream(second) if own_stream else torch.cuda.default_stream(second)):
        torch.cuda.set_device(0)
        x.fill_(4)
        device.launch(_kernel(device, "increment"), 1, 128, [x])
        copy = x.clone()
    torch.cuda.synchronize(second)
    assert (copy == 5).all()
    assert torch.cuda.current_device() == 0


def test_tensors_of_two_devices_are_refused(device: devices.Device, second: str):
    x, y = torch.zeros(128, device="cuda:0"), torch.zeros(128, device=second)
    with pytest.raises(ArgumentError, match=r"argument 1 'x'.*cuda:1.*cuda:0"):
        device.launch(_kernel(device, "saxpy"), 1, 128, [x, y, 1.0, 128])


def test_a_loaded_kernel_runs_where_its_tensors_are(second: str):
    x = torch.zeros(128, dtype=torch.int32, device=second)
    wb.load_cuda(SOURCE).increment(1, 128, x)
    assert (x == 1).all()


@pytest.mark.parametrize(
    "variant", ["cuda_thread_group", "cuda_grouped_mma", "triton_online_softmax", "triton_grouped"]
)
def test_an_op_runs_where_its_tensors_are(second: str, variant: str):
    from workbench.attention import paged_attention
    from workbench.attention.ops.paged_attention import OP, case

    layout = OP.variant(variant).layouts[0]
    one = case("small", layout=layout)
    t = one.inputs(one.problem({"BLOCK_SIZE": 16}), second)
    out = paged_attention(
        t.query, t.key_cache, t.value_cache, t.block_tables, t.seq_lens, layout=layout, variant=variant
    )
    assert out.device == torch.device(second)
    assert one.check(out).ok
    assert torch.cuda.current_device() == 0
