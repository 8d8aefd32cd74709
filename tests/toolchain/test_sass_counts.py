"""Static counts of machine code, by class and by line of the PTX."""

from __future__ import annotations

import dataclasses

import pytest

from workbench.errors import ArgumentError, MissingToolError
from workbench.toolchain import compile_cuda
from workbench.toolchain.sass_counts import alu_clocks, class_of, count, counts_by_ptx_line, loop_counts, loops


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


LOOPS = """\
.text.k:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   LDG.E R4, [R6.64] ;
.L_x_2:
        /*0020*/                   FFMA R4, R4, R5, R6 ;
        /*0030*/               @P1 BRA `(.L_x_3) ;
        /*0040*/               @P0 BRA `(.L_x_2) ;
.L_x_3:
        /*0050*/                   LOP3.LUT R4, R4, 0x7, RZ, 0xc0, !PT ;
        /*0060*/                   BRA.U UP0, `(.L_x_1) ;
        /*0070*/                   EXIT ;
.L_x_0:
        /*0080*/                   BRA `(.L_x_0);
        /*0090*/                   NOP;
"""


def test_loops_are_branches_back_and_what_lies_between():
    assert loops(LOOPS) == [{"FFMA": 1, "BRA": 2}, {"LDG.32": 1, "FFMA": 1, "BRA": 3, "LOP3": 1}]


def test_the_loop_around_the_work_is_the_shortest_that_has_it_all():
    kernel = compile_cuda(
        """extern "C" __global__ void k(float *x, const unsigned *y, int n) {
             float sum = 0, least = 0;
             for (int i = 0; i < n; ++i) {
               const unsigned bits = y[i];
         #pragma unroll 1
               for (int j = 0; j < n; ++j) sum += __uint_as_float((bits ^ j) & 0x3fffffff) * x[j];
               least = fminf(least, sum);
             }
             x[threadIdx.x] = least;
           }""",
        "k",
        arch="sm_90",
    )
    inner = loop_counts(kernel, "FFMA")
    assert inner["FFMA"] == 1
    assert inner["LOP3"] == 1
    assert loop_counts(kernel, "FMNMX").total() > inner.total()
    with pytest.raises(ArgumentError, match="HMMA"):
        loop_counts(kernel, "HMMA")


def test_clocks_of_the_units_for_integers():
    assert alu_clocks({"LOP3": 3, "F2FP": 1, "IMAD": 7, "UIADD3": 7, "HFMA2": 7, "FFMA": 7}) == 8
