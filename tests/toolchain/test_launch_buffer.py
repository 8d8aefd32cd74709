"""The parameters' places in the buffer of a launch are those of the machine code that ptxas writes."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import pytest

from workbench.errors import ArgumentError
from workbench.toolchain import launch_buffer
from workbench.toolchain.cubin import Cubin
from workbench.toolchain.ptx_text import kernels_of_ptx

KPARAM_INFO, CBANK_PARAM_SIZE = 0x17, 0x19  # attributes of a section .nv.info.*
PTX = """.version 8.7
.target {arch}
.address_size 64
.visible .entry k(.param .u32 x, .param .align {align} .b8 map[128], .param .u64 out, .param .align 16 .b8 pair[16]) {{
  .reg .u64 %r; .reg .u32 %a<3>;
  ld.param.u64 %r, [out]; ld.param.u32 %a1, [map+4]; ld.param.u32 %a2, [pair];
  cvta.to.global.u64 %r, %r; add.u32 %a1, %a1, %a2; st.global.u32 [%r], %a1; ret;
}}
"""


def told(section: bytes) -> tuple[dict[int, int], int]:
    """Return the offset of each parameter and the bytes of all, as the machine code tells the driver."""
    offsets, size, at = {}, 0, 0
    while at < len(section):
        form, attribute, count = struct.unpack_from("<BBH", section, at)
        if attribute == KPARAM_INFO:
            _, ordinal, offset, _ = struct.unpack_from("<IHHI", section, at + 4)
            offsets[ordinal] = offset
        if attribute == CBANK_PARAM_SIZE:
            size = count
        at += 4 + (count if form == 4 else 0)
    return offsets, size


@pytest.mark.parametrize("align", [16, 64, 128])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_places_are_those_of_the_machine_code(arch, align):
    kernel = kernels_of_ptx(PTX.format(arch=arch, align=align)).kernels["k"]
    cubin = Cubin(kernel.cubin)
    expected, size = told(cubin.section(".nv.info.k"))
    sizes = [(4, 4), (128, align), (8, 8), (16, 16)]
    offsets, total = launch_buffer.offsets([SimpleNamespace(size=one, align=at) for one, at in sizes], arch)
    assert (dict(enumerate(offsets)), total) == (expected, size)


@pytest.mark.parametrize("align", [0, 48])
def test_alignments_that_no_compiler_writes_are_refused(align: int):
    with pytest.raises(ArgumentError, match="allowed: a power of two"):
        kernels_of_ptx(PTX.format(arch="sm_80", align=align))
