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
    .local .align 4 .b8 kept[4];
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
        "setp.eq.s32 %p4, %r4, 77;\n    @%p4 bra end;\n    st.global.b32 [%rd2], 1;\nend:",
        "setp.eq.s32 %p4, %r4, 77;\n    @%p4 bra end;\n    mov.b32 %r6, 1;\nend:\n    @%p2 st.global.b32 [%rd2], %r6;",
        "setp.eq.s32 %p4, %r4, 77;\n    @%p4 bar.sync 0;",
        "mov.b32 %r6, 0;\nagain:\n    add.s32 %r6, %r6, 1;\n    setp.lt.s32 %p4, %r6, %r4;\n    @%p4 bra again;\n"
        "    @%p2 st.global.b32 [%rd2], %r6;",
        "st.local.b32 [kept], %r4;\n    ld.local.b32 %r6, [kept];\n    @%p2 st.global.b32 [%rd2], %r6;",
        "add.cc.s32 %r6, %r4, 1;\n    addc.s32 %r7, 0, 0;\n    @%p2 st.global.b32 [%rd2], %r7;",
        "@!%p1 st.global.b32 [%rd2], %r4;",
        "shfl.sync.idx.b32 %r6, %r4, 0, 31, -1;\n    @%p2 red.global.add.u32 [%rd2], %r6;",
        "shfl.sync.bfly.b32 %r6, %r4, 16, 31, -1;\n    @%p2 st.global.b32 [%rd2], %r6;",
        "setp.eq.s32 %p1, %r5, 0;",
    ],
    ids=[
        "store",
        "unknown guard",
        "shared",
        "branch around a store",
        "branch around a value",
        "branch to a barrier",
        "loop",
        "local memory",
        "carry",
        "guard of the others",
        "shuffle",
        "butterfly",
        "guard made twice",
    ],
)
def test_values_that_take_effect_elsewhere_race(more: str) -> None:
    assert "global race" in findings(more)


@pytest.mark.parametrize(
    "more",
    [
        "setp.eq.s32 %p4, %r4, 77;\n    @%p4 bra end;\nend:",
        "setp.eq.s32 %p4, %r4, 77;\n    @%p4 bra end;\n    mov.b32 %r6, 1;\nend:",
        "setp.eq.s32 %p4, %r4, -1;\n    @!%p4 bra end;\n    @%p1 st.global.b32 [%rd2], 1;\nend:",
        "mov.b32 %r6, 0;\nagain:\n    add.s32 %r6, %r6, 1;\n    setp.lt.s32 %p4, %r6, %r4;\n    @%p4 bra again;",
        "st.local.b32 [kept], %r4;\n    ld.local.b32 %r6, [kept];",
        "setp.eq.s32 %p4, %r4, -1;\n    @%p4 ret;",
        "shfl.sync.bfly.b32 %r6, %r4, 16, 31, -1;\n    @%p1 red.global.add.u32 [%rd2], %r6;",
    ],
    ids=["empty branch", "branch around a value", "branch around stores", "loop", "local memory", "exit", "shuffle"],
)
def test_values_that_end_in_surplus_warps_race_with_nothing(more: str) -> None:
    assert findings(more) == set()


# Eight numbers for 32 lanes: each group of eight adds up its own, and a guard keeps the results of all but the first.
ROW = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 x)
{
    .reg .pred %p<5>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 7;
    mad.wide.u32 %rd3, %r2, 4, %rd1;
    ld.global.b32 %r3, [%rd3];
    SHUFFLE
    setp.lt.u32 %p1, %r1, 8;
    @%p1 st.global.b32 [%rd3], %r4;
    ret;
}
"""


@pytest.mark.parametrize(
    ("shuffle", "clean"),
    [
        ("shfl.sync.bfly.b32 %r4, %r3, 4, 31, -1;", True),
        ("shfl.sync.bfly.b32 %r4, %r3, 12, 31, -1;", False),
        ("shfl.sync.up.b32 %r4, %r3, 4, 0, -1;", False),
        ("shfl.sync.down.b32 %r4, %r3, 4, 31, -1;", False),
        ("shfl.sync.idx.b32 %r4, %r3, 3, 31, -1;", False),
    ],
)
def test_a_shuffle_takes_values_to_the_lanes_that_read_them(shuffle: str, clean: bool) -> None:
    x = np.arange(256, dtype=np.int32)
    kernel = ptx.Program.from_text(ROW.replace("SHUFFLE", shuffle)).kernels["add"]
    found = kernel.launch(1, 32, [x], checks=True, repeats=True).findings
    assert {finding.kind for finding in found} == (set() if clean else {"global race"})


def test_no_guard_is_no_surplus_warp() -> None:
    assert "global race" in findings(guard="%p2")
