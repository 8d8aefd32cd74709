"""Bulk copies, products of warp groups and clusters: right as written, and each planted mistake found where it is."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from ptx_support import module

from workbench.errors import ArgumentError, KernelFault
from workbench.ptx import LaunchReport, Program, PtxKernel
from workbench.ptx.buffers import stored
from workbench.ptx.tensor_map import TensorMap
from workbench.toolchain import compile_cuda_module

SOURCE = Path(__file__).with_name("cuda_hopper.cu")
ORDERS = ({}, {"last_warp_first": True}, {"copies_early": True})
STEPS = 9


@functools.cache
def program(fault: int = 0) -> Program:
    kernels = compile_cuda_module(SOURCE, arch="sm_90a", macros={"FAULT": fault} if fault else {}).kernels
    return Program.from_text(next(iter(kernels.values())).ptx)


def run(name: str, fault: int = 0, **options: Any) -> tuple[float, LaunchReport]:
    """The largest error of one launch, and its report."""
    return launched(program(fault)[name], name, **options)


def launched(kernel: PtxKernel, name: str, **options: Any) -> tuple[float, LaunchReport]:
    """The same of a kernel that stands for the one of that name."""
    torch.manual_seed(0)
    if name == "doubled":
        x, y = torch.randn(1024), torch.zeros(1024)
        report = kernel.launch(4, 256, [y, x], **options)
        return (y - 2 * x).abs().max().item(), report
    if name == "row_sums":
        x, sums = torch.randn(3, 512), torch.zeros(3)
        report = kernel.launch(12, 32, [sums, x, 512], **options)
        return (sums - x.double().sum(1)).abs().max().item(), report
    a, b = (torch.randn(rows, 64 * STEPS, dtype=torch.float16) for rows in (64, 8))
    out = torch.zeros(64, 8)
    maps = TensorMap.of(a, (64, 64), swizzle=options.pop("swizzle", 128)), TensorMap.of(b, (8, 64), swizzle=128)
    report = kernel.launch(1, 160, [*maps, out, STEPS], **options)
    return (out - a.double() @ b.double().T).abs().max().item(), report


@pytest.mark.parametrize("order", [*ORDERS, {"strict": True}], ids=str)
@pytest.mark.parametrize("name", ["doubled", "pipeline", "row_sums"])
def test_what_is_right_is_right_and_accused_of_nothing(name: str, order: dict[str, bool]) -> None:
    error, report = run(name, checks=True, **order)
    assert error < 1e-4
    assert report.findings == []
    assert run(name, **order)[0] < 1e-4


FOUND = {
    1: (
        "doubled",
        "deadlock",
        "the mbarrier full at offset 1024 (parity 0) expects 2048 bytes, of which 1024 come, 1024 too few",
        "",
    ),
    2: ("doubled", "cp.async data read before wait", "", "tile[threadIdx.x] = 2"),
    3: ("doubled", "cp.async data read before wait", "", "tile[threadIdx.x] = 2"),
    4: ("doubled", "missing fence.proxy.async", "", "store(y + at"),
    5: ("doubled", "async copy or product misuse", "wait with cp.async.bulk.wait_group.read", "store(y + at"),
    6: ("doubled", "write to shared memory that is being read", "", "tile[threadIdx.x] = 0"),
    7: ("pipeline", "deadlock", "waits for 1 of 1 arrivals", ""),
    8: ("pipeline", "write to shared memory that is being read", "", "load_tile(stage_a"),
    9: ("row_sums", "cluster misuse", "may not have begun", "ld.shared::cluster"),
    11: ("pipeline", "missing wgmma.fence", "", "multiply(d"),
    12: ("pipeline", "register of a running product touched", "", "d[1] *= 2"),
    10: ("row_sums", "cluster misuse", "has ended", "ld.shared::cluster"),
}


@pytest.mark.parametrize("fault", FOUND)
def test_a_planted_mistake_is_found_at_its_line(fault: int) -> None:
    name, kind, words, line = FOUND[fault]
    if kind == "deadlock":
        with pytest.raises(KernelFault) as caught:
            run(name, fault, checks=True)
        assert kind in str(caught.value)
        assert words in str(caught.value)
        return
    found = [one for order in ORDERS[:2] for one in run(name, fault, checks=True, **order)[1].findings]
    lines = SOURCE.read_text().splitlines()
    places = [lines[one.kernel_line - 1] for one in found if one.kind == kind and words in one.message]
    assert any(line in place for place in places), found


@pytest.mark.parametrize("strict", [False, True])
def test_a_fence_that_ptxas_puts_in_is_no_finding_in_a_kernel_of_triton(strict: bool) -> None:
    _, report = run("pipeline", 11, checks=True, repeats=True, strict=strict)
    assert ("missing wgmma.fence" in {one.kind for one in report.findings}) == strict, report.findings


def test_a_deadlock_tells_what_was_found_before() -> None:
    with pytest.raises(
        KernelFault, match="Found before: pipeline: mbarrier misuse: more arrivals than the phase waits for"
    ):
        run("pipeline", 7, checks=True)


def test_the_counts_of_bulk_copies_are_exact() -> None:
    _, report = run("pipeline", statistics=True)
    loads = [line for line in report.lines if "cp.async.bulk.tensor" in line.text]
    assert sum(line.bytes for line in loads) == STEPS * (64 + 8) * 128
    assert sum(line.sectors for line in loads) == STEPS * (64 + 8) * 4
    assert {64 * STEPS * 128, 8 * STEPS * 128} <= {buffer.read_unique for buffer in report.buffers}


def test_clusters_are_those_of_the_kernel_and_fill_the_grid() -> None:
    kernel, x = program()["row_sums"], torch.zeros(512)
    with pytest.raises(ArgumentError, match=r"grid: got \(6, 1, 1\); allowed: a multiple of the cluster \(4, 1, 1\)"):
        kernel.launch(6, 32, [x, x, 512])
    with pytest.raises(ArgumentError, match=r"cluster: got \(2, 1, 1\); allowed: \(4, 1, 1\)"):
        kernel.launch(8, 32, [x, x, 512], cluster=2)
    with pytest.raises(ArgumentError, match=r"cluster: got \(16, 2, 1\); allowed: at most 16 blocks"):
        program()["doubled"].launch((32, 2), 256, [x, x], cluster=(16, 2))


def test_a_tensor_map_that_nobody_encoded() -> None:
    with pytest.raises(KernelFault, match="a tensor map that nobody has encoded"):
        program()["pipeline"].launch(1, 160, [bytes(128), bytes(128), torch.zeros(64, 8), 1])


def test_bulk_loads_and_stores_are_told_apart() -> None:
    _, report = run("doubled", statistics=True)
    moved = {
        (line.is_load, line.is_store): line.bytes
        for line in report.lines
        if "cp.async.bulk" in line.text and line.bytes
    }
    assert moved == {(True, False): 4096, (False, True): 4096}


def test_a_descriptor_and_a_copy_that_disagree_about_the_swizzle() -> None:
    error, report = run("pipeline", checks=True, swizzle=0)
    assert error > 1
    [found] = report.findings
    assert found.kind == "async copy or product misuse"
    assert "swizzle of 128 bytes, for a tile at offset 0 that a tensor copy wrote with one of 0" in found.message


_STRAY = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry stray(.param .u64 out)
{
.reg .b32 %r<4>; .reg .b64 %d<4>; .shared .align 16 .b8 tile[64];
ld.param.u64 %d1, [out]; cvta.shared.u64 %d2, 150994944;
ld.u32 %r1, [%d2];
mov.u32 %r2, tile; add.u32 %r2, %r2, 150994944;
ld.shared::cluster.u32 %r3, [%r2];
st.global.u32 [%d1], %r3;
ret;
}
"""


