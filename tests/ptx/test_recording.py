"""One block recorded request by request, and its warps' time at barriers, against values worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ptx_support import module

from workbench import ptx
from workbench.errors import ArgumentError
from workbench.launch import devices
from workbench.ptx import recorder
from workbench.toolchain import compile_cuda, compile_cuda_module

MICRO = Path(__file__).parent / "cuda_micro.cu"


def launch(body: str, warps: int, blocks: int = 1, **options) -> ptx.LaunchReport:
    text = module("timed", ".param .u64 out", "mov.u32 %r1, %tid.x;\nshr.u32 %r2, %r1, 5;\n" + body)
    options.setdefault("record_block", 0)
    return ptx.Program.from_text(text)["timed"].launch(
        blocks, 32 * warps, [np.zeros(1024, np.uint32)], statistics=True, **options
    )


def spans(report: ptx.LaunchReport) -> list[tuple]:
    return [(s.warp, s.kind, s.start, s.end, s.barrier) for s in report.recording.spans]


def waits(report: ptx.LaunchReport) -> dict[str, int]:
    return {line.text: line.barrier_waits for line in report.lines if line.barrier_waits}


# Every body starts at clock 2 (two instructions of `launch`) and ends with a ret. Warp 1 does three additions more.
UNEVEN = """
setp.eq.u32 %p1, %r2, 1;
@!%p1 bra meet;
add.u32 %r3, %r3, 1;
add.u32 %r3, %r3, 1;
add.u32 %r3, %r3, 1;
"""


def test_the_first_to_arrive_waits_for_the_last() -> None:
    report = launch(UNEVEN + "meet: bar.sync 0;", 2)
    # Warp 0 issues 2 + setp, bra, bar = 5; warp 1 three more.
    assert spans(report) == [
        (0, "run", 0, 5, 0), (0, "wait", 5, 8, 0), (0, "run", 8, 9, None),
        (1, "run", 0, 8, 0), (1, "run", 8, 9, None),
    ]  # fmt: skip
    assert waits(report) == {"bar.sync 0": 3}
    assert report.instructions == 6 + 9


def test_clocks_go_on_from_where_the_barrier_let_them_go() -> None:
    report = launch(
        UNEVEN + "meet: bar.sync 0;\n@%p1 bra last;\nadd.u32 %r3, %r3, 1;\nlast: barrier.sync.aligned 1;", 2
    )
    assert spans(report) == [
        (0, "run", 0, 5, 0), (0, "wait", 5, 8, 0), (0, "run", 8, 11, 1), (0, "run", 11, 12, None),
        (1, "run", 0, 8, 0), (1, "run", 8, 10, 1), (1, "wait", 10, 11, 1), (1, "run", 11, 12, None),
    ]  # fmt: skip
    assert waits(report) == {"bar.sync 0": 3, "barrier.sync.aligned 1": 1}


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_waits_of_all_blocks(threads: int) -> None:
    report = launch(UNEVEN + "meet: bar.sync 0;", 4, blocks=7, threads=threads, record_block=None)
    assert waits(report) == {"bar.sync 0": 7 * 3 * 3}
    assert report.recording is None
    assert report.barrier_waits == 63


def test_a_warp_that_exits_lets_the_others_go() -> None:
    report = launch(UNEVEN + "ret;\nmeet: bar.sync 0;", 2)
    assert spans(report) == [
        (0, "run", 0, 5, 0), (0, "wait", 5, 8, 0), (0, "run", 8, 9, None), (1, "run", 0, 8, None),
    ]  # fmt: skip
    assert waits(report) == {"bar.sync 0": 3}


def test_barriers_with_thread_counts_do_not_wait_for_others() -> None:
    # Warps 0 and 1 meet at barrier 2, warps 2 and 3 at barrier 3; only warp 1 is late.
    report = launch(UNEVEN + "meet: shr.u32 %r4, %r2, 1;\nadd.u32 %r4, %r4, 2;\nbar.sync %r4, 64;", 4)
    assert [span for span in spans(report) if span[1] == "wait"] == [(0, "wait", 7, 10, 2)]
    assert [span[4] for span in spans(report) if span[4] is not None] == [2, 2, 2, 3, 3]
    assert waits(report) == {"bar.sync %r4, 64": 3}


def test_who_only_arrives_does_not_wait_and_is_not_waited_for_afterwards() -> None:
    body = """
