"""Launching: arguments, shapes, determinism, several launches at once, interruption, control instructions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from ptx_support import module

from workbench import ptx
from workbench.errors import ArgumentError, KernelFault, KernelTimeout
from workbench.toolchain import compile_cuda_module

FILL = module(
    "fill", ".param .u64 out, .param .u32 value, .param .u32 n",
    """ld.param.u64 %d1, [out]; ld.param.u32 %r1, [value]; ld.param.u32 %r2, [n];
    mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x; mad.lo.u32 %r6, %r3, %r4, %r5;
    setp.ge.u32 %p1, %r6, %r2; @%p1 bra END; mad.wide.u32 %d2, %r6, 4, %d1; add.u32 %r7, %r1, %r6;
    st.global.u32 [%d2], %r7;
    END:""",
)  # fmt: skip


def test_partial_warps_and_blocks() -> None:
    for n in (1, 31, 32, 33, 95, 100):
        out = np.zeros(n, np.uint32)
        ptx.Program.from_text(FILL)["fill"].launch(-(-n // 40), 40, [out, 5, n])
        assert out.tolist() == list(range(5, 5 + n))


def test_special_registers_in_three_dimensions() -> None:
    names = ["tid.x", "tid.y", "tid.z", "ctaid.x", "ctaid.y", "ctaid.z", "ntid.x", "ntid.y", "ntid.z", "nctaid.x",
    "nctaid.y",
             "nctaid.z", "laneid", "warpid", "lanemask_lt", "lanemask_le", "lanemask_gt", "lanemask_ge",
             "lanemask_eq"]  # fmt: skip
    body = """ld.param.u64 %d1, [out]; mov.u32 %r1, %tid.z; mov.u32 %r2, %ntid.y; mov.u32 %r3, %tid.y;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    mov.u32 %r5, %ntid.x; mov.u32 %r6, %tid.x; mad.lo.u32 %r7, %r4, %r5, %r6; mov.u32 %r8, %ctaid.z;
    mov.u32 %r9, %nctaid.y;
    mov.u32 %r10, %ctaid.y; mad.lo.u32 %r11, %r8, %r9, %r10; mov.u32 %r12, %nctaid.x; mov.u32 %r13, %ctaid.x;
    mad.lo.u32 %r14, %r11, %r12, %r13; mad.lo.u32 %r15, %r14, 60, %r7; mad.wide.u32 %d2, %r15, 76, %d1;"""
    body += "".join(f"mov.u32 %r20, %{name}; st.global.u32 [%d2+{4 * i}], %r20;" for i, name in enumerate(names))
    grid, block = (2, 3, 2), (5, 4, 3)
    out = np.zeros((12, 60, len(names)), np.uint32)
    ptx.Program(module("special", ".param .u64 out", body))["special"].launch(grid, block, [out], threads=3)
    for b in range(12):
        for t in range(60):
            lane = t % 32
            at = [t % 5, t // 5 % 4, t // 20, b % 2, b // 2 % 3, b // 6, *block, *grid, lane, t // 32]
            below = (1 << lane) - 1
            masks = [below, below | 1 << lane, ~(below | 1 << lane) & 0xFFFFFFFF, ~below & 0xFFFFFFFF, 1 << lane]
            assert out[b, t].tolist() == at + masks


def test_scalar_parameters_of_every_type() -> None:
    kinds = ["u8", "s16", "u32", "s32", "u64", "s64", "f32", "f64", "b8"]
    values = [200, -5, 4_000_000_000, -7, 2**63 + 1, -(2**60), 1.5, -2.25, True]
    parameters = ".param .u64 out, " + ", ".join(f".param .{kind} p{i}" for i, kind in enumerate(kinds))
    body = "ld.param.u64 %d1, [out];"
    for i, kind in enumerate(kinds):
        body += f"ld.param.b{kind[1:]} %d{i + 2}, [p{i}]; st.global.b64 [%d1+{8 * i}], %d{i + 2};"
    out = np.zeros(len(kinds), np.uint64)
    ptx.Program(module("scalars", parameters, body))["scalars"].launch(1, 1, [out, *values])
    raw = [int(v).to_bytes(8, "little", signed=v < 0) if isinstance(v, int) and v < 2**63 else None for v in values]
    for i, kind in enumerate(kinds):
        width = int(kind[1:]) // 8
        data = int(out[i]).to_bytes(8, "little")[:width]
        if kind[0] == "f":
            assert np.frombuffer(data, f"f{width}")[0] == values[i]
        else:
            assert data == (raw[i][:width] if raw[i] else values[i].to_bytes(8, "little"))


def test_torch_tensors_and_views() -> None:
    torch = pytest.importorskip("torch")
    storage = torch.zeros(100, dtype=torch.int32)
    ptx.Program.from_text(FILL)["fill"].launch(1, 32, [storage[10:30], np.uint32(7), 20])
    assert storage.tolist() == [0] * 10 + list(range(7, 27)) + [0] * 70
    with pytest.raises(KernelFault, match="past the end of argument 0"):
        ptx.Program.from_text(FILL)["fill"].launch(1, 32, [storage[10:30], 7, 21])
    with pytest.raises(ArgumentError, match="host memory"):
        ptx.Program.from_text(FILL)["fill"].launch(1, 32, [torch.zeros(4, device="meta"), 7, 4])


COPY = module(
    "copy", ".param .u64 out, .param .u64 in",
    """ld.param.u64 %d1, [out]; ld.param.u64 %d2, [in]; mov.u32 %r1, %tid.x; mad.wide.u32 %d3, %r1, 4, %d1;
    mad.wide.u32 %d4, %r1, 4, %d2; ld.global.u32 %r2, [%d4]; st.global.u32 [%d3], %r2;
    sub.u64 %d5, %d2, %d1; cvt.u32.u64 %r3, %d5; setp.eq.u32 %p1, %r1, 0; @%p1 st.global.u32 [%d1], %r3;""",
)  # fmt: skip


def test_arguments_that_share_storage_keep_their_distance() -> None:
    data = np.arange(64, dtype=np.uint32)
    ptx.Program.from_text(COPY)["copy"].launch(1, 32, [data[:32], data[32:]])
    assert data[1:32].tolist() == list(range(33, 64))
    assert data[0] == 128
    overlapping = np.arange(48, dtype=np.uint32)
    ptx.Program.from_text(COPY)["copy"].launch(1, 32, [overlapping[16:], overlapping[:32]])
    assert overlapping[16] == 2**32 - 64
    assert overlapping[17:48].tolist() == list(range(1, 32))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"grid": 0, "block": 32, "args": [np.zeros(4, np.uint32), 1, 1]}, "grid"),
        ({"grid": 1, "block": 2048, "args": [np.zeros(4, np.uint32), 1, 1]}, "block"),
        ({"grid": 1, "block": (32, 64), "args": [np.zeros(4, np.uint32), 1, 1]}, "2048 threads"),
        ({"grid": 1, "block": 32, "args": [np.zeros(4, np.uint32), 1]}, "got 2 values"),
        ({"grid": 1, "block": 32, "args": [np.zeros(4, np.uint32), 1.5, 1]}, "argument 1"),
        ({"grid": 1, "block": 32, "args": [np.zeros(4, np.uint32), "x", 1]}, "argument 1"),
        ({"grid": 1, "block": 32, "args": [np.zeros(4, np.uint32), np.zeros(1), 1]}, "argument 1"),
        ({"grid": 1, "block": 32, "args": [np.zeros(4, np.uint32), None, 1]}, "argument 1"),
        ({"grid": 1, "block": 32, "args": [np.zeros(4, np.uint32), 1, 1], "shared_bytes": 1 << 20}, "shared_bytes"),
        ({"grid": (1, 1, 1, 1), "block": 32, "args": [np.zeros(4, np.uint32), 1, 1]}, "grid"),
    ],
)
def test_bad_launches(call: dict, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        ptx.Program.from_text(FILL)["fill"].launch(**call)


def test_launch_bounds() -> None:
    text = FILL.replace(")\n{", ")\n.maxntid 64, 1, 1\n{", 1)
    with pytest.raises(ArgumentError, match="__launch_bounds__"):
        ptx.Program.from_text(text)["fill"].launch(1, 96, [np.zeros(4, np.uint32), 1, 1])


def test_dynamic_shared_memory_follows_the_static() -> None:
    body = """.shared .align 4 .b8 fixed[20]; mov.u32 %r60, %tid.x; ld.param.u64 %d1, [out]; mov.u32 %r1, dynamic;
    mov.u32 %r2, fixed; mad.lo.u32 %r3, %r60, 4, %r1; st.shared.u32 [%r3], %r60; bar.sync 0;
    ld.shared.u32 %r4, [%r1+124];
    mad.wide.u32 %d2, %r60, 4, %d1; add.u32 %r4, %r4, %r1; mov.u32 %r5, %dynamic_smem_size; add.u32 %r4, %r4, %r5;
    st.global.u32 [%d2], %r4;"""
    text = module("dynamic", ".param .u64 out", body).replace(
        ".visible", ".extern .shared .align 16 .b8 dynamic[];\n.visible", 1
    )
    text = text.replace("entry dynamic(", "entry kernel(")
    out = np.zeros(32, np.uint32)
    ptx.Program(text)["kernel"].launch(1, 32, [out], shared_bytes=128)
    assert set(out.tolist()) == {31 + 32 + 128}


def test_control_instructions() -> None:
    body = """mov.u32 %r60, %tid.x; ld.param.u64 %d1, [out]; mad.wide.u32 %d2, %r60, 16, %d1;
    mov.u64 %d3, %clock64; mov.u32 %r1, %clock; membar.gl; fence.acq_rel.gpu; nanosleep.u32 100;
    prefetch.global.L2 [%d1];
    mov.u64 %d4, %clock64; sub.u64 %d5, %d4, %d3; st.global.u64 [%d2], %d5; setp.gt.u32 %p1, %r60, 3; @%p1 exit;
    st.global.u64 [%d2+8], 1;"""
    out = np.zeros((32, 2), np.uint64)
    ptx.Program(module("control", ".param .u64 out", body))["control"].launch(1, 32, [out])
    assert (out[:, 0] > 0).all()
    assert out[:, 1].tolist() == [1] * 4 + [0] * 28


def test_counts_do_not_depend_on_the_number_of_threads() -> None:
    source = Path(__file__).parent / "cuda_faults.cu"
    kernel = ptx.Program.from_text(next(iter(compile_cuda_module(source, arch="sm_80").kernels.values())).ptx)[
        "tree_sum"
    ]
    data = np.ones(128, np.float32)
    seen = set()
    for threads in (1, 2, 5):
        report = kernel.launch(37, 128, [np.zeros(128, np.float32), data], statistics=True, threads=threads)
        seen.add((report.instructions, report.thread_instructions, report.unique_bytes_read, tuple(report.lines)))
    assert len(seen) == 1


def test_bare_and_counted_runs_execute_the_same_instructions() -> None:
    kernel = ptx.Program.from_text(FILL)["fill"]
    runs = [kernel.launch(5, 64, [np.zeros(300, np.uint32), 1, 300], statistics=s) for s in (False, True)]
    assert runs[0].instructions == runs[1].instructions == sum(line.executions for line in runs[1].lines)
    assert runs[0].thread_instructions == runs[1].thread_instructions


def test_launches_from_several_python_threads() -> None:
    kernel = ptx.Program.from_text(FILL)["fill"]
    outputs, errors = [np.zeros(5000, np.uint32) for _ in range(6)], []

    def work(i: int) -> None:
        try:
            for _ in range(20):
                kernel.launch(79, 64, [outputs[i], i, 5000])
        except Exception as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors
    for i, out in enumerate(outputs):
        assert (out == np.arange(i, i + 5000)).all()


ENDLESS = module("endless", ".param .u64 in", """ld.param.u64 %d1, [in]; mov.u32 %r2, 0;
AGAIN: ld.volatile.global.u32 %r1, [%d1]; add.u32 %r2, %r2, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra AGAIN;""")  # fmt: skip
"""It counts: a wait in which nothing changes is a deadlock."""
INTERRUPTED = f"""
import sys, numpy as np
from workbench import ptx
kernel, threads = ptx.Program.from_text({ENDLESS!r})["endless"], int(sys.argv[1])
print("ready", flush=True)
try:
    kernel.launch(4, 64, [np.zeros(1, np.uint32)], threads=threads)
