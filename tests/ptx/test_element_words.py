"""Atomics on one and two bytes, which LLVM makes of a compare-and-swap of the word around them."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_support import HEADER

from workbench import ptx

# As Triton compiles tl.atomic_add on bfloat16 for sm_80; here it adds integers.
KERNEL = (
    HEADER
    + """
.visible .entry add(.param .u64 out, .param .u32 at)
{
.reg .b64 %d<5>; .reg .b32 %r<20>; .reg .b16 %h<4>; .reg .pred %p;
ld.param.u64 %d1, [out];
ld.param.u32 %r0, [at];
mad.wide.u32 %d2, %r0, 2, %d1;
ROUND
cvt.u32.u64 %r6, %d2;
and.b32 %r7, %r6, 3;
shl.b32 %r1, %r7, 3;
mov.b32 %r8, 65535;
shl.b32 %r9, %r8, %r1;
not.b32 %r2, %r9;
ld.global.b32 %r15, [%d3];
AGAIN:
shr.u32 %r10, %r15, %r1;
cvt.u16.u32 %h1, %r10;
add.u16 %h2, %h1, 3;
cvt.u32.u16 %r11, %h2;
shl.b32 %r12, %r11, %r1;
and.b32 %r13, %r15, %r2;
or.b32 %r14, %r13, %r12;
atom.acq_rel.gpu.global.cas.b32 %r3, [%d3], %r15, %r14;
setp.ne.b32 %p, %r3, %r15;
mov.b32 %r15, %r3;
@%p bra AGAIN;
ret;
}
"""
)


@pytest.mark.parametrize(("elements", "at"), [(1, 0), (2, 1), (3, 2), (4, 1)])
@pytest.mark.parametrize("checks", [True, False])
def test_the_word_may_reach_past_the_end(elements: int, at: int, checks: bool) -> None:
    around = np.zeros(8, np.uint16)
    values = around[:elements]
    program = ptx.Program(KERNEL.replace("ROUND", "and.b64 %d3, %d2, -4;"))
    report = program["add"].launch(4, 8, [values, at], ptx.LaunchOptions(checks=checks))
    assert not report.findings
    assert values[at] == 3 * 32
    assert around.sum() == 3 * 32


@pytest.mark.parametrize("rounding", ["mov.b64 %d3, %d2;", "and.b64 %d3, %d2, -2;"])
def test_another_word_past_the_end_is_found(rounding: str) -> None:
    values = np.zeros(1, np.uint16)
    report = ptx.Program(KERNEL.replace("ROUND", rounding))["add"].launch(
        1, 1, [values, 0], ptx.LaunchOptions(checks=True)
    )
    assert {finding.kind for finding in report.findings} == {"out-of-bounds"}


def test_a_word_beside_the_memory_is_found() -> None:
    values = np.zeros(2, np.uint16)
    program = ptx.Program(KERNEL.replace("ROUND", "and.b64 %d3, %d2, -4;"))
    report = program["add"].launch(1, 1, [values, 2], ptx.LaunchOptions(checks=True))
    assert {finding.kind for finding in report.findings} == {"out-of-bounds"}
