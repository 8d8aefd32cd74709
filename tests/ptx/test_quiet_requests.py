"""Requests to shared memory that cannot race are only written down, and no finding differs for it.

Random accesses of a few warps with barriers, flags, copies and products, on a machine that takes the long way for
every request and on one that does not.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from workbench import ptx
from workbench.ptx.machine import core

AREA = 4096
REGISTERS = {4: "%r9", 8: "{%r9,%r9}", 16: "{%r9,%r9,%r9,%r9}"}
LOADED = {4: "%r10", 8: "{%r10,%r11}", 16: "{%r10,%r11,%r12,%r13}"}
TYPES = {4: "b32", 8: "v2.b32", 16: "v4.b32"}
PRODUCT = (
    "wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0,%f1,%f2,%f3}, %d5, %d6, %p2,"
    " 1, 1, 0, 0; wgmma.commit_group.sync.aligned;"
)


def access(draw: random.Random, warps: int, is_store: bool) -> str:
    """A load or store by one warp, of 32 neighbours or of some lanes; few stores change what is there."""
    width, warp = draw.choice([4, 8, 16]), draw.randrange(warps)
    own = draw.random() < 0.3  # in an eighth that is the warp's alone
    span = AREA // 8 if own else AREA
    offset = (warp * span if own else 0) + draw.randrange(0, span - 32 * width + 1, 16)
    value = draw.choice(["%r20", "%r21", "%r2"])
    lanes = draw.choice([32, 32, 32, 8])
    where = f"mad.lo.u32 %r7, %r2, {width}, {offset}; add.u32 %r7, %r7, %r6; setp.lt.u32 %p3, %r2, {lanes};"
    guard = f"setp.eq.and.u32 %p1, %r3, {warp}, %p3; mov.u32 %r9, {value};"
    if is_store:
        return f"{where} {guard} @%p1 st.shared.{TYPES[width]} [%r7], {REGISTERS[width]};"
    return f"{where} {guard} @%p1 ld.shared.{TYPES[width]} {LOADED[width]}, [%r7];"


def step(draw: random.Random, warps: int, kinds: str) -> str:
    """A step of one warp, or of all of them, of a kind that is drawn from ``kinds``."""
    kind, warp = draw.choice(kinds), draw.randrange(warps)
    guard = f"setp.eq.u32 %p1, %r3, {warp};"
    if kind in "ls":
        return access(draw, warps, kind == "s")
    if kind in "bw":
        return {"b": "bar.sync 0;", "w": "bar.warp.sync -1;"}[kind]
    if kind == "n":  # two warps
        return f"{guard} setp.eq.or.u32 %p1, %r3, {(warp + 1) % warps}, %p1; @%p1 bar.sync {warp + 1}, 64;"
    if kind == "f":  # a flag, or a store to it
        at = f"add.u32 %r7, %r6, {AREA + 4 * draw.randrange(2)};"
        fence = "@%p1 membar.cta;" if draw.random() < 0.7 else ""
        use = draw.choice(
            [f"{fence} @%p1 st.volatile.shared.u32 [%r7], %r20;", "@%p1 ld.volatile.shared.u32 %r10, [%r7];"]
        )
        return f"{guard} {at} {use}"
    if kind == "v":  # a strong store to what others store plainly
        at = f"add.u32 %r7, %r6, {draw.randrange(0, AREA, 128)};"
        return f"{guard} setp.eq.and.u32 %p1, %r2, 0, %p1; {at} @%p1 st.relaxed.cta.shared.u32 [%r7], %r20;"
    if kind == "c":
        to = f"mad.lo.u32 %r7, %r2, 16, {draw.randrange(0, AREA - 512 + 1, 128)}; add.u32 %r7, %r7, %r6;"
        return f"{guard} {to} @%p1 cp.async.cg.shared.global [%r7], [%d2], 16; @%p1 cp.async.commit_group;"
    if kind == "t":
        return f"{guard} @%p1 cp.async.wait_group {draw.choice([0, 0, 1])};"
    if kind == "p":
        return (
            "fence.proxy.async.shared::cta;" if draw.random() < 0.7 else f"{guard} @%p1 fence.proxy.async.shared::cta;"
        )
    if kind == "m":
        a, b = draw.randrange(0, 2048, 256), draw.randrange(2048, AREA, 256)
        form = 8 << 16 | 16 << 32
        return f"mov.b64 %d5, {form | a >> 4}; mov.b64 %d6, {form | b >> 4}; {PRODUCT}"
    return f"wgmma.wait_group.sync.aligned {draw.choice([0, 1])};"


def kernel(seed: int, warps: int, kinds: str, times: int) -> str:
    """A kernel that goes through random steps ``times`` times."""
    draw = random.Random(seed)
    kinds = "".join(kind * draw.choice([0, 1, 2, 4]) for kind in kinds) + "ls"
    body = "\n".join(step(draw, warps, kinds) for _ in range(draw.randint(10, 50)))
    fill = "".join(
        f"add.u32 %r7, %r22, {at}; st.shared.v4.b32 [%r7], {{%r20,%r20,%r20,%r20}};\n"
        for at in range(0, AREA + 1 - 512 * warps, 512 * warps)
    )
    return f""".version 8.0