@pytest.mark.parametrize("cluster", [1, 2])
def test_an_address_of_no_block_is_out_of_bounds(cluster: int) -> None:
    report = Program.from_text(_STRAY)["stray"].launch(2, 1, [torch.zeros(1)], cluster=cluster, checks=True)
    assert [one.kind for one in report.findings] == ["out-of-bounds"] * 2


@pytest.mark.parametrize("is_used", [False, True])
def test_an_address_of_a_rank_that_does_not_exist_is_wrong_where_it_is_used(is_used: bool) -> None:
    text = _STRAY.replace("add.u32 %r2, %r2, 150994944;", "mapa.shared::cluster.u32 %r2, %r2, 8;")
    text = text.replace("ld.u32 %r1, [%d2];", "")
    if not is_used:
        text = text.replace("ld.shared::cluster.u32 %r3, [%r2];", "mov.u32 %r3, %r2;")
    report = Program.from_text(text)["stray"].launch(2, 1, [torch.zeros(1)], cluster=2, checks=True)
    assert any("out-of-bounds" in one.kind for one in report.findings) == is_used


def test_a_tensor_map_leads_to_its_tensor_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.ptx.buffers.lookup", lambda addresses: pytest.fail("a search"))
    a, b, out = torch.ones(64, 64).half(), torch.ones(8, 64).half(), torch.zeros(64, 8)
    maps = [TensorMap.of(a, (64, 64), swizzle=128), TensorMap.of(b, (8, 64), swizzle=128)]
    report = program()["pipeline"].launch(1, 160, [*maps, out, 1], statistics=True)
    assert out.unique().tolist() == [64]
    assert {buffer.name for buffer in report.buffers if buffer.read_moved} == {"argument 0", "argument 1"}
    found = stored([*maps, out, 1])
    assert len(found) == 2
    assert found[0] is a
    assert found[1] is b
    assert stored([maps[0], a]) == []