except KeyboardInterrupt:
    kernel.launch(4, 64, [np.ones(1, np.uint32)], threads=threads)
    print("still usable", flush=True)
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_interrupt(threads: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED, str(threads)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.5)
    start = time.perf_counter()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert out == "still usable\n"
    assert process.returncode == 0
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize("threads", [1, 2])
def test_time_limit(threads: int) -> None:
    kernel = ptx.Program.from_text(ENDLESS)["endless"]
    with pytest.raises(KernelTimeout):
        kernel.launch(4, 64, [np.zeros(1, np.uint32)], threads=threads, seconds_limit=0.01)


HALVED = module("halved", ".param .u64 out", """ld.param.u64 %d1, [out];
ld.global.b32 %r1, [%d1]; mul.rn.f32 %r1, %r1, 0f3F000000; st.global.b32 [%d1], %r1;""")  # fmt: skip


def test_the_arithmetic_of_the_calling_thread_changes_nothing() -> None:
    subnormal = np.full(1, 2.0**-140, np.float32)
    torch.set_flush_denormal(True)
    try:
        ptx.Program.from_text(HALVED)["halved"].launch(1, 1, [subnormal])
        assert torch.full((1,), 2.0**-140).mul(0.5).item() == 0, "it takes no subnormals for zero"
    finally:
        torch.set_flush_denormal(False)
    assert subnormal.item() == 2.0**-141


