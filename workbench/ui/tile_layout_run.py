"""A warp that accesses shared memory at given offsets, run in the PTX machine to count its wavefronts."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from workbench.launch.checking import trace_kernel
from workbench.launch.loading import Kernel
from workbench.launch.loading_ptx import load_ptx

_OFF = -1
_SHARED = {1: "u8", 2: "b16", 4: "b32", 8: "b64", 16: "v2.b64"}


def wavefronts_in_the_machine(addresses: Sequence[Sequence[int | None]], width: int, store: bool, size: int) -> int:
    """Return the wavefronts of a warp that accesses ``width`` bytes at each lane's offset, once for each step.

    Args:
        addresses: for each step the byte offset of each lane, None for one that is off.
        width: bytes of an access: 1, 2, 4, 8 or 16.
        store: True for stores.
        size: bytes of the shared memory.
    """
    import torch

    offsets = torch.tensor([[_OFF if one is None else one for one in step] for step in addresses], dtype=torch.int32)
    trace = trace_kernel(_kernel(width, store, size), grid=1, block=32, args=(offsets, len(addresses)))
    return trace.report.counts.shared_wavefronts


@functools.cache
def _kernel(width: int, store: bool, size: int) -> Kernel:
    kind = _SHARED[width]
    register = {1: "%half", 2: "%half", 4: "%word", 8: "%wide"}.get(width, "{%wide, %wider}")
    access = f"st.shared.{kind} [%at], {register}" if store else f"ld.shared.{kind} {register}, [%at]"
    text = f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry accesses(.param .u64 offsets, .param .u32 steps)
{{
    .reg .pred %p, %more;
    .reg .b16 %half;
    .reg .b32 %word, %lane, %left, %at, %tile;
    .reg .b64 %wide, %wider, %place, %byte;
    .shared .align 16 .b8 tile[{size + 16}];
    ld.param.u64 %place, [offsets];
    ld.param.u32 %left, [steps];
    cvta.to.global.u64 %place, %place;
    mov.u32 %lane, %tid.x;
    mul.wide.u32 %byte, %lane, 4;
    add.u64 %place, %place, %byte;
    mov.u32 %tile, tile;
    mov.b16 %half, 0;
    mov.b32 %word, 0;
    mov.b64 %wide, 0;
    mov.b64 %wider, 0;
next:
    ld.global.u32 %at, [%place];
    setp.ne.s32 %p, %at, {_OFF};
    add.u32 %at, %at, %tile;
    @%p {access};
    add.u64 %place, %place, 128;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra next;
    ret;
}}
"""
    return load_ptx(text, device="sim")["accesses"]