_NEIGHBOURS = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry neighbours(.param .u64 out, .param .u64 x)
{
.reg .pred %p<4>; .reg .b16 %h1; .reg .b32 %r<20>; .reg .b64 %d<10>;
.shared .align 16 .b8 sent[16]; .shared .align 16 .b8 shared_by_both[16]; .shared .align 8 .b64 bar;
ld.param.u64 %d1, [out]; ld.param.u64 %d2, [x];
mov.u32 %r1, %cluster_ctarank; xor.b32 %r2, %r1, 1; mov.u32 %r3, sent; mov.u32 %r4, bar; mov.u32 %r5, shared_by_both;
mbarrier.init.shared::cta.b64 [bar], 1;
st.shared.u32 [sent+8], 5;
fence.mbarrier_init.release.cluster;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 28;
mapa.shared::cluster.u32 %r6, %r3, %r2; mapa.shared::cluster.u32 %r7, %r4, %r2; getctarank.shared::cluster.u32 %r8, %r6;
add.u32 %r9, %r1, 10; add.u32 %r10, %r1, 20;
st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 [%r6], {%r9, %r10}, [%r7];
red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r6+8], 7, [%r7];
setp.eq.u32 %p1, %r1, 0; mov.b16 %h1, 3;
@!%p1 bra AGAIN;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r5], [%d2], 16, [%r4], %h1;
AGAIN: mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0;
@!%p2 bra AGAIN;
ld.shared.v2.u32 {%r11, %r12}, [sent]; ld.shared.u32 %r13, [shared_by_both+4];
ld.shared.u32 %r15, [sent+8]; mad.lo.u32 %r8, %r8, 100, %r15;
mov.u32 %r14, %ctaid.x; mul.wide.u32 %d3, %r14, 16; add.u64 %d4, %d1, %d3;
st.global.v4.u32 [%d4], {%r11, %r12, %r8, %r13};
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
ret;
}
"""


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_stores_reductions_and_multicasts_to_the_other_block(order: dict[str, bool]) -> None:
    x, out = torch.arange(4, dtype=torch.int32), torch.zeros(4, 4, dtype=torch.int32)
    report = Program.from_text(_NEIGHBOURS)["neighbours"].launch(4, 1, [out, x], cluster=2, checks=True, **order)
    assert report.findings == []
    assert out.tolist() == [[11, 21, 112, 1], [10, 20, 12, 1]] * 2


def test_atomics_on_vectors() -> None:
    body = "ld.param.u64 %d1, [x]; mov.b32 %r1, 0f3F800000; mov.b32 %r2, 0f40000000;"
    body += "red.global.add.v2.f32 [%d1], {%r1, %r2}; atom.global.add.v2.f32 {%r3, %r4}, [%d1+8], {%r2, %r1};"
    body += "st.global.v2.b32 [%d1+16], {%r3, %r4};"
    x = torch.tensor([5.0, 6.0, 7.0, 8.0, 0.0, 0.0])
    Program.from_text(module("sums", ".param .u64 x", body))["sums"].launch(1, 1, [x])
    assert x.tolist() == [6.0, 8.0, 9.0, 9.0, 7.0, 8.0]
