"""Pairs of small torch programs for `ordered_pairs`; ``# first`` and ``# second`` are the lines of what is found.

Each returns what its operations leave behind.
"""

import ctypes
import faulthandler
import sys
from collections.abc import Callable

import ordered_pairs

ordered_pairs.watch_all()

import workbench as wb  # noqa: E402

wb.simulated_gpu(force=True, devices=2, memory_bytes=1 << 30)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

N = 4096
Result = torch.Tensor | float


@triton.jit
def add_one(y, x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)  # the kernel


def launch(y: torch.Tensor, x: torch.Tensor) -> None:
    add_one[(triton.cdiv(x.numel(), 1024),)](y, x, x.numel(), BLOCK=1024)  # the launch


def default_stream(fixed: bool) -> Result:
    """Launch on the default stream, beside torch's other stream."""
    x, y = torch.zeros(N, device="cuda"), torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        x.fill_(1)  # first: default_stream
        with torch.cuda.stream(side if fixed else torch.cuda.default_stream()):
            add_one[(4,)](y, x, N, BLOCK=1024)  # second: default_stream
    return y


def side_before_main(fixed: bool) -> Result:
    """Read on a side stream what the main one writes."""
    x, y = torch.zeros(N, device="cuda"), torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    x.add_(1)  # first: side_before_main
    if fixed:
        side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y.copy_(x)  # second: side_before_main
    return y


def between_devices(fixed: bool) -> Result:
    """Copy to another device beside the stream that writes the source."""
    x, side = torch.zeros(N, device="cuda:0"), torch.cuda.Stream(0)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        x.fill_(1)  # first: between_devices
    if fixed:
        torch.cuda.current_stream(0).wait_stream(side)
    y = x.to("cuda:1", non_blocking=True)  # second: between_devices
    y.add_(1)
    y.to("cuda:0").add_(1)
    return y


def async_collective(fixed: bool) -> Result:
    """Use the result of a collective whose end the stream does not wait for."""
    if not dist.is_initialized():
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    x = torch.zeros(N, device="cuda")
    work = dist.all_reduce(x, async_op=True)  # first: async_collective
    if fixed:
        work.wait()
    x.add_(1)  # second: async_collective
    return x


def main_before_side(fixed: bool) -> Result:
    """Read on the main stream what a side stream writes, with an event that is recorded too early."""
    x, y = torch.zeros(N, device="cuda"), torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    side, done = torch.cuda.Stream(), torch.cuda.Event()
    with torch.cuda.stream(side):
        if not fixed:
            done.record()
        add_one[(4,)](y, x, N, BLOCK=1024)  # first: main_before_side
        if fixed:
            done.record()
    done.wait()
    return y.mul(2)  # second: main_before_side


