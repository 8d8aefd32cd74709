"""Kernels whose way through the code depends on values in memory, and kernels that go the same way in any case."""

from __future__ import annotations

import pytest

from workbench.ptx.parse import parse
from workbench.ptx.steering import is_steered

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 k_param_0, .param .u32 k_param_1)
{
    .reg .pred %p<9>; .reg .b32 %r<99>; .reg .f32 %f<99>; .reg .b64 %rd<99>;
    .shared .align 4 .b8 s[1024];
    ld.param.u64 %rd1, [k_param_0];
    ld.param.u32 %r1, [k_param_1];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd2, %r2, 4;
    add.s64 %rd3, %rd1, %rd2;
    setp.lt.u32 %p1, %r2, %r1;
    @!%p1 bra $END;
    ld.global.f32 %f1, [%rd3];
    ld.global.u32 %r3, [%rd3+128];
"""
TAIL = """
$END:
    ret;
}
"""


def _steered(body: str) -> bool:
    return is_steered(parse(HEAD + body + TAIL), "k")


@pytest.mark.parametrize(
    "body",
    [
        "st.global.f32 [%rd3], %f1;",
        "max.f32 %f2, %f1, 0f00000000; ex2.approx.f32 %f3, %f2; st.shared.f32 [s+4], %f3; bar.sync 0;",
        "setp.gt.f32 %p2, %f1, 0f00000000; selp.f32 %f2, %f1, 0f00000000, %p2; st.global.f32 [%rd3], %f2;",
        "mov.b32 %r5, %f1; mov.u32 %r6, 16; shfl.sync.bfly.b32 %r7|%p3, %r5, %r6, 31, -1; st.global.u32 [%rd3], %r7;",
        "@%p1 red.global.add.f32 [%rd3], %f1; membar.gl;",
        "add.s32 %r5, %r2, 1; setp.lt.s32 %p2, %r5, %r1; @%p2 bra $END; barrier.sync 0;",
        "cp.async.ca.shared.global [s], [%rd3], 4; cp.async.wait_all;",
        "add.cc.u32 %r5, %r1, %r2; addc.u32 %r6, %r1, 0; setp.eq.s32 %p2, %r6, 0; @%p2 bra $END;",
    ],
)
def test_values_that_are_only_computed_with_do_not_steer(body):
    assert not _steered(body)


@pytest.mark.parametrize(
    "body",
    [
        "setp.gt.f32 %p2, %f1, 0f00000000; @%p2 bra $END;",
        "setp.gt.f32 %p2, %f1, 0f00000000; @%p2 st.global.f32 [%rd3], %f1;",
        "setp.gt.f32 %p2|%p3, %f1, 0f00000000; @!%p3 exit;",
        "mul.wide.u32 %rd4, %r3, 4; add.s64 %rd5, %rd1, %rd4; ld.global.f32 %f2, [%rd5];",
        "mul.wide.u32 %rd4, %r3, 4; add.s64 %rd5, %rd1, %rd4; st.global.f32 [%rd5], %f1;",
        "mul.wide.u32 %rd4, %r3, 4; add.s64 %rd5, %rd1, %rd4; red.global.add.f32 [%rd5], %f1;",
        "mul.wide.u32 %rd4, %r3, 4; add.s64 %rd5, %rd1, %rd4; cp.async.ca.shared.global [s], [%rd5], 4;",
        "atom.global.add.u32 %r5, [%rd3], 1; setp.eq.u32 %p2, %r5, 0; @%p2 bra $END;",
        "ld.shared.u32 %r5, [s]; setp.eq.u32 %p2, %r5, 0; @%p2 bra $END;",
        "mov.u32 %r5, 1; shfl.sync.idx.b32 %r6|%p3, %r5, %r3, 31, -1; st.global.u32 [%rd3], %r6;",
        "mov.u32 %r5, 1; shfl.sync.idx.b32 %r6, %r5, 0, 31, %r3; st.global.u32 [%rd3], %r6;",
        "mov.u32 %r5, 0; shfl.sync.idx.b32 %r6, %r3, %r5, 31, -1; setp.eq.u32 %p2, %r6, 0; @%p2 bra $END;",
        "setp.eq.u32 %p2, %r3, 0; vote.sync.ballot.b32 %r6, %p2, -1; setp.eq.u32 %p4, %r6, 0; @%p4 bra $END;",
        "bar.sync %r3;",
        "bar.sync 0, %r3;",
        "add.cc.u32 %r5, %r3, %r2; addc.u32 %r6, %r1, 0; setp.eq.s32 %p2, %r6, 0; @%p2 bra $END;",
        "mov.u32 %r5, %clock; setp.eq.u32 %p2, %r5, 0; @%p2 bra $END;",
        "mov.u64 %rd6, %globaltimer; add.s64 %rd7, %rd6, %rd1; ld.global.f32 %f2, [%rd7];",
        "mov.u32 %r7, 0;\n$L:\nadd.s32 %r7, %r7, %r8; mov.u32 %r8, %r3; setp.lt.s32 %p2, %r7, %r1; @%p2 bra $L;",
        "bar.red.popc.u32 %r5, 0, %p1;",  # not known
        "call.uni f, ();",
    ],
)
def test_values_that_decide_what_happens_next_steer(body):
    assert _steered(body)


def test_parameters_are_given():
    assert not _steered("setp.lt.u32 %p2, %r1, 7; @%p2 bra $END; add.s64 %rd4, %rd1, 4; st.global.f32 [%rd4], %f1;")
