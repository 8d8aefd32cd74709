"""Random accesses of warps and blocks: what the checks report against a model that knows every pair of accesses.

Nothing is accused that does not race, and no launch with a race goes without a finding.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass

import numpy as np
import pytest
from ptx_support import module

from workbench import ptx

WARPS, AREA = 3, 1024
TYPES = {2: "u16", 4: "u32", 8: "v2.u32", 16: "v4.u32"}
REGISTERS = {2: "%h1", 4: "%r9", 8: "{%r9,%r9}", 16: "{%r9,%r9,%r9,%r9}"}


@dataclass(frozen=True)
class Access:
    """One instruction, executed by one warp of one block.

    Lane i touches ``width`` bytes at offset + (i' ^ flip) * stride, i' being i with its bits turned left by ``turn``.
    Lanes of a warp are ordered between its ``step``s.
    """

    block: int
    warp: int
    phase: int
    is_write: bool
    width: int
    offset: int
    stride: int
    step: int = 0
    flip: int = 0
    turn: int = 0

    def place(self, lane: int) -> int:
        return ((lane << self.turn | lane >> (5 - self.turn)) & 31) ^ self.flip

    @functools.cached_property
    def bytes(self) -> set[int]:
        return {at for at, _ in self.touched}

    @functools.cached_property
    def touched(self) -> set[tuple[int, int]]:
        """(byte, lane)"""
        return {
            (self.offset + self.place(lane) * self.stride + i, lane) for lane in range(32) for i in range(self.width)
        }  # fmt: skip

    def races(self, other: Access) -> bool:
        if not (self.is_write or other.is_write) or not self.bytes & other.bytes:
            return False
        if self.block == other.block and self.warp == other.warp:
            if self.step != other.step:
                return False
            lanes: dict[int, set[int]] = {}
            for at, lane in self.touched | other.touched:
                lanes.setdefault(at, set()).add(lane)
            return any(len(lanes[at]) > 1 for at in self.bytes & other.bytes)
        return self.block != other.block or self.phase == other.phase


def program(seed: int, blocks: int, writes: float, synced: float = 1.0, lines: float = 0.0) -> list[Access | None]:
    """A sequence of accesses; None is a barrier. ``synced`` of them begin with a bar.warp.sync.

    ``lines`` of them go to whole lines of 128 bytes.
    """
    draw = random.Random(seed)
    steps: list[Access | None] = []
    phase = step = 0
    for _ in range(draw.randint(4, 26)):
        if draw.random() < 0.2:
            steps.append(None)
            phase, step = phase + 1, step + 1
            continue
        width = draw.choice([2, 4, 4, 8, 16, 16])
        stride = width * draw.choice([1, 1, 1, 2, 0 if draw.random() < 0.5 else 1])
        is_write = draw.random() < writes
        stride = stride or (width if is_write else 0)
        offset = draw.randrange(0, AREA - 31 * stride - width + 1, width)
        step += draw.random() < synced
        flip = draw.choice([0, 0, 1, 5, 31]) if synced < 1 else 0
        turn = draw.choice([0, 1, 2, 3]) if lines and synced < 1 else 0
        if lines and draw.random() < lines:
            width, flip, turn = max(width, 4), 0, 0
            stride = width
            offset = draw.randrange(0, AREA - 32 * width + 1, 128)
        block, warp = draw.randrange(blocks), draw.randrange(WARPS)
        steps.append(Access(block, warp, phase, is_write, width, offset, stride, step, flip, turn))
    return steps


def ptx_of(steps: list[Access | None], space: str) -> tuple[str, dict[int, Access]]:
    """The kernel, and which access stands on which of its PTX lines. Every store stores bytes that no other does."""
    lines = [
        f".shared .align 16 .b8 tile[{AREA}];", "ld.param.u64 %d1, [data];", "mov.u32 %r1, %tid.x;",
        "and.b32 %r2, %r1, 31;", "shr.u32 %r3, %r1, 5;", "mov.u32 %r4, %ctaid.x;",
        f"mad.lo.u32 %r5, %r4, {WARPS}, %r3;", "mov.u32 %r6, tile;",
    ]  # fmt: skip
    if space == "shared":  # else the first read of each byte is reported as uninitialised
        lines += [
            f"setp.lt.u32 %p1, %r1, {AREA // 16};", "mad.lo.u32 %r7, %r1, 16, %r6;",
            "@%p1 st.shared.v4.u32 [%r7], {%r1,%r1,%r1,%r1};", "bar.sync 0;",
        ]  # fmt: skip
    at: dict[int, Access] = {}
    latest = -1
    for i, step in enumerate(steps):
        if step is None:
            lines.append("bar.sync 0;")
            latest += 1
            continue
        lines += ["bar.warp.sync 0xffffffff;"] if step.step != latest else []
        latest = step.step
        lines += [
            f"shl.b32 %r10, %r2, {step.turn};", f"shr.u32 %r11, %r2, {5 - step.turn};", "or.b32 %r10, %r10, %r11;",
            "and.b32 %r10, %r10, 31;", f"xor.b32 %r10, %r10, {step.flip};",
            f"mad.lo.u32 %r7, %r10, {step.stride}, {step.offset};",
            "cvt.u64.u32 %d2, %r7;", "add.u64 %d2, %d2, %d1;",
            "add.u32 %r7, %r7, %r6;", f"add.u32 %r8, %r2, {32 * i + 1};", "shl.b32 %r9, %r8, 16;",
            "or.b32 %r9, %r9, %r8;", "cvt.u16.u32 %h1, %r9;",
            f"setp.eq.u32 %p1, %r5, {step.block * WARPS + step.warp};",
        ]  # fmt: skip
        address, register = "[%d2]" if space == "global" else "[%r7]", REGISTERS[step.width]
        kind = f"{space}.{TYPES[step.width]}"
        loaded = register.replace("%r9,%r9,%r9,%r9", "%r10,%r11,%r12,%r13").replace("%r9,%r9", "%r10,%r11")
        lines.append(
            f"@%p1 st.{kind} {address}, {register};" if step.is_write else f"@%p1 ld.{kind} {loaded}, {address};"
        )
        at[len(lines)] = step
    text = module("random", ".param .u64 data", "\n".join(lines))
    first = 1 + text.split("\n").index(lines[0])
    return text, {first + number - 1: step for number, step in at.items()}


@pytest.mark.parametrize(
    ("space", "blocks", "synced", "lines"),
    [
        ("global", 2, 1.0, 0.6), ("global", 3, 1.0, 0.0), ("shared", 1, 1.0, 0.0), ("global", 1, 0.5, 0.0),
        ("global", 1, 1.0, 0.0), ("global", 2, 0.2, 0.0), ("global", 1, 0.3, 0.4), ("shared", 1, 1.0, 0.8),
    ],
)  # fmt: skip
@pytest.mark.parametrize("writes", [0.15, 0.5])
@pytest.mark.sampled(16)
def test_findings_agree_with_the_model(space: str, blocks: int, synced: float, lines: float, writes: float) -> None:
    racing = 0
    for seed in range(120):
        steps = program(seed, blocks, writes, synced, lines)
        text, at = ptx_of(steps, space)
        data = np.zeros(AREA // 4, np.uint32)
        report = ptx.Program(text)["random"].launch(blocks, 32 * WARPS, [data], checks=True)
        found = {(at[f.ptx_line], at[f.other_ptx_line]) for f in report.findings if f.kind == f"{space} race"}
        accesses = list(at.values())
        for one, other in found:
            # Where many lanes share a sector, accesses of a warp are told as one: another one of it stands for them.
            alike = [a for a in accesses if synced < 1 and (a.block, a.warp) == (other.block, other.warp)]
            assert any(map(one.races, [other, *alike])), (seed, one, other)
        expected = any(a.races(b) for i, a in enumerate(accesses) for b in accesses[:i])
        assert bool(found) == expected, (seed, text)
        racing += expected
    assert 20 < racing < 120


@pytest.mark.parametrize("space", ["global", "shared"])
def test_the_last_of_many_accesses_is_caught(space: str) -> None:
    """One access that races with exactly one of those before it, wherever that one lies."""
    for seed in range(60):
        draw = random.Random(seed)
        before = [
            Access(0, draw.randrange(2), 0, draw.random() < 0.5, 4, draw.randrange(0, AREA - 128 + 1, 128), 4)
            for _ in range(6)
        ]
        # Warps 0 and 1 keep to their own halves of the area.
        before = [
            Access(0, a.warp, 0, a.is_write, 4, a.offset // 2 // 128 * 128 + a.warp * AREA // 2, 4) for a in before
        ]
        victim = draw.choice(before)
        width = draw.choice([2, 4])
        last = Access(0, 2, 0, True, width, victim.offset + draw.randrange(0, 128 - 31 * 2 - width + 1, width), 2)
        if width == 4:
            last = Access(0, 2, 0, True, 4, victim.offset, 4)
        text, at = ptx_of([*before, last], space)
        report = ptx.Program(text)["random"].launch(1, 32 * WARPS, [np.zeros(AREA // 4, np.uint32)], checks=True)
        found = {(at[f.ptx_line], at[f.other_ptx_line]) for f in report.findings if f.kind == f"{space} race"}
        assert found, seed
        assert all(last in pair and any(other.races(last) for other in pair) for pair in found), seed
