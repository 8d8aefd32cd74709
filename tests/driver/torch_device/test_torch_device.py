"""torch's cuda device on the simulated GPU: torch's own allocator, streams and graphs; operators on the host."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

pytestmark = pytest.mark.gpu


def randn(*size: int, **options: object) -> torch.Tensor:
    return torch.randn(*size, device="cuda", **options)


def half(*size: int) -> torch.Tensor:
    return randn(*size).half()


def in_tiles(scales: torch.Tensor) -> torch.Tensor:
    """Return scales of rows in the order in which cuBLAS takes them."""
    rows, columns = scales.shape
    tiles = scales.view(rows // 128, 4, 32, columns // 4, 4).permute(0, 3, 2, 1, 4)
    return tiles.flatten().to(torch.float8_e4m3fn).cuda()


CUDA_ONLY: dict[str, Callable[[], torch.Tensor]] = {
    "mm out_dtype": lambda: torch.mm(half(8, 8), half(8, 8), out_dtype=torch.float32),
    "bmm out_dtype": lambda: torch.bmm(half(2, 8, 8), half(2, 8, 8), out_dtype=torch.float32),
    "addmm out_dtype": lambda: torch.addmm(randn(8, 8), half(8, 8), half(8, 8), out_dtype=torch.float32),
    "addmm out": lambda: torch.addmm(
        randn(8, 8), half(8, 8), half(8, 8), out_dtype=torch.float32, out=torch.empty(8, 8, device="cuda")
    ),
    "softmax, half to float": lambda: F.softmax(half(2, 6), -1, dtype=torch.float32),
    "log_softmax, half to float": lambda: F.log_softmax(half(2, 6), -1, dtype=torch.float32),
    "trace of bools": lambda: torch.trace(randn(4, 4) > 0),
    "avg_pool1d": lambda: F.avg_pool1d(randn(6, 8, 8), 4, 1, 1),
    "avg_pool2d, half": lambda: F.avg_pool2d(half(2, 6, 8, 8), 4, 1, 1),
    "avg_pool3d": lambda: F.avg_pool3d(randn(2, 6, 8, 8), 4, 1, 1),
    "max_pool1d": lambda: F.max_pool1d(randn(6, 8, 8), 4, 1, 1),
    "max_pool3d": lambda: F.max_pool3d(randn(2, 6, 8, 8), 4, 1, 1),
    "adaptive_avg_pool2d": lambda: F.adaptive_avg_pool2d(randn(2, 6, 8, 8), 3),
    "conv2d with groups": lambda: F.conv2d(randn(1, 4, 8, 8), randn(4, 1, 3, 3, requires_grad=True), groups=4),
    "conv3d": lambda: F.conv3d(randn(1, 2, 4, 4, 4), randn(2, 2, 3, 3, 3, requires_grad=True)),
    "conv_transpose2d": lambda: F.conv_transpose2d(randn(1, 4, 8, 8), randn(4, 4, 3, 3, requires_grad=True)),
    "LSTM": lambda: torch.nn.LSTM(8, 8, device="cuda")(randn(4, 1, 8))[0],
    "GRU": lambda: torch.nn.GRU(8, 8, device="cuda")(randn(4, 1, 8))[0],
}


@pytest.mark.parametrize("name", CUDA_ONLY)
def test_operators_that_only_cuda_has(name: str):
    out = CUDA_ONLY[name]()
    assert out.device.type == "cuda"
    assert torch.isfinite(out.double()).all()
    if "float" in name or "out" in name:
        assert out.dtype == torch.float32
    if out.requires_grad:
        out.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_narrow_softmax_rounds_once(dtype: torch.dtype):
    x = randn(20, 8000, generator=torch.Generator("cuda").manual_seed(0)).to(dtype)
    exact = torch.log_softmax(x.double(), -1)
    units = torch.exp2(torch.floor(torch.log2(exact.abs()))) * torch.finfo(dtype).eps
    assert ((torch.log_softmax(x, -1).double() - exact).abs() <= units * 0.5 + 1e-5).all()


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)), lambda x: torch.load(_saved(x))],
    ids=["deepcopy", "pickle", "load"],
)  # fmt: skip
def test_copies_stay_on_the_device(copied: Callable[[torch.Tensor], torch.Tensor]):
    x = randn(4)
    again = copied(x)
    assert again.device == x.device
    assert torch.equal(again, x)


def _saved(x: torch.Tensor) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return file


SECOND = pytest.mark.simulated_only("two devices")
CALLS: dict[str, Callable[[], object]] = {
    "reset_peak_memory_stats": torch.cuda.reset_peak_memory_stats,
    "memory_summary": torch.cuda.memory_summary,
    "ipc_collect": torch.cuda.ipc_collect,
    "current_blas_handle": torch.cuda.current_blas_handle,
    "get_allocator_backend": torch.cuda.get_allocator_backend,
    "can_device_access_peer": lambda: torch.cuda.can_device_access_peer(0, 1),
    "priority_range": lambda: torch.cuda.Stream.priority_range(),
    "accelerator.synchronize": lambda: torch.accelerator.synchronize(),
    "nvtx.range": lambda: torch.cuda.nvtx.range_pop() if torch.cuda.nvtx.range_push("a") else None,
    "nvtx.mark": lambda: torch.cuda.nvtx.mark("b"),
    "nvtx.range_start": lambda: torch.cuda.nvtx.range_end(torch.cuda.nvtx.range_start("c")),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[SECOND] * (name == "can_device_access_peer")) for name in CALLS]
)
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")
def test_calls_around_kernels(name: str):
    CALLS[name]()


def test_the_allocator_counts():
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    x = torch.ones(1000, device="cuda")
    assert torch.cuda.memory_allocated() - before == 4096  # in pieces of 512 bytes
    assert torch.cuda.max_memory_allocated() >= before + x.nbytes


def test_generators():
    torch.cuda.manual_seed_all(7)
    assert torch.cuda.default_generators[0].get_state().view(torch.int64).tolist() == [7, 0]
    first = torch.rand(4, device="cuda")
    state = torch.cuda.get_rng_state()
    second = torch.rand(4, device="cuda")
    assert not torch.equal(first, second)
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.rand(4, device="cuda"), second)
    torch.cuda.manual_seed(7)
    assert torch.equal(torch.rand(4, device="cuda"), first)


def test_a_graph_draws_new_random_numbers_at_each_replay():
    x = torch.zeros(64, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.copy_(torch.rand(64, device="cuda") + 1)
    drawn = []
    for _ in range(3):
        graph.replay()
        torch.cuda.synchronize()
        drawn.append(x.clone())
    assert all(((one >= 1) & (one < 2)).all() for one in drawn)
    assert not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[1], drawn[2])


def test_streams_and_events():
    side, x = torch.cuda.Stream(), torch.zeros(16, device="cuda")
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(1_000_000)
        x += 1
    torch.cuda.current_stream().wait_stream(side)
    y = x * 2
    end.record()
    torch.cuda.synchronize()
    assert end.query()
    assert (y == 2).all()
    assert start.elapsed_time(end) > 0.4  # a million cycles


def test_autocast_and_scaled_gradients():
    layer, x = torch.nn.Linear(8, 8, device="cuda"), randn(4, 8)
    optimizer, scaler = torch.optim.SGD(layer.parameters(), lr=0.1), torch.amp.GradScaler("cuda")
    before = layer.weight.detach().clone()
    with torch.autocast("cuda", dtype=torch.float16):
        out = layer(x)
        assert out.dtype == torch.float16
        loss = out.float().square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(before, layer.weight)


@pytest.mark.parametrize("other", ["cpu", pytest.param("cuda:1", marks=SECOND)])
def test_devices_do_not_mix(other: str):
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.add(randn(4), torch.ones(4, device=other))
    with pytest.raises(RuntimeError, match="same device"):
        torch.mm(randn(4, 4), torch.ones(4, 4, device=other))
    assert (randn(4) * torch.tensor(0.0)).device.type == "cuda"  # a scalar of the CPU goes with any


@SECOND
def test_two_devices():
    x = torch.arange(4, device="cuda:1")
    assert x.to("cuda:0").device.index == 0
    with torch.cuda.device(1):
        assert torch.empty(1, device="cuda").device.index == 1
    assert torch.cuda.device_count() == 2
    assert torch.cuda.can_device_access_peer(0, 1)
    event, streams = torch.cuda.Event(), [torch.cuda.Stream(number) for number in range(2)]
    event.record(streams[0])
    with torch.cuda.device(1):
        streams[1].wait_event(event)
        event.synchronize()
        assert event.query()
        assert streams[0].query()
        y = torch.ones(4, device="cuda:0") + 1  # not the current device's
    assert torch.nn.parallel.comm.broadcast(y, [0, 1])[1].tolist() == [2] * 4
    assert torch.cuda.get_device_name().endswith("(simulated)")


@SECOND
def test_nvidia_smi_is_on_path():
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1].startswith(f"GPU 1: {torch.cuda.get_device_name(1)} (UUID: GPU-")
    assert str(torch.cuda.get_device_properties(1).uuid) in done.stdout


@pytest.mark.simulated_only("a GPU has every operator")
def test_an_operator_without_a_kernel_is_refused_by_name():
    with pytest.raises(NotImplementedError, match="aten::_histogramdd_bin_edges"):
        torch.histogramdd(randn(4, 2), bins=2)


def test_a_product_of_nvfp4_matrices() -> None:
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    codes = torch.randint(0, 8, (2, 128, 128))
    scales = torch.randint(1, 9, (2, 128, 8)).float() / 4
    a, b = values[codes] * scales.repeat_interleave(16, 2)
    packed = (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8).view(torch.float4_e2m1fn_x2).cuda()
    given = [packed[0], packed[1].t(), in_tiles(scales[0]), in_tiles(scales[1])]
    torch.testing.assert_close(torch._scaled_mm(*given, out_dtype=torch.float32).cpu(), a @ b.t())
    eights = [torch.randn(16, 32).to(torch.float8_e4m3fn) for _ in range(2)]
    one = torch.ones(1, device="cuda")
    plain = torch._scaled_mm(eights[0].cuda(), eights[1].cuda().t(), one, one, out_dtype=torch.float32)
    torch.testing.assert_close(plain.cpu(), eights[0].float() @ eights[1].float().t())