@pytest.mark.parametrize(
    ("wanted", "answers"),
    [
        ("baseline", ("baseline\n", "an editable install has a core for its own processor only")),
        ("fast", ("allowed are 'baseline' and 'v3'",)),
    ],
)
def test_the_core_that_is_asked_for_or_why_not(wanted: str, answers: tuple[str, ...]) -> None:
    """That both cores of a wheel give the same bits: see tests/test_packaging.py."""
    asked = subprocess.run(
        [sys.executable, "-c", "from workbench.ptx import machine; print(machine.TARGET)"],
        capture_output=True, text=True, env={**os.environ, "WORKBENCH_PTX_CORE": wanted},
    )  # fmt: skip
    assert any(answer in asked.stdout + asked.stderr for answer in answers)


def test_state_spaces_of_generic_addresses() -> None:
    """isspacep tells the windows apart."""
    body = """.shared .align 4 .b8 tile[4]; .local .align 4 .b8 depot[4];
    ld.param.u64 %d1, [out]; mov.u64 %d2, tile; cvta.shared.u64 %d2, %d2; mov.u64 %d3, depot; cvta.local.u64 %d3, %d3;
    mov.u32 %r9, 0;"""
    spaces = ("global", "shared", "local", "shared::cluster")
    for i, (space, register) in enumerate((s, r) for s in spaces for r in ("%d1", "%d2", "%d3")):
        body += f"isspacep.{space} %p1, {register}; @%p1 or.b32 %r9, %r9, {1 << i};"
    out = np.zeros(1, np.uint32)
    ptx.Program(module("spaces", ".param .u64 out", body + "st.global.u32 [%d1], %r9;"))["spaces"].launch(1, 1, [out])
    assert out[0] == 0b010_100_010_001


