"""mbarrier: against a model of it, between warps and within one, with copies that arrive, and misused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ptx_mbarrier_cases import Step, expected, random_steps, text
from ptx_support import module

from workbench import ptx
from workbench.errors import KernelFault, UnsupportedInstructionError
from workbench.toolchain import compile_cuda

SOURCE = Path(__file__).parent / "cuda_mbarrier.cu"
TWO = "mbarrier.init.shared.b64 [bar], 2;"
DATA = np.random.default_rng(4).normal(size=32 * 16).astype(np.float32)


def kernel(name: str, **macros: int) -> ptx.PtxKernel:
    return ptx.Program(compile_cuda(SOURCE, name, arch="sm_80", macros=macros).ptx)[name]


@pytest.mark.parametrize("seed", range(40))
def test_random_steps(seed: int) -> None:
    count, steps = random_steps(seed)
    out = np.zeros(len(steps), np.uint32)
    report = ptx.Program(text(count, steps))["steps"].launch(1, 1, [out], checks=True)
    assert out.tolist() == expected(count, steps)
    assert not report.findings


@pytest.mark.parametrize("checks", [False, True])
def test_ring(checks: bool) -> None:
    out = np.zeros(64, np.float32)
    report = kernel("ring").launch(1, 96, [DATA, out, 16], checks=checks)
    total = DATA.reshape(16, 32).sum(0)[::-1]
    np.testing.assert_allclose(out, np.concatenate([total, 2 * total]), rtol=1e-5, atol=1e-5)
    assert not checks or report.findings == []
    assert report.instructions < 10_000  # who waits does not use up its turn


@pytest.mark.parametrize(("left_out", "steps"), [("WAIT_FULL", 2), ("SYNC_AFTER_INIT", 16)])
def test_a_wait_or_barrier_left_out_is_found(left_out: str, steps: int) -> None:
    report = kernel("ring", **{left_out: 0}).launch(1, 96, [DATA, np.zeros(64, np.float32), steps], checks=True)
    kinds = {finding.kind for finding in report.findings}
    assert kinds & {"shared race", "uninitialised shared read", "mbarrier misuse"}, report


def test_a_producer_that_does_not_wait_leaves_its_consumers_behind() -> None:
    """Two phases further on the parity is what it was: they wait for ever, as on a GPU."""
    with pytest.raises(KernelFault, match="deadlock"):
        kernel("ring", WAIT_EMPTY=0).launch(1, 96, [DATA, np.zeros(64, np.float32), 3], checks=True)


@pytest.mark.parametrize("noinc", [False, True])
def test_copies_arrive(noinc: bool) -> None:
    macros = {"NOINC": 1} if noinc else {}
    out = np.zeros(32, np.float32)
    report = kernel("copies", **macros).launch(1, 64, [DATA, out], checks=True)
    assert report.findings == []
    assert (out == DATA[96:128][::-1]).all()
    report = kernel("copies", WAIT_FULL=0, **macros).launch(1, 64, [DATA, out], checks=True)
    assert {finding.kind for finding in report.findings} == {"cp.async data read before wait"}
    assert np.isnan(out).all()  # nothing had landed: shared memory starts as NaN


def test_lanes_of_one_warp_wait_for_each_other() -> None:
    out = np.zeros(16, np.int32)
    report = kernel("halves").launch(1, 32, [out], checks=True)
    assert (out == 7).all()
    assert report.findings == []


@pytest.mark.parametrize("checks", [False, True])
def test_waiting_for_ever_is_a_deadlock(checks: bool) -> None:
    with pytest.raises(
        KernelFault,
        match=r"deadlock: the mbarrier barrier at offset 0 \(parity 0\) waits for 1 of 65 arrivals at .*\.cu:\d+",
    ):
        kernel("nobody_comes").launch(1, 64, [np.zeros(64, np.int32)], checks=checks)


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ("mbarrier.arrive.shared.b64 %d1, [bar];", "no mbarrier was initialised here"),
        ("mbarrier.test_wait.shared.b64 %p1, [bar], 0;", "no mbarrier was initialised here"),
        ("mbarrier.inval.shared.b64 [bar];", "no mbarrier to invalidate"),
        ("cp.async.mbarrier.arrive.shared.b64 [bar];", "no mbarrier was initialised here"),
        ("mbarrier.init.shared.b64 [bar], 0;", "a count outside"),
        (f"{TWO} mbarrier.arrive.shared.b64 %d1, [bar], 3;", "more arrivals than the phase"),
        (f"{TWO} mbarrier.arrive.shared.b64 %d1, [bar], 0;", "counts nothing"),
        (f"{TWO} mbarrier.arrive.noComplete.shared.b64 %d1, [bar], 2;", "completes the phase"),
        (f"{TWO} mbarrier.inval.shared.b64 [bar]; mbarrier.arrive.shared.b64 %d1, [bar];", "no mb"),
    ],
)  # fmt: skip
def test_misuse(steps: str, problem: str) -> None:
    program = ptx.Program(module("wrong", "", f".shared .align 8 .b64 bar; {steps}"))
    with pytest.raises(KernelFault, match=f"mbarrier misuse: .*{problem}"):
        program["wrong"].launch(1, 1, [])
    found = program["wrong"].launch(1, 1, [], checks=True).findings
    assert "mbarrier misuse" in {finding.kind for finding in found}


def test_addresses_and_spellings() -> None:
    """Generic addresses, offsets, scopes, the sink, and a time to sleep."""
    body = """.shared .align 8 .b64 bars[2]; ld.param.u64 %d60, [out]; mov.u64 %d1, bars; cvta.shared.u64 %d1, %d1;
    mbarrier.init.b64 [%d1+8], 2; mbarrier.arrive.release.cta.shared::cta.b64 _, [bars+8];
    mbarrier.arrive.release.cluster.b64 %d2, [%d1+8];
    mbarrier.try_wait.acquire.cta.shared::cta.b64 %p1, [bars+8], %d2, 1000; selp.u32 %r1, 1, 0, %p1;
    mbarrier.test_wait.relaxed.cta.b64 %p2, [%d1+8], %d2; selp.u32 %r2, 2, 0, %p2; add.u32 %r1, %r1, %r2;
    st.global.u32 [%d60], %r1;"""
    out = np.zeros(1, np.uint32)
    ptx.Program(module("spelled", ".param .u64 out", body))["spelled"].launch(1, 1, [out])
    assert out[0] == 3


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("mbarrier.arrive.expect_tx.shared.b64 %d1, [%r1];", "1 operands"),
        ("mbarrier.arrive.shared.b32 %r2, [%r1];", "does not support this mbarrier"),
    ],
)
def test_refusals(statement: str, reason: str) -> None:
    with pytest.raises(UnsupportedInstructionError, match=reason):
        ptx.Program(module("no", "", statement))["no"]


def test_the_model_itself() -> None:
    assert expected(2, [Step("arrive"), Step("test_wait", 0), Step("arrive"), Step("test_wait", 0)]) == [2, 0, 1, 1]