setp.eq.u32 %p1, %r2, 0;
@%p1 bra take;
add.u32 %r3, %r3, 1;
bar.arrive 3, 64;
add.u32 %r3, %r3, 1;
add.u32 %r3, %r3, 1;
ret;
take: bar.sync 3, 64;
"""
    report = launch(body, 2)
    # Warp 1 arrives with its 6th instruction; warp 0 is there with its 5th.
    assert spans(report) == [
        (0, "run", 0, 5, 3), (0, "wait", 5, 6, 3), (0, "run", 6, 7, None), (1, "run", 0, 9, None),
    ]  # fmt: skip
    assert waits(report) == {"bar.sync 3, 64": 1}


def test_a_reducing_barrier_waits_too() -> None:
    report = launch(UNEVEN + "meet: bar.red.popc.u32 %r5, 0, %p1;", 3)
    assert waits(report) == {"bar.red.popc.u32 %r5, 0, %p1": 6}


def test_within_a_warp_nobody_waits() -> None:
    # Lanes 8 and up arrive later, at the warp's barrier and at the block's, but the warp itself is busy.
    body = """
setp.lt.u32 %p1, %r1, 8;
@%p1 bra meet;
add.u32 %r3, %r3, 1;
meet: bar.warp.sync 0xffffffff;
@%p1 bar.sync 0;
@!%p1 add.u32 %r3, %r3, 1;
@!%p1 bar.sync 0;
"""
    report = launch(body, 1)
    assert waits(report) == {}
    assert spans(report)[0][1:3] == ("run", 0)
    assert all(kind == "run" for _, kind, *_ in spans(report))
    assert spans(report)[-1][3] == report.instructions


def test_the_chosen_block_alone() -> None:
    body = """
