"""clusterlaunchcontrol: each block of the grid is done once, by itself or by one that took it over."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_support import module

from workbench import ptx
from workbench.errors import KernelFault

HEADER = ".version 8.6\n.target sm_100a\n.address_size 64\n"
MEET = "barrier.cluster.arrive; barrier.cluster.wait;"
WAIT = "WAIT: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p1, [%r9], %r7; @!%p1 bra WAIT;"


def kernel(cluster: int = 1, *, wide: bool = False, wait: str = WAIT, offset: int = 0) -> str:
    """A block of one thread adds 1 at its own index and at those it takes over, and to the count of blocks that began.

    The first block of a cluster asks for all of them. ``wide``: by generic addresses. ``wait``: for the answer.
    ``offset``: of the answer, which has 16 bytes.
    """
    space, where = ("", f"[%d4+{offset}], [%d5]") if wide else (".shared::cta", f"[%r8+{offset}], [%r9]")
    everywhere, meet = (".multicast::cluster::all", MEET) if cluster > 1 else ("", "")
    return f"""{HEADER}.visible .entry steal(.param .u64 out, .param .u64 begun)
{{
.reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %d<10>; .reg .b128 %q;
.shared .align 16 .b8 answer[32]; .shared .align 8 .b64 bar;
ld.param.u64 %d0, [out]; ld.param.u64 %d1, [begun]; mov.u32 %r8, answer; mov.u32 %r9, bar;
cvt.u64.u32 %d4, %r8; cvta.shared.u64 %d4, %d4; cvt.u64.u32 %d5, %r9; cvta.shared.u64 %d5, %d5;
mbarrier.init.shared::cta.b64 [%r9], 1; fence.mbarrier_init.release.cluster;
mov.u32 %r7, 0; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %ctaid.z; red.global.add.u32 [%d1], 1;
mov.u32 %r14, %cluster_ctarank; setp.eq.u32 %p2, %r14, 0;
AGAIN:
mov.u32 %r4, %nctaid.x; mov.u32 %r5, %nctaid.y; mad.lo.u32 %r6, %r3, %r5, %r2; mad.lo.u32 %r6, %r6, %r4, %r1;
mul.wide.u32 %d2, %r6, 4; add.u64 %d3, %d0, %d2; red.global.add.u32 [%d3], 1;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r9], 16; {meet}
@%p2 clusterlaunchcontrol.try_cancel.async{space}.mbarrier::complete_tx::bytes{everywhere}.b128 {where};
{wait}
xor.b32 %r7, %r7, 1; ld.shared.b128 %q, [%r8];
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, %q; @!%p1 bra END;
clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {{%r1, %r2, _, _}}, %q;
clusterlaunchcontrol.query_cancel.get_first_ctaid::z.b32.b128 %r3, %q; add.u32 %r1, %r1, %r14;
fence.proxy.async.shared::cta;
bra AGAIN;
END:
ret;
}}
"""


@pytest.mark.parametrize("options", [{}, {"checks": True}, {"threads": 1}], ids=str)
@pytest.mark.parametrize(("cluster", "wide"), [(1, False), (1, True), (2, False)])
def test_every_block_is_done_once(cluster: int, wide: bool, options: dict) -> None:
    out, begun = np.zeros(60, np.uint32), np.zeros(1, np.uint32)
    made = ptx.Program(kernel(cluster, wide=wide))["steal"]
    report = made.launch((6, 5, 2), 1, [out, begun], cluster=cluster, **options)
    assert (out == 1).all()
    assert 0 < begun[0] < 60
    assert not report.has_checks or not report.findings


def test_an_answer_that_nobody_waits_for() -> None:
    out, begun = np.zeros(8, np.uint32), np.zeros(1, np.uint32)
    too_early = "ld.shared.b128 %q, [%r8]; bra END;"
    report = ptx.Program(kernel(wait=too_early))["steal"].launch(8, 1, [out, begun], checks=True)
    assert [finding.kind for finding in report.findings] == ["cp.async data read before wait"]


def test_an_answer_at_a_wrong_place() -> None:
    out, begun = np.zeros(8, np.uint32), np.zeros(1, np.uint32)
    with pytest.raises(KernelFault, match="a multiple of 16 belongs"):
        ptx.Program(kernel(offset=8))["steal"].launch(8, 1, [out, begun])


@pytest.mark.parametrize("blocks", [1, 2])
def test_a_block_knows_whether_its_cluster_was_asked_for(blocks: int) -> None:
    body = "mov.pred %p1, %is_explicit_cluster; selp.u32 %r1, 5, 3, %p1;"
    body += "ld.param.u64 %d1, [out]; st.global.u32 [%d1], %r1;"
    out = np.zeros(1, np.uint32)
    text = module("asks", ".param .u64 out", body).replace("sm_80", "sm_90")
    ptx.Program(text)["asks"].launch(blocks, 1, [out], cluster=blocks)
    assert out.tolist() == [5 if blocks > 1 else 3]
