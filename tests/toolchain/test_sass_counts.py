"""Static counts of machine code, by class and by line of the PTX."""

from __future__ import annotations

import dataclasses

import pytest

from workbench.errors import MissingToolError
from workbench.toolchain import compile_cuda
from workbench.toolchain.sass_counts import class_of, count, counts_by_ptx_line


@pytest.mark.parametrize(
    ("mnemonic", "expected"),
    [
        ("LDG.E.128.CONSTANT", "LDG.128"),
        ("LDG.E", "LDG.32"),
        ("LDG.E.U16", "LDG.16"),
        ("LDG.E.S8", "LDG.8"),
        ("STS.64", "STS.64"),
        ("LDGSTS.E.BYPASS.128", "LDGSTS.128"),
        ("LDSM.16.M88.4", "LDSM.4"),
        ("LDSM.16.MT88.2", "LDSM.2"),
        ("LDSM.16.M88", "LDSM.1"),
        ("HMMA.16816.F32", "HMMA"),
        ("BAR.SYNC.DEFER_BLOCKING", "BAR"),
        ("MUFU.EX2", "MUFU.EX2"),
        ("IMAD.MOV.U32", "IMAD"),
        ("LDC.64", "LDC"),
        ("STG.E.STRONG.GPU", "STG.32"),
    ],
)
def test_classes(mnemonic: str, expected: str):
    assert class_of(mnemonic) == expected


def test_lines_predicates_and_padding():
    found = count(
        """\
.text.k:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
\t//## File ".nv_debug_ptx_txt", line 30
        /*0010*/              @!P2 LDG.E R4, [R6.64] ;
        /*0020*/              @UP0 UIADD3 UR4, UR4, 0x1, URZ ;
\t//## File "/user.cu", line 3
\t//## File ".nv_debug_ptx_txt.123", line 31
.L_x_1:
        /*0030*/                   BRA `(.L_x_1) ;
        /*0040*/                   BRA `(.L_x_1) ;
        /*0050*/                   EXIT ;
.L_x_0:
        /*0060*/                   BRA `(.L_x_0);
        /*0070*/                   NOP;
"""
    )
    # A branch to itself is padding (or a loop with nothing in it); one back to another instruction is code.
    assert found == {0: {"MOV": 1}, 30: {"LDG.32": 1, "UIADD3": 1}, 31: {"BRA": 1, "EXIT": 1}}


def test_lines_are_those_of_the_kernels_own_ptx():
    kernel = compile_cuda(
        'extern "C" __global__ void k(float4 *x) { float4 v = x[threadIdx.x]; v.w *= 3; x[threadIdx.x] = v; }', "k"
    )
    lines = kernel.ptx.splitlines()
    found = counts_by_ptx_line(kernel)
    (load,) = [line for line, counts in found.items() if counts["LDG.128"]]
    (store,) = [line for line, counts in found.items() if counts["STG.128"]]
    assert "ld.global.v4" in lines[load - 1]
    assert "st.global.v4" in lines[store - 1]


def test_code_without_a_cubin_says_so():
    kernel = dataclasses.replace(compile_cuda("__global__ void k() {}", "k"), assembly=None)
    with pytest.raises(MissingToolError, match="k has no machine code"):
        counts_by_ptx_line(kernel)