mov.u32 %r3, %ctaid.x;
ld.param.u64 %d1, [out];
mad.lo.u32 %r4, %r3, 32, %r1;
mul.wide.u32 %d2, %r4, 4;
add.u64 %d1, %d1, %d2;
setp.lt.u32 %p1, %r1, 30;
@%p1 ld.global.u32 %r5, [%d1];
atom.global.add.u32 %r5, [%d1+128], 1;
"""
    report = launch(body, 1, blocks=5, record_block=(3,), threads=2)
    record = report.recording
    assert (record.block, record.warps, record.truncated) == ((3, 0, 0), 1, False)
    load, atomic = record.requests
    base = load.addresses[0] - 3 * 128
    assert load.addresses == (*(base + 384 + 4 * lane for lane in range(30)), None, None)
    assert (load.order, load.warp, load.space, load.is_load, load.is_store) == (0, 0, "global", True, False)
    assert (load.bytes_per_lane, load.buffer, load.sectors, load.wavefronts) == (4, "argument 0", 4, 0)
    assert load.text == "@%p1 ld.global.u32 %r5, [%d1]"
    assert report.lines[0].ptx_line < load.ptx_line < atomic.ptx_line
    assert (atomic.order, atomic.is_load, atomic.is_store) == (1, True, True)
    assert atomic.addresses == tuple(base + 512 + 4 * lane for lane in range(32))
    # The recording costs the others nothing and changes no count.
    plain = launch(body, 1, blocks=5, record_block=None)
    assert plain.lines == report.lines


@pytest.fixture(scope="module")
def micro() -> ptx.Program:
    return ptx.Program.from_text(next(iter(compile_cuda_module(MICRO, arch="sm_80").kernels.values())).ptx)


def test_banks_of_shared_requests(micro: ptx.Program) -> None:
    arrays = [np.zeros(32, np.float32), np.arange(1024, dtype=np.float32)]
    report = micro["shared_banks"].launch(1, 32, arrays, statistics=True, record_block=(0, 0, 0))
    source = MICRO.read_text().splitlines()
    lines = {request.source_line: request for request in report.recording.requests if request.space == "shared"}
    expected = {  # byte offset between lanes, bytes, wavefronts, ideal
        "column": (128, 4, 32, 1), "padded column": (132, 4, 1, 1), "stride two": (8, 4, 2, 1),
        "float4": (16, 16, 4, 4), "broadcast": (0, 4, 1, 1),
    }  # fmt: skip
    for what, (step, width, wavefronts, ideal) in expected.items():
        request = lines[1 + next(i for i, text in enumerate(source) if text.endswith(f"// {what}"))]
        first = request.addresses[0]
        assert request.addresses == tuple(first + step * lane for lane in range(32)), what
        costs = (request.bytes_per_lane, request.wavefronts, request.ideal_wavefronts)
        assert costs == (width, wavefronts, ideal), what
        assert (request.sectors, request.buffer, request.is_load) == (0, None, True)
        assert Path(request.kernel_source).name == "cuda_micro.cu"
    requests = report.recording.requests
    assert [request.order for request in requests] == list(range(len(requests)))
    facts = {line.pc: line for line in report.lines}
    assert len(requests) == sum(line.requests for line in report.lines)
    assert {request.pc for request in requests} == {pc for pc, line in facts.items() if line.requests}
    assert sum(request.sectors for request in requests) == report.global_load_sectors + report.global_store_sectors


def test_a_copy_is_a_global_load_and_a_shared_store() -> None:
    body = """
.shared .align 16 .b8 tile[512];
ld.param.u64 %d1, [out];
mul.wide.u32 %d2, %r1, 16;
add.u64 %d1, %d1, %d2;
mov.u32 %r3, tile;
mad.lo.u32 %r3, %r1, 16, %r3;
cp.async.cg.shared.global [%r3], [%d1], 16;
cp.async.wait_all;
"""
    load, store = launch(body, 1).recording.requests
    assert (load.space, load.is_load, load.is_store, load.sectors) == ("global", True, False, 16)
    assert (store.space, store.is_load, store.is_store, store.wavefronts) == ("shared", False, True, 4)
    assert store.addresses == tuple(range(0, 512, 16))
    assert load.pc == store.pc


def test_a_long_block_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch, micro: ptx.Program) -> None:
    monkeypatch.setattr(recorder, "MAX_REQUESTS", 10)
    arrays = [np.zeros(32, np.float32), np.arange(1024, dtype=np.float32)]
    record = micro["shared_banks"].launch(1, 32, arrays, record_block=0).recording
    assert record.truncated
    assert len(record.requests) == 10


@pytest.mark.parametrize("block", [(5,), (0, 1), (0, 0, -1), (0, 0, 0, 0), ("x",)])
def test_a_block_outside_the_grid(micro: ptx.Program, block: tuple) -> None:
    arrays = [np.zeros(32, np.float32), np.arange(1024, dtype=np.float32)]
    with pytest.raises(ArgumentError, match="record_block"):
        micro["coalesced"].launch(5, 32, arrays, record_block=block)


def test_through_the_device() -> None:
    kernel = compile_cuda(MICRO, "coalesced", arch="sm_80")
    arrays = [np.zeros(64, np.float32), np.arange(64, dtype=np.float32)]
    report = devices.get("sim").launch(kernel, 2, 32, arrays, record_block=(1, 0, 0))
    load, store = report.recording.requests
    assert (load.buffer, store.buffer) == ("argument 1", "argument 0")
    assert (load.source_line, load.kernel_line) == (2, 2)