CLOCKS = """
#include <cooperative_groups.h>
__device__ __noinline__ int work(int n) { return n < 2 ? n : work(n - 1) + work(n - 2); }
extern "C" __global__ void clocks(long long *out) {
    for (int i = 0; i < 4; ++i) {
        long long before = clock64();
        int done = work(4 * i + (before < 0));  // not before the clock is read, nor after it is read again
        long long after;
        asm volatile("mov.u64 %0, %%clock64; // %1" : "=l"(after) : "r"(done));
        out[2 * i] = after - before, out[2 * i + 1] = done;
    }
    unsigned before = clock();
    while (clock() - before < 1000) {}
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) spaces(int *out) {
    __shared__ int own;
    auto cluster = cooperative_groups::this_cluster();
    int *other = cluster.map_shared_rank(&own, 1 - cluster.block_rank());
    cluster.sync();
    int in_block = __isShared(&own) * 8 + __isShared(other) * 4;
    out[blockIdx.x] = in_block + __isClusterShared(&own) * 2 + __isClusterShared(other);
    cluster.sync();
}
"""


@pytest.mark.parametrize("options", [(), ("-G",)])
def test_clocks_and_spaces_of_a_cluster(options: tuple[str, ...]) -> None:
    compiled = compile_cuda_module(CLOCKS, arch="sm_90", options=options).kernels
    out, spaces = np.zeros(8, np.int64), np.zeros(2, np.int32)
    ptx.Program(compiled["clocks"].ptx)["clocks"].launch(1, 1, [out])
    assert out[1::2].tolist() == [0, 3, 21, 144]
    assert (np.diff(out[::2]) > 20).all(), "more work takes longer"
    ptx.Program(compiled["spaces"].ptx)["spaces"].launch(2, 1, [spaces])
    assert spaces.tolist() == [0b1011] * 2
