"""Loads that reach nothing in the surplus warps of a block: what counts as one, and that it races with nothing."""

from __future__ import annotations

import numpy as np
import pytest

from workbench import ptx

# Two warps add 1 to 32 numbers; a guard keeps the second one's results. {} is where a test puts something more.
PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 x, .param .u64 y, .param .u32 zero)
{
    .reg .pred %p<5>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<4>;
    .shared .align 4 .b8 tile[128];
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.u32 %r8, [zero];
    mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 31;
    mad.wide.u32 %rd3, %r2, 4, %rd1;
    ld.global.b32 %r3, [%rd3];
    add.s32 %r4, %r3, 1;
    and.b32 %r5, %r1, 32;
    setp.eq.s32 %p1, %r5, 0;
    setp.eq.s32 %p2, %r8, 0;
    MORE
    and.pred %p3, %p1, %p2;
    @GUARD st.global.b32 [%rd3], %r4;
    ret;
}
"""


def findings(more: str = "", guard: str = "%p3", repeats: bool = True) -> set[str]:
    text = PTX.replace("MORE", more).replace("GUARD", guard)
    x, y = np.arange(32, dtype=np.int32), np.zeros(32, np.int32)
    kernel = ptx.Program.from_text(text).kernels["add"]
    found = kernel.launch(1, 64, [x, y, 0], checks=True, repeats=repeats).findings
    if not found:
        assert x.tolist() == list(range(1, 33))
    return {finding.kind for finding in found}


def test_what_surplus_warps_load_races_with_nothing() -> None:
    assert findings() == set()
    assert findings(repeats=False) == {"global race"}, "only where the compiler is known to do so"


@pytest.mark.parametrize(
    "more",
    [
        "st.global.b32 [%rd2], %r4;",
        "@%p2 st.global.b32 [%rd2], %r4;",
        "st.shared.b32 [tile], %r4;",
        "setp.eq.s32 %p4, %r4, 77;\n    @%p4 bra end;\nend:",
        "@!%p1 st.global.b32 [%rd2], %r4;",
        "shfl.sync.idx.b32 %r6, %r4, 0, 31, -1;\n    @%p2 red.global.add.u32 [%rd2], %r6;",
        "setp.eq.s32 %p1, %r5, 0;",
    ],
    ids=["store", "unknown guard", "shared", "branch", "guard of the others", "shuffle", "guard made twice"],
)
def test_values_that_take_effect_elsewhere_race(more: str) -> None:
    assert "global race" in findings(more)


def test_no_guard_is_no_surplus_warp() -> None:
    assert "global race" in findings(guard="%p2")