def halves(fixed: bool) -> Result:
    """Write two parts of a tensor on two streams; in the bug they overlap by one element."""
    x, y = torch.zeros(N, device="cuda"), torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    one, two = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(one):
        add_one[(2,)](y, x, N // 2, BLOCK=1024)  # first: halves
    with torch.cuda.stream(two):
        begin = N // 2 if fixed else N // 2 - 1
        y[begin:].fill_(3)  # second: halves
    return y


def columns(fixed: bool) -> Result:
    """Write columns on one stream and read others of the same rows on another one."""
    x = torch.zeros(32, 32, device="cuda")
    torch.cuda.synchronize()
    one, two = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(one):
        x[:, :16] = 1  # first: columns
    with torch.cuda.stream(two):
        return x[:, 16 if fixed else 15 :].sum()  # second: columns


def workspace(fixed: bool) -> Result:
    """Share a workspace between two streams."""
    spaces = [torch.zeros(N, device="cuda") for _ in range(2)]
    torch.cuda.synchronize()
    one, two = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(one):
        spaces[0].zero_().add_(1)  # first: workspace
    with torch.cuda.stream(two):
        spaces[1 if fixed else 0].zero_().add_(1)  # second: workspace
    return spaces[0]


def record_stream(fixed: bool) -> Result:
    """Free a tensor that a side stream still reads."""
    y, side, x = torch.zeros(N, device="cuda"), torch.cuda.Stream(), torch.ones(N, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        add_one[(4,)](y, x, N, BLOCK=1024)  # first: record_stream
    if fixed:
        x.record_stream(side)
    address, others = x.data_ptr(), []
    del x
    while not others or others[-1].data_ptr() != address:
        others.append(torch.full((N,), 7.0, device="cuda"))  # second: record_stream
    return y


def pinned_reuse(fixed: bool) -> Result:
    """Fill a page-locked buffer again while it is copied."""
    staging = torch.zeros(N, pin_memory=True)
    x, copied = torch.zeros(N, device="cuda"), torch.cuda.Event()
    x.copy_(staging, non_blocking=True)  # first: pinned_reuse
    copied.record()
    if fixed:
        copied.synchronize()
    staging[:] = torch.ones(N)  # second: pinned_reuse
    return x


def early_read(fixed: bool) -> Result:
    """Read a result on the host before its copy has ended."""
    x = torch.full((N,), 3.0 if fixed else 5.0, device="cuda")
    result = x.to("cpu", non_blocking=True)  # first: early_read
    if fixed:
        torch.cuda.synchronize()
    return result.sum()  # second: early_read


def numpy_view(fixed: bool) -> Result:
    """Read a page-locked tensor through NumPy before a copy to it has ended."""
    x, result = torch.ones(16, device="cuda"), torch.zeros(16, pin_memory=True)
    view = result.numpy()
    result.copy_(x, non_blocking=True)  # first: numpy_view
    if fixed:
        torch.cuda.current_stream().synchronize()
    return float(view[3])  # second: numpy_view


def graph_input(fixed: bool) -> Result:
    """Fill a graph's input on the main stream, and launch the graph on a side stream."""
    x, side, graph = torch.zeros(N, device="cuda"), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x.mul(2)
    torch.cuda.synchronize()
    x.fill_(3)  # first: graph_input
    if fixed:
        side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        graph.replay()  # second: graph_input
    return y


def graph_branches(fixed: bool) -> Result:
    """Capture two streams into a graph, of which the second reads what the first writes."""
    x, y, z = (torch.zeros(N, device="cuda") for _ in range(3))
    side, graph, begin = torch.cuda.Stream(), torch.cuda.CUDAGraph(), torch.cuda.Event()
    with torch.cuda.graph(graph):
        begin.record()
        add_one[(4,)](y, x, N, BLOCK=1024)
        if fixed:
            begin.record()
        side.wait_event(begin)
        with torch.cuda.stream(side):
            add_one[(4,)](z, y, N, BLOCK=1024)
        torch.cuda.current_stream().wait_stream(side)
    graph.replay()  # both: graph_branches
    return z


def captured_input(fixed: bool) -> Result:
    """Free the page-locked tensor of a captured copy before the graph is launched; another one gets its memory."""
    x, host, graph = torch.zeros(N, device="cuda"), torch.ones(N, pin_memory=True), torch.cuda.CUDAGraph()
    address = host.data_ptr()
    with torch.cuda.graph(graph):
        x.copy_(host, non_blocking=True)  # first: captured_input
    if not fixed:
        del host
        host = torch.zeros(N, pin_memory=True)
        assert host.data_ptr() == address
    graph.replay()  # second: captured_input
    torch.cuda.synchronize()
    return x


def queried_event(fixed: bool) -> Result:
    """Launch on another stream after a query of torch's own event has succeeded."""
    x, y = torch.zeros(N, device="cuda"), torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    one, two, done = torch.cuda.Stream(), torch.cuda.Stream(), torch.Event("cuda")
    with torch.cuda.stream(one):
        x.add_(1)  # first: queried_event
        done.record()
    while fixed and not done.query():
        pass
    with torch.cuda.stream(two):
        y.copy_(x)  # second: queried_event
    return y


def chosen_rows(fixed: bool) -> Result:
    """Write rows by their numbers on one stream, and read others, or all, on another one."""
    cache, even = torch.zeros(64, 16, device="cuda"), torch.arange(0, 64, 2, device="cuda")
    odd = even + 1
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        cache[even] = 1  # first: chosen_rows
    with torch.cuda.stream(torch.cuda.Stream()):
        return (cache[odd] if fixed else cache).sum()  # second: chosen_rows


def kept_pinned(fixed: bool) -> Result:
    """Drop page-locked memory while it is copied: torch's allocator waits, in both forms."""
    x = torch.zeros(N, device="cuda")
    for at in range(4):
        x.copy_(torch.full((N,), float(at)).pin_memory(), non_blocking=True)
    return x


def training(_: bool) -> Result:
    """Train with random numbers, rows chosen by indices, a number on the host, and an error of shapes: right twice."""
    torch.manual_seed(0)
    layers = torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Dropout(0.3), torch.nn.LayerNorm(8), torch.nn.Linear(8, 4)
    model, factor = torch.nn.Sequential(*layers).to("cuda"), torch.tensor(3.0)
    x = torch.randn(16, 8, device="cuda")
    for _step in range(3):
        x[x > 1] = 0.5
        y = x * factor
        factor.fill_(2.0)
        loss = torch.nn.functional.cross_entropy(model(y), torch.randint(0, 4, (16,), device="cuda"))
        loss.backward()
        for one in model.parameters():
            one.data.sub_(one.grad, alpha=0.01)
            one.grad = None
    try:
        x.add_(torch.zeros(5, device="cuda"))
    except RuntimeError:
        return model[0].weight.detach().double().sum() + loss.detach()
    return 0.0


PAIRS: list[Callable[[bool], Result]] = [
    default_stream, side_before_main, between_devices, async_collective, main_before_side, halves, columns, workspace,
    record_stream, pinned_reuse, early_read, numpy_view, graph_input, graph_branches, captured_input, queried_event,
    chosen_rows, kept_pinned, training,
]  # fmt: skip


def crash() -> None:
    """Read address 8, with a handler of faults that came after the driver's."""
    faulthandler.enable()
    x, staging = torch.zeros(N, device="cuda"), torch.zeros(N, pin_memory=True)
    x.copy_(staging, non_blocking=True)
    ctypes.string_at(8)


if __name__ == "__main__":
    launch(torch.zeros(N, device="cuda"), torch.zeros(N, device="cuda"))
    ordered_pairs.run(PAIRS, torch.cuda.synchronize)
    sys.stdout.flush()
    if not ordered_pairs.LATE:
        crash()