.target sm_90a
.address_size 64
.visible .entry random(.param .u64 data) {{
.reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %d<8>; .reg .f32 %f<4>;
.shared .align 1024 .b8 tile[{AREA + 128}];
ld.param.u64 %d1, [data]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 31; shr.u32 %r3, %r1, 5; mov.u32 %r6, tile;
mul.wide.u32 %d2, %r2, 16; add.u64 %d2, %d2, %d1; mov.u32 %r20, 7; mov.u32 %r21, 9; setp.eq.u32 %p2, %r20, 7;
mad.lo.u32 %r22, %r1, 16, %r6;
{fill if draw.random() < 0.9 else ""}
{"fence.proxy.async.shared::cta;" if "m" in kinds else ""}
bar.sync 0;
mov.u32 %r25, 0;
AGAIN:
{body}
add.u32 %r25, %r25, 1; setp.lt.u32 %p4, %r25, {times}; @%p4 bra AGAIN;
cp.async.wait_all;
{"wgmma.wait_group.sync.aligned 0;" if "m" in kinds else ""}
ret;
}}
"""


def findings(text: str, warps: int, shortcuts: bool, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    make: Callable[[], core.BoundLaunch] = core.BoundLaunch

    def bound() -> core.BoundLaunch:
        made = make()
        made.takes_shortcuts = shortcuts
        return made

    with monkeypatch.context() as patch:
        patch.setattr(core, "BoundLaunch", bound)
        data = np.full(512, 7, np.uint8)
        report = ptx.Program(text)["random"].launch(2, 32 * warps, [data], checks=True, threads=1)
    return list(map(repr, report.findings))


KINDS = {"barriers": (3, "lllsssbwn"), "flags": (3, "lllsssbwnfv"), "copies": (2, "llsbwncct"), "alone": (1, "llswwct"),
         "wgmma": (4, "llsbbpppmmg"), "wgmma, copies": (4, "lbbccttpppmmgn")}  # fmt: skip


@pytest.mark.parametrize(
    ("times", "seeds"),
    [(1, range(13)), (40, range(8))],
)
@pytest.mark.parametrize("name", KINDS)
def test_findings(name: str, times: int, seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    warps, kinds = KINDS[name]
    racing = 0
    for seed in seeds:
        text = kernel(seed, warps, kinds, times)
        usual, slow = (findings(text, warps, shortcuts, monkeypatch) for shortcuts in (True, False))
        assert usual == slow, (seed, text)
        racing += bool(slow)
    assert racing > len(seeds) / 4
